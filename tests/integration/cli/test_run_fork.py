"""`starling run fork`: what is sent, and what is printed."""

import json
from collections.abc import Generator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support.command_line import CliWorkspace, new_workspace
from tests.support.scripted_platform import ScriptedPlatform

RUN, FORK = "01a1f8ac-cbf4-7cdd-97b7-5ad5f7727001", "01a1f8ac-cbf4-7cdd-97b7-5ad5f772744e"
OTHER = "01a1f8ac-cbf4-7cdd-97b7-5ad5f7727002"
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
    ids = (RUN, OTHER, FORK.replace("744e", "7003"))
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


@pytest.mark.parametrize("status", [403, 409, 429, 500])
def test_runs_that_cannot_be_forked_stop_no_others(
    platform: ScriptedPlatform, workspace: CliWorkspace, status: int
) -> None:
    refused = {"status": status, "detail": "Not now.", "code": "refused"}
    platform.answers = {**platform.answers, PATH: refused, f"/v1/runs/{OTHER}": run(OTHER, "failed", 9)}

    done = workspace.starling("run", "fork", "--failed", "--yes", "--json")

    forks = [(one["fork"], one["now"]) for one in json.loads(done.stdout)["forks"]]
    assert (done.returncode, forks) == (0, [("", "Not now."), (FORK, "succeeded")])


def test_fork_that_cannot_be_read_is_shown_as_begun(platform: ScriptedPlatform, workspace: CliWorkspace) -> None:
    platform.answers = {path: answer for path, answer in platform.answers.items() if not path.endswith(FORK)}

    done = workspace.starling("run", "fork", "--failed", "--yes", "--json")

    [shown] = json.loads(done.stdout)["forks"]
    assert (done.returncode, shown["fork"], "There is no" in shown["now"]) == (0, FORK, True)


def test_document_of_failed_runs_has_one_form_and_none_begun_is_a_failure(
    platform: ScriptedPlatform, workspace: CliWorkspace
) -> None:
    asked = workspace.starling("run", "fork", "--failed", "--json")
    platform.answers = {**platform.answers, PATH: {"status": 409, "detail": "Gone.", "code": "not_forkable"}}
    refused = workspace.starling("run", "fork", "--failed", "--yes", "--json")
    shown = workspace.starling("run", "fork", "--failed", "--yes")
    platform.answers = {**platform.answers, "/v1/runs": {"runs": [], "next": None}}
    none = workspace.starling("run", "fork", "--failed", "--yes", "--json")

    assert [done.returncode for done in (asked, refused, shown, none)] == [0, 1, 1, 0]
    assert [json.loads(done.stdout).keys() for done in (asked, refused, none)] == [
        {"failed", "tokens", "right", "forks"}
    ] * 3


def test_live_fork_names_first_what_the_original_changed(platform: ScriptedPlatform, workspace: CliWorkspace) -> None:
    original = run(RUN, "succeeded", 9)
    original["result"]["effects"] = [{"name": "till.pay", "args": {"eur": 3}, "state": "succeeded"}]
    platform.answers = {**platform.answers, f"/v1/runs/{RUN}": original}

    trial, live = (workspace.starling("run", "fork", RUN, *more) for more in ((), ("--live",)))

    assert "till.pay" not in trial.stderr
    assert 'which stays changed; an equal call asks first:\ntill.pay {"eur":3}: succeeded' in live.stderr


def test_rewind_names_first_what_it_does_not_undo(platform: ScriptedPlatform, workspace: CliWorkspace) -> None:
    original = run(RUN, "succeeded", 9)
    original["result"]["effects"] = [{"name": "till.pay", "args": {"eur": 3}, "state": "succeeded"}]
    thread = "/v1/threads/t"
    rewound = {"branch": {"id": "main"}, "hidden": {"id": "rewound-1"}}
    states = {"states": [{"run_id": RUN}, {"run_id": RUN}], "next": None}
    more = {f"/v1/runs/{RUN}": original, f"{thread}/states": states, f"{thread}/rewind": rewound}
    platform.answers = {**platform.answers, **more}

    asked = workspace.starling("conversation", "rewind", "t", "2")
    sent = list(platform.sent)
    done = workspace.starling("conversation", "rewind", "t", "2", "--yes")

    assert (asked.returncode, sent, done.returncode) == (1, [], 0)
    named = 'A rewind doesn\'t undo what tools have changed:\ntill.pay {"eur":3}: succeeded\n'
    assert [named in one.stderr for one in (asked, done)] == [True, True]
    assert platform.sent == [(f"{thread}/rewind", {"branch": None, "position": 2})]


@pytest.mark.parametrize(
    "given", [[], [RUN, "--failed"], ["--failed", "--live"], [RUN, "--team", "crew"], [RUN, "--prompt", "supervisor"]]
)
def test_options_that_do_not_fit_are_refused(
    platform: ScriptedPlatform, workspace: CliWorkspace, given: Sequence[str]
) -> None:
    assert workspace.starling("run", "fork", *given).returncode != 0
    assert platform.sent == []
