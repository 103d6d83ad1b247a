"""How the servers that were selected for a goal are scored."""

import pytest

from bench.labelled_texts import Request, design_half, metatool, stabletoolbench
from bench.team_selection import NAMES, Outcome, Scores, figures_of

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


def test_designs_are_judged_on_every_second_request_for_several_agents() -> None:
    """The counts are those of `bench/data/README.md`."""
    some = [Request(text, NEEDED) for text in "abcde"]
    some.insert(1, Request("for one agent", frozenset({"a"})))

    assert [one.text for one in design_half(some, judged=True)] == ["b", "d"]
    assert [one.text for one in design_half(some, judged=False)] == ["a", "c", "e"]
    assert [len(design_half(one.requests, judged=True)) for one in (stabletoolbench(811), metatool(199))] == [75, 132]


def test_bare_figures_of_designs_are_those_of_the_judged_half() -> None:
    right, wrong = (Scores(*[share] * 4) for share in (1.0, 0.0))
    tuned, judged = Outcome(wrong, wrong, True, [True]), Outcome(right, wrong, False, [False])

    figures = {figure.name: figure.value for figure in figures_of("metatool", [tuned], [judged])}

    assert (figures["architect.metatool.f1"], figures["architect.metatool.f1_all"]) == (1.0, 0.5)
    assert (figures["architect.metatool.gap_false"], figures["architect.metatool.gap_false_all"]) == (0.0, 0.5)
    assert (figures["architect.metatool.gap_reported"], figures["architect.metatool.gap_reported_all"]) == (0.0, 0.5)
    assert figures.keys() == {name for name in NAMES if name.startswith("architect.metatool.")}
