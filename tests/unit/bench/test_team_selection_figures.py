"""How the servers that were selected for a goal are scored."""

import pytest

from bench.team_selection import Scores

NEEDED = frozenset({"a", "b"})


@pytest.mark.parametrize(
    ("selected", "scores"),
    [
        pytest.param(["a", "b"], Scores(1.0, 1.0, 1.0, 1.0), id="exactly"),
        pytest.param(["b"], Scores(1.0, 0.5, 2 / 3, 0.0), id="one of two"),
        pytest.param(["a", "b", "c", "d"], Scores(0.5, 1.0, 2 / 3, 0.0), id="and others"),
        pytest.param(["c"], Scores(0.0, 0.0, 0.0, 0.0), id="only another one"),
        pytest.param([], Scores(0.0, 0.0, 0.0, 0.0), id="none"),
    ],
)
def test_selected_servers_are_compared_with_those_that_are_needed(selected: list[str], scores: Scores) -> None:
    assert Scores.of(selected, NEEDED) == scores
