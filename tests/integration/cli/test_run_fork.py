"""`starling run fork`: what is sent, and what is printed."""

import json
from collections.abc import Generator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support.command_line import CliWorkspace, new_workspace
from tests.support.scripted_platform import ScriptedPlatform

RUN, FORK = "01a1f8ac-cbf4-7cdd-97b7-5ad5f7727001", "01a1f8ac-cbf4-7cdd-97b7-5ad5f772744e"
PATH = f"/v1/runs/{RUN}/fork"
DONE = {
    "type": "done",
    "usage": {"tokens": 3, "model_calls": 1, "tool_calls": 0},
    "status": "succeeded",
    "reply": "Fine.",
}


def run(run_id: str, status: str, tokens: int, **more: Any) -> dict[str, Any]:
    result = {"status": status, "code": None if status == "succeeded" else "timeout", "usage": {"tokens": tokens}}
    return {"run_id": run_id, "status": status, "ended_at": "x", "result": result, "forked_from": None, **more}


@pytest.fixture
def platform() -> Generator[ScriptedPlatform]:
    created = [datetime.now(UTC) - timedelta(hours=hours) for hours in (1, 2, 30)]
    ids = (RUN, FORK.replace("744e", "7002"), FORK.replace("744e", "7003"))
    listed = [{"run_id": one, "created_at": at.isoformat()} for one, at in zip(ids, created, strict=True)]
    answers: dict[str, Any] = {
        "/v1/runs": {"runs": listed, "next": None},
        f"/v1/runs/{RUN}": run(RUN, "failed", 1200),
        f"/v1/runs/{ids[1]}": run(ids[1], "failed", 9, forked_from={"run": RUN}),
        f"/v1/runs/{FORK}": {**run(FORK, "succeeded", 300), "events": 1, "behind": None},
    }
    with ScriptedPlatform(events=[DONE], answers=answers).serving() as platform:
        yield platform


@pytest.fixture
def workspace(platform: ScriptedPlatform) -> Generator[CliWorkspace]:
    with new_workspace(STARLING_URL=platform.url) as workspace:
        yield workspace


def test_fork_sends_its_changes_and_follows_the_new_run(platform: ScriptedPlatform, workspace: CliWorkspace) -> None:
    changes = ("--model", "coding=scripted:large", "--prompt", "supervisor=abcdef", "--epoch", "3", "--team", "crew@2")

    done = workspace.starling("run", "fork", RUN, "--at", "t2", *changes, "--live")

    assert (done.returncode, "Fine." in done.stdout) == (0, True), done.stderr
    wanted = {
        "model": {"coding": "scripted:large"},
        "prompts": {"supervisor": "abcdef"},
        "teams": {"crew": 2},
        "epoch": 3,
    }
    assert platform.sent == [(PATH, {"at": "t2", "changes": wanted, "live": True})]


def test_failed_runs_are_forked_once_the_estimate_is_confirmed(
    platform: ScriptedPlatform, workspace: CliWorkspace
) -> None:
    asked = workspace.starling("run", "fork", "--failed", "--model", "scripted:large")
    assert "1 run failed, and used 1,200 tokens." in asked.stderr
    assert platform.sent == []

    done = workspace.starling("run", "fork", "--failed", "--model", "scripted:large", "--yes")
    lines = json.loads(workspace.starling("run", "fork", "--failed", "--yes", "--json").stdout)

    models = dict.fromkeys(("router", "reasoning", "coding"), "scripted:large")
    body = {"at": "start", "changes": {"model": models}, "live": False, "limits": {"max_clarifications": 0}}
    assert platform.sent[0] == (PATH, body)
    assert done.stdout.splitlines()[-2].split("\t") == [RUN, "timeout", "1200", FORK, "succeeded", "300"]
    assert done.stdout.splitlines()[-1] == "1 of 1 run came out right now."
    assert (lines["right"], lines["forks"][0]["fork"]) == (1, FORK)


@pytest.mark.parametrize(
    "given", [[], [RUN, "--failed"], ["--failed", "--live"], [RUN, "--team", "crew"], [RUN, "--prompt", "supervisor="]]
)
def test_options_that_do_not_fit_are_refused(
    platform: ScriptedPlatform, workspace: CliWorkspace, given: Sequence[str]
) -> None:
    assert workspace.starling("run", "fork", *given).returncode != 0
    assert platform.sent == []
