"""`starling run export` and `run feedback`."""

import json
from collections.abc import Generator

import pytest

from tests.support.command_line import CliWorkspace, new_workspace
from tests.support.scripted_platform import ScriptedPlatform

PAGE = {"records": [{"run_id": "b", "request": "Größe?"}, {"run_id": "a", "request": "two\nlines"}], "next": None}


def test_each_run_is_one_line() -> None:
    with (
        ScriptedPlatform(answers={"/v1/records": PAGE}).serving() as platform,
        new_workspace(STARLING_URL=platform.url) as workspace,
    ):
        done = workspace.starling("run", "export", "--jsonl", "--since", "12h", "--status", "failed")

    assert [json.loads(line) for line in done.stdout.splitlines()] == PAGE["records"], done.stderr


RUN = "01a1f8ac-cbf4-7cdd-97b7-5ad5f772744e"
PATH = f"/v1/runs/{RUN}/feedback"
MOMENT = "2026-11-20T11:14:01.250000Z"
STORED = {"score": 0.5, "comment": "Late.", "by": "local", "created_at": MOMENT, "updated_at": MOMENT}


@pytest.fixture
def platform() -> Generator[ScriptedPlatform]:
    with ScriptedPlatform(answers={PATH: STORED}).serving() as platform:
        yield platform


@pytest.fixture
def workspace(platform: ScriptedPlatform) -> Generator[CliWorkspace]:
    with new_workspace(STARLING_URL=platform.url) as workspace:
        yield workspace


def test_feedback_is_sent_for_the_run_and_printed(platform: ScriptedPlatform, workspace: CliWorkspace) -> None:
    done = workspace.starling("run", "feedback", RUN, "--score", "0.5", "--comment", "Late.")

    assert done.stdout == f"Run {RUN} has the feedback 0.5 of local.\n", done.stderr
    assert platform.sent == [(PATH, {"score": 0.5, "comment": "Late."})]


def test_score_outside_its_range_is_refused(platform: ScriptedPlatform, workspace: CliWorkspace) -> None:
    done = workspace.starling("run", "feedback", RUN, "--score", "5")

    assert (done.returncode, platform.sent) == (2, [])


def test_unfinished_runs_of_all_tenants_are_listed_with_their_tenants() -> None:
    run = {"run_id": RUN, "thread_id": "t", "status": "queued", "created_at": MOMENT, "seconds": 0.8, "input": "Hello"}
    runs = [{**run, "tenant": tenant} for tenant in ("shop", "bank")]
    with (
        ScriptedPlatform(answers={"/v1/runs?all_tenants=true&limit=20": {"runs": runs, "next": None}}).serving() as one,
        new_workspace(STARLING_URL=one.url) as workspace,
    ):
        done = workspace.starling("run", "list", "--all-tenants")

    head, *rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert head[1] == "TENANT", done.stderr
    assert [row[1] for row in rows] == ["shop", "bank"]
