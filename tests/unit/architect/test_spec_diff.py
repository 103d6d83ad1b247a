"""Differences of two specs: as text and as paths."""

from typing import Any

import pytest

from architect.spec_diff import spec_diff
from tests.support.team_specs import member, team_spec

READER, WRITER = member("reader", server="git", tools=["git.git_log"]), member("writer")


@pytest.mark.parametrize(
    ("before", "after", "paths"),
    [
        ([READER], [READER], ()),
        ([READER], [{**READER, "role": "Tells."}], ("members[0].role",)),
        ([READER], [{**READER, "tools": ["git.git_log", "git.git_commit"]}], ("members[0].tools[1]",)),
        ([READER, WRITER], [READER], ("members[1]",)),
        ([READER], [READER, {**WRITER, "runtime": "native"}], ("members[1]",)),
        ([READER], [{**READER, "runtime": "native"}], ("members[0].runtime",)),
        ([{**READER, "runtime": "native"}], [READER], ("members[0].runtime",)),
    ],
)
def test_paths_name_what_differs(
    before: list[dict[str, Any]], after: list[dict[str, Any]], paths: tuple[str, ...]
) -> None:
    found = spec_diff(team_spec(*before), team_spec(*after), names=("news@1", "news@2"))

    assert found.paths == paths
    assert bool(found.text) == bool(paths)


def test_text_is_a_unified_diff_of_yaml() -> None:
    before, after = team_spec(READER), team_spec(READER, WRITER)

    text = spec_diff(before, after, names=("news@1", "news@2")).text

    assert text.splitlines()[:2] == ["--- news@1", "+++ news@2"]
    assert "+- name: writer\n+  role: historian\n+  goal: Tells what changed.\n" in text
