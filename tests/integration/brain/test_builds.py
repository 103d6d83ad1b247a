"""The architect as an agent of the main star: a supervisor gives it a task within the rights of the run's caller."""

import json
from dataclasses import replace
from typing import Any

import pytest

from starling.app.runs.acceptance import RunRequest
from starling.core.principal import Grant, Principal, Scope
from starling.core.runs import Mode, RunConfig
from tests.support.model_script import Answer, Rule, Script, When
from tests.support.platform import CALLER, Platform, RunStream, calls, decision, task, verdict

DESIGN: dict[str, Any] = {
    "name": "lookers",
    "purpose": "Looks at things.",
    "members": [{"name": "looker", "role": "looks", "goal": "Look.", "server": "bench", "parts": [1]}],
    "examples": [
        {"request": "Look at the disk.", "must_call": ["bench.look"], "contains": ["looked"]},
        {"request": "Look at the fan.", "must_call": ["bench.look"], "contains": ["looked"]},
    ],
}
GOAL = "Build a team that looks at things."


@pytest.fixture
def script() -> Script:
    """The supervisor of the run plans for the architect, that of the team for its member."""
    return Script(
        Rule(Answer(json.dumps(DESIGN)), When(schema="designer")),
        Rule(decision(task("t1", "looker")), When(schema="supervisor_decision", contains='<team name="lookers"')),
        Rule(decision(task("t1", "architect", GOAL)), When(schema="supervisor_decision")),
        Rule(verdict("APPROVED"), When(schema="verdict")),
        Rule(Answer("It is fine."), When(tool="look", last_contains="the disk is")),
        Rule(calls(("look", {"thing": "disk"})), When(tool="look")),
        Rule(Answer("Looked [1].")),
    )


async def ask_as(platform: Platform, caller: Principal, mode: Mode = Mode.MODERATE) -> RunStream:
    request = RunRequest(GOAL, "thread", config=RunConfig(mode=mode))
    return await platform.finish((await platform.services.runs.acceptance.accept(caller, request)).key)


async def test_supervisor_has_a_team_built_on_the_path_and_budget_of_its_run(platform: Platform) -> None:
    stream = await ask_as(platform, CALLER)

    (published,) = stream.of("published")
    assert stream.status == "succeeded", stream.reply
    assert (published["path"], published["team"], published["state"]) == ("t1", "lookers", "active")
    assert {one["path"] for one in stream.of("plan")} == {"", "t1.case-example_1", "t1.case-example_2"}
    assert stream.done["usage"]["model_calls"] == len(platform.model.requests)
    assert stream.reply.startswith("lookers@1 is active")


@pytest.mark.parametrize(
    ("caller", "mode", "says"),
    [
        (replace(CALLER, scopes=frozenset({Scope.RUN})), Mode.MODERATE, "There is no agent 'architect'."),
        (
            replace(CALLER, grant=Grant(servers=frozenset({"shop"}))),
            Mode.MODERATE,
            "This key may not call 'bench.look'.",
        ),
        (CALLER, Mode.CONSERVATIVE, "There is no agent 'architect'."),
    ],
)
async def test_run_gets_no_team_beyond_its_rights(platform: Platform, caller: Principal, mode: Mode, says: str) -> None:
    stream = await ask_as(platform, caller, mode)

    assert (stream.of("published"), stream.status) == ([], "failed")
    assert says in stream.reply
    assert "What would help: the log" not in stream.reply
    assert (await platform.services.teams.list(CALLER)).teams == []
