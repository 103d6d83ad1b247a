"""`starling team build`, `prove`, `history`, `diff` and `show --proof`, of an API that gives scripted answers."""

import json
from collections.abc import Generator, Sequence
from typing import Any

import pytest

from tests.support.build_events import (
    APPROVAL,
    DESIGN,
    DONE,
    FAILED,
    PASSED,
    PLAN,
    RUN,
    SOUND,
    START,
    STORED,
    Event,
    started,
    trial,
)
from tests.support.command_line import STARLING, CliWorkspace, new_workspace
from tests.support.scripted_platform import ScriptedPlatform
from tests.support.terminal import Terminal

BUILT: Sequence[Event] = (started(), PLAN, START, DESIGN, SOUND, *trial("t1.case1"), PASSED, STORED, DONE)
GOAL = "Watch the disk and the memory of this machine."
CASE = "input: How full is it?\nmust_call: [system_health.disk]\n"
NO_LIMITS: dict[str, Any] = {"servers": [], "members": None}
REFUSED = {"detail": "The team exists.", "remedy": "Choose another name.", "code": "conflict"}


@pytest.fixture
def platform() -> Generator[ScriptedPlatform]:
    with ScriptedPlatform(BUILT).serving() as platform:
        yield platform


@pytest.fixture
def workspace(platform: ScriptedPlatform) -> Generator[CliWorkspace]:
    with new_workspace(STARLING_URL=platform.url, TZ="UTC") as workspace:
        (workspace.folder / "case.yaml").write_text(CASE)
        (workspace.folder / "cases.json").write_text('[{"input": "One."}, {"input": "Two."}]')
        yield workspace


@pytest.mark.parametrize(
    ("options", "path", "body"),
    [
        ((), "/v1/teams", {"constraints": NO_LIMITS, "cases": [], "activate": True, "partial": False}),
        (
            ("--name", "watch", "--server", "time", "--server", "system_health", "--members", "3", "--no-activate"),
            "/v1/teams",
            {"name": "watch", "constraints": {"servers": ["time", "system_health"], "members": 3}, "activate": False},
        ),
        (
            ("--case", "case.yaml", "--case", "cases.json", "--partial"),
            "/v1/teams",
            {
                "cases": [
                    {"input": "How full is it?", "must_call": ["system_health.disk"]},
                    {"input": "One."},
                    {"input": "Two."},
                ],
                "partial": True,
            },
        ),
        (("--change", "watch"), "/v1/teams/watch/versions", {"goal": GOAL}),
        (("--change", "watch@2"), "/v1/teams/watch/versions", {"goal": GOAL, "version": 2}),
    ],
)
def test_build_sends_the_goal_with_what_the_options_say(
    platform: ScriptedPlatform, workspace: CliWorkspace, options: tuple[str, ...], path: str, body: dict[str, Any]
) -> None:
    done = workspace.starling("team", "build", GOAL, *options)

    assert done.returncode == 0, done.stderr
    ((where, sent),) = platform.sent
    assert where == path
    assert {name: sent[name] for name in ("goal", *body)} == {"goal": GOAL, **body}
    assert ("version" in sent, "name" in sent) == ("version" in body, "name" in body)


def test_build_shows_its_design_checks_cases_and_version(workspace: CliWorkspace) -> None:
    done = workspace.starling("team", "build", "-", stdin=GOAL)

    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "  disk: Watcher (system_health: disk)" in lines
    assert [line for line in lines if line.startswith(("Checks", "Case", "machine_watch"))] == [
        "Checks: sound",
        "Case case1",
        "Case one passed; calls: 2 live, 1 simulated",
        "machine_watch@1 is active from epoch 4 on.",
    ]
    assert "It is built." in lines


def test_build_with_json_prints_each_event_as_a_line(workspace: CliWorkspace) -> None:
    done = workspace.starling("team", "build", GOAL, "--json")

    printed = [json.loads(line) for line in done.stdout.splitlines()]
    assert printed == [{"seq": number, **event} for number, event in enumerate(BUILT, start=1)]


def test_build_that_fails_exits_with_1(platform: ScriptedPlatform, workspace: CliWorkspace) -> None:
    platform.events = (started(), DONE | {"status": "failed", "reply": "Nothing serves: send it by SMS."})

    done = workspace.starling("team", "build", GOAL)

    assert done.returncode == 1
    assert "Nothing serves: send it by SMS." in done.stdout


def test_build_in_the_background_prints_its_run_and_ends(workspace: CliWorkspace) -> None:
    printed = workspace.starling("team", "build", GOAL, "--background")
    as_json = workspace.starling("team", "prove", "watch", "--background", "--json")

    assert printed.stdout == f"Run {RUN} is queued: `starling run tail {RUN}` follows it.\n"
    assert json.loads(as_json.stdout)["run_id"] == RUN


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("build", GOAL, "--name", "a", "--change", "b"), "--name and --change can't be combined."),
        (("build", GOAL, "--change", "b@x"), "'x' is not a version of a team."),
        (("build", GOAL, "--yes", "--no"), "--yes and --no can't be combined."),
        (("build", GOAL, "--members", "13"), "Invalid value for '--members'"),
        (("build", GOAL, "--case", "none.yaml"), "none.yaml can't be read"),
        (
            ("build", GOAL, "--case", "wrong.yaml"),
            "wrong.yaml has no cases that can be tried.\n  input: ",
        ),
        (("prove", "watch", "--case", "wrong.yaml"), "inptu: There is no such field. Did you mean 'input'?"),
        (("show", "watch", "--graph", "--proof"), "--graph and --proof can't be combined."),
    ],
)
def test_wrong_option_is_refused_before_anything_is_sent(
    platform: ScriptedPlatform, workspace: CliWorkspace, arguments: tuple[str, ...], said: str
) -> None:
    (workspace.folder / "wrong.yaml").write_text("inptu: How full?\n")

    done = workspace.starling("team", *arguments)

    assert (done.returncode, platform.sent) == (2, [])
    assert said in done.stderr


def test_refused_build_is_explained(platform: ScriptedPlatform, workspace: CliWorkspace) -> None:
    platform.answers = {"/v1/teams": REFUSED}

    done = workspace.starling("team", "build", GOAL, "--name", "watch")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "Error: The team exists.\n  Choose another name.\n"


def test_prove_sends_version_and_cases_and_shows_what_fails(
    platform: ScriptedPlatform, workspace: CliWorkspace
) -> None:
    platform.events = (started(), PLAN, START, *trial("t1.case2"), FAILED, STORED | {"state": "draft"}, DONE)

    done = workspace.starling("team", "prove", "watch@2", "--case", "case.yaml")

    ((path, body),) = platform.sent
    assert (path, body["version"], body["cases"][0]["input"]) == ("/v1/teams/watch/prove", 2, "How full is it?")
    assert "Case two failed; calls: none\n  ✗ sum: The answer has no sum.\n" in done.stdout


@pytest.mark.parametrize(("option", "approved"), [("--yes", True), ("--no", False)])
def test_fixed_answer_decides_on_the_activation(
    platform: ScriptedPlatform, workspace: CliWorkspace, option: str, *, approved: bool
) -> None:
    platform.events = (started(), APPROVAL, DONE)

    done = workspace.starling("team", "build", GOAL, option)

    assert done.returncode == 0, done.stderr
    assert platform.sent[1] == (
        f"/v1/runs/{RUN}/resume",
        [{"interruptId": APPROVAL["id"], "status": "resolved", "payload": {"approved": approved}}],
    )
    assert f"Answered by {option}." in done.stdout


def test_person_approves_an_activation_after_its_tools_and_proof_were_shown(platform: ScriptedPlatform) -> None:
    platform.events = (started(), PLAN, START, DESIGN, SOUND, PASSED, APPROVAL, STORED, DONE)

    with (
        new_workspace(STARLING_URL=platform.url) as workspace,
        Terminal.running(
            [STARLING, "team", "build", GOAL], folder=workspace.folder, environment=workspace.environment, width=80
        ) as terminal,
    ):
        shown = terminal.until("Approve? [y/N/show] ")
        terminal.type("y\n")
        code = terminal.end()

    assert code == 0, terminal.shown
    assert "  tools: files.write_file_0, files.write_file_1, files.write_file_2,\n    files" in shown
    assert "  proof: unproven\n" in shown
    assert "machine_watch@1 is active from epoch 4 on." in terminal.shown
    assert platform.sent[1][1][0]["payload"] == {"approved": True}


def test_history_lists_who_did_what(platform: ScriptedPlatform, workspace: CliWorkspace) -> None:
    at = "2026-11-20T11:12:01.250000Z"
    proved = {"version": 1, "hash": "3f1c", "state": "proven", "score": 1.0}
    changes: list[dict[str, Any]] = [
        {"at": at, "action": "team.prove", "by": "k7m2p9", "origin": "architect", "detail": proved},
        {"at": at, "action": "team.archive", "by": "local", "origin": "cli", "detail": {}},
    ]
    platform.answers = {"/v1/teams/watch/history": {"name": "watch", "changes": changes}}

    assert workspace.starling("team", "history", "watch").stdout.splitlines() == [
        "AT\tACTION\tVERSION\tBY\tFROM\tDETAILS",
        "2026-11-20 11:12:01 UTC\tprove\t1\tk7m2p9\tarchitect\tstate proven, score 1.0",
        "2026-11-20 11:12:01 UTC\tarchive\t\tlocal\tcli\t",
    ]
    assert workspace.json("team", "history", "watch") == changes


def test_proof_of_the_active_version_is_shown(platform: ScriptedPlatform, workspace: CliWorkspace) -> None:
    proof: dict[str, Any] = {
        "state": "proven",
        "score": 1.0,
        "threshold": 1.0,
        "cases": [],
        "run_id": RUN,
        "trace_id": "f",
    }
    versions = [{"version": 1, "state": "active"}, {"version": 2, "state": "proven"}]
    platform.answers = {
        "/v1/teams/watch/versions": {"versions": versions},
        "/v1/teams/watch/versions/1/proof": proof,
    }

    assert workspace.starling("team", "show", "watch", "--proof").stdout.splitlines()[0] == "watch@1 is proven."
    assert workspace.json("team", "show", "watch@1", "--proof") == proof
    missing = workspace.starling("team", "show", "watch@2", "--proof")
    assert (missing.returncode, missing.stderr) == (2, "Error: There is no /v1/teams/watch/versions/2/proof.\n")
