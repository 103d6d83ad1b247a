"""Specs of teams as the commands write and read them."""

from pathlib import Path

import pytest

from starling.app.cli import deferred
from starling.core.teams import SCHEMA_ID, TeamSpec
from tests.support.team_specs import member, team_spec


@pytest.mark.parametrize(
    "instructions", ["Be brief.\nName sources.", "yes", "1e5", "a\x85b\u2028c", "{secret} %TAG *a"]
)
def test_exported_spec_is_read_as_the_same_spec(tmp_path: Path, instructions: str) -> None:
    team = team_spec(member(server="git"), instructions=instructions)
    file = tmp_path / "news.yaml"

    file.write_text(deferred.shortest_team(team.model_dump(mode="json")), "utf-8")
    read, findings = deferred.read_team(file)

    assert not findings
    assert TeamSpec.model_validate(read).hash == team.hash


def test_printed_schema_is_the_published_one() -> None:
    assert deferred.team_schema()["$id"] == SCHEMA_ID
