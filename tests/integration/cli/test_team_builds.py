"""`starling team build`, `prove`, `history`, `diff` and `show --proof`, of an API that gives scripted answers."""

import json
from collections.abc import Generator, Sequence
from typing import Any

import pytest

from starling.app.cli.run.conversation import Conversation
from starling.app.cli.terminal.output import results
from starling.app.cli.terminal.prompts import Prompts
from starling.app.cli.terminal.run_display import RunDisplay
from starling.client.api import Api
from starling.core.run_document.rows import EventRow
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
from tests.support.command_line import CliWorkspace, new_workspace
from tests.support.scripted_platform import ScriptedPlatform
from tests.support.terminal import Terminal

BUILT: Sequence[Event] = (started(), PLAN, START, DESIGN, SOUND, *trial("t1.case1"), PASSED, STORED, DONE)
GOAL = "Watch the disk and the memory of this machine."
CASE = "input: How full is it?\nmust_call: [system_health.disk]\n"
NO_LIMITS: dict[str, Any] = {"servers": [], "members": None}
REFUSED = {"detail": "The team exists.", "remedy": "Choose another name.", "code": "conflict", "status": 409}


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
        (("build", GOAL, "--change", ""), "--change names no team."),
        (("build", GOAL, "--name", "", "--change", "b"), "--name and --change can't be combined."),
        (("build", GOAL, "--case", "none.yaml"), "none.yaml can't be read: No such file or directory."),
        (("build", GOAL, "--case", "empty.json"), "empty.json has no cases that can be tried.\n  The document has no"),
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
    (workspace.folder / "empty.json").write_text("[]")

    done = workspace.starling("team", *arguments)

    assert (done.returncode, platform.sent) == (2, [])
    assert said in done.stderr


def test_refused_build_is_explained(platform: ScriptedPlatform, workspace: CliWorkspace) -> None:
    platform.answers = {"/v1/teams": REFUSED}

    done = workspace.starling("team", "build", GOAL, "--name", "watch")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "Error: The team exists.\n  Choose another name.\n"


def test_empty_name_is_sent_and_refused_in_words_of_the_command_line(
    platform: ScriptedPlatform, workspace: CliWorkspace
) -> None:
    fault = {"where": "body.name", "what": "must not be empty", "type": "string_too_short"}
    told = {"detail": "body.name: must not be empty", "remedy": "See /docs.", "code": "invalid_request"}
    platform.answers = {"/v1/teams": {**told, "errors": [fault], "status": 422}}

    done = workspace.starling("team", "build", GOAL, "--name", "")

    assert platform.sent[0][1]["name"] == ""
    assert done.returncode == 2
    assert done.stderr.startswith("Error: name: must not be empty\n  `--help` after a command describes its options")


@pytest.mark.parametrize("as_json", [False, True])
def test_build_without_a_terminal_does_not_wait_for_an_approval(
    platform: ScriptedPlatform, workspace: CliWorkspace, *, as_json: bool
) -> None:
    platform.events = (started(), PLAN, START, DESIGN, SOUND, PASSED, APPROVAL, STORED, DONE)

    done = workspace.starling("team", "build", GOAL, *(["--json"] if as_json else []))

    assert done.returncode == 4
    assert [path for path, _ in platform.sent] == ["/v1/teams"]
    why, how, onward = done.stderr.splitlines()
    assert why == f"Error: Run {RUN} waits for an answer. {APPROVAL['message']}"
    approval = f"`starling run approve {RUN} --id {APPROVAL['id']}` approves it"
    assert how.startswith(f"  Only a key with the scope `admin` decides: {approval}, ")
    assert how.endswith("; until 2026-11-21 11:12:03 UTC.")
    assert onward == f"  `starling run tail {RUN}` follows the run."


def test_yes_does_not_wait_for_the_answer_to_a_question(platform: ScriptedPlatform, workspace: CliWorkspace) -> None:
    question = {**APPROVAL, "type": "clarification", "message": "Which disk?", "call": None}
    platform.events = (started(), question, DONE)

    done = workspace.starling("team", "build", GOAL, "--yes")

    assert (done.returncode, len(platform.sent)) == (4, 1)
    assert f"Error: Run {RUN} waits for an answer. Which disk?" in done.stderr
    assert "--payload" in done.stderr


def test_yes_with_a_key_that_may_not_decide_says_at_once_who_may(
    platform: ScriptedPlatform, workspace: CliWorkspace
) -> None:
    refused = {"detail": "The key k1 lacks the scope 'admin'.", "remedy": "Use another.", "code": "forbidden"}
    platform.answers = {f"/v1/runs/{RUN}/resume": {**refused, "status": 403}}
    platform.events = (started(), APPROVAL, DONE)

    done = workspace.starling("team", "build", GOAL, "--yes")

    assert done.returncode == 4
    assert "Error: The key k1 lacks the scope 'admin'.\n  Only a key with the scope `admin` decides: " in done.stderr


def test_approval_that_somebody_gave_already_is_not_waited_for(
    platform: ScriptedPlatform, workspace: CliWorkspace
) -> None:
    platform.events = (started(), APPROVAL, STORED, DONE)
    platform.answered.set()

    assert workspace.starling("team", "build", GOAL).returncode == 0


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
        Terminal.running(workspace, "team", "build", GOAL, width=80) as terminal,
    ):
        shown = terminal.until("Approve? [y/N/show] ")
        terminal.type("y\n")
        code = terminal.end()

    assert code == 0, terminal.shown
    assert "  tools: files.write_file_0, files.write_file_1, files.write_file_2,\n    files" in shown
    assert "  proof: unproven\n" in shown
    assert "machine_watch@1 is active from epoch 4 on." in terminal.shown
    assert platform.sent[1][1][0]["payload"] == {"approved": True}


@pytest.mark.parametrize("typed", ["y", "n"])
def test_command_of_a_person_whose_key_may_not_decide_ends_and_says_who_may(
    platform: ScriptedPlatform, typed: str
) -> None:
    refused = {"detail": "The key k1 lacks the scope 'admin'.", "remedy": "Use another.", "code": "forbidden"}
    platform.answers = {f"/v1/runs/{RUN}/resume": {**refused, "status": 403}}
    platform.events = (started(), PLAN, START, APPROVAL)

    with (
        new_workspace(STARLING_URL=platform.url) as workspace,
        Terminal.running(workspace, "team", "build", GOAL, width=300) as terminal,
    ):
        terminal.until("Approve? [y/N/show] ")
        terminal.type(f"{typed}\n")
        code = terminal.end()

    assert code == 4, terminal.shown
    assert "Error: The key k1 lacks the scope 'admin'.\n  Only a key with the scope `admin` decides: " in terminal.shown
    assert f"`starling run tail {RUN}` follows the run." in terminal.shown


def test_person_who_follows_a_run_and_may_not_decide_is_asked_once(
    platform: ScriptedPlatform, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = {"detail": "The key lacks the scope 'admin'.", "remedy": "Use another.", "code": "forbidden"}
    platform.answers = {f"/v1/runs/{RUN}/resume": refused | {"status": 403}}
    platform.events = (APPROVAL,)
    asked: list[str] = []
    prompts = Prompts(lambda prompt: asked.append(prompt) or "y")
    talk = Conversation(Api(platform.url), RunDisplay(results()), prompts, patient=True, run_id=RUN)

    talk.event(EventRow(1, "approval_required", APPROVAL))

    assert len(asked) == 1
    assert "The key lacks the scope 'admin'." in capsys.readouterr().err


def test_ctrl_c_leaves_the_build_working(platform: ScriptedPlatform) -> None:
    platform.events = (started(), PLAN, START, APPROVAL, DONE)

    with (
        new_workspace(STARLING_URL=platform.url) as workspace,
        Terminal.running(workspace, "team", "build", GOAL) as terminal,
    ):
        terminal.until("Approve? [y/N/show] ")
        terminal.type("\x03")
        terminal.until("or cancel it (c)? ")
        terminal.type("\n")
        code = terminal.end()

    assert code == 130
    assert f"The run continues: `starling run tail {RUN}` follows it." in terminal.shown
    assert [path for path, _ in platform.sent] == ["/v1/teams"]


@pytest.mark.parametrize(
    ("typed", "code", "last"), [("y\n", 0, "is archived from epoch 6"), ("\n", 1, "Nothing"), ("\x04", 1, "Nothing")]
)
def test_person_who_archives_a_team_sees_first_which_teams_use_it(
    platform: ScriptedPlatform, typed: str, code: int, last: str
) -> None:
    platform.answers = {
        "/v1/teams/watch": {"name": "watch", "used_in": ["outer@3"]},
        "/v1/teams/watch/archive": {"name": "watch", "epoch": 6, "used_in": []},
    }

    with (
        new_workspace(STARLING_URL=platform.url) as workspace,
        Terminal.running(workspace, "team", "archive", "watch") as terminal,
    ):
        shown = terminal.until("Archive watch? [y/N]")
        sent_before = [*platform.sent]
        terminal.type(typed)
        ended = terminal.end()

    assert "outer@3 keeps it inside as it was" in shown
    assert (sent_before, len(platform.sent), ended) == ([], 1 - code, code)
    assert last in terminal.shown


@pytest.mark.parametrize(("typed", "code"), [("y\n", 0), ("\n", 1)])
@pytest.mark.parametrize("command", [("activate", "watch@1"), ("rollback", "watch")])
def test_person_who_activates_a_version_in_doubt_is_asked_first(
    platform: ScriptedPlatform, command: Sequence[str], typed: str, code: int
) -> None:
    old = {"version": 1, "state": "superseded", "outdated_tools": ["time.now"], "proof": {"state": "unproven"}}
    done: dict[str, Any] = {"name": "watch", "version": 1, "epoch": 6, "left_out": [], "used_in": []}
    platform.answers = {
        "/v1/teams/watch/versions": {"versions": [old, {"version": 2, "state": "active"}]},
        "/v1/teams/watch/versions/1/proof": {"not_judged": ["No case tried the part 'sing'."]},
        f"/v1/teams/watch/{command[0]}": done,
    }

    with (
        new_workspace(STARLING_URL=platform.url) as workspace,
        Terminal.running(workspace, "team", *command) as terminal,
    ):
        shown = terminal.until("Activate watch@1? [y/N]")
        terminal.type(typed)

        assert terminal.end() == code

    assert "Changed since watch@1 was proved: time.now." in shown
    assert "watch@1 is not proven." in shown
    assert "No case tried the part 'sing'." in shown
    assert len(platform.sent) == 1 - code


@pytest.mark.parametrize(("typed", "code"), [("y\n", 0), ("\n", 1)])
def test_person_who_activates_a_version_that_was_never_tried_is_asked_first(
    platform: ScriptedPlatform, typed: str, code: int
) -> None:
    doubt = "watch@1 was never tried: it has no proof."
    done: dict[str, Any] = {"name": "watch", "version": 1, "epoch": 6, "left_out": [], "used_in": []}
    platform.answers = {
        "/v1/teams/watch/versions": {"versions": [{"version": 1, "state": "draft", "proof": None}]},
        "/v1/teams/watch/activate": done | {"not_judged": [doubt]},
    }

    with (
        new_workspace(STARLING_URL=platform.url) as workspace,
        Terminal.running(workspace, "team", "activate", "watch") as terminal,
    ):
        shown = terminal.until("Activate watch@1? [y/N]")
        terminal.type(typed)

        assert terminal.end() == code

    assert doubt in shown
    assert (len(platform.sent), f"! {doubt}" in terminal.shown) == (1 - code, not code)


def test_list_and_show_name_the_states_of_built_versions(platform: ScriptedPlatform, workspace: CliWorkspace) -> None:
    team: dict[str, Any] = {"name": "watch", "purpose": "Watches.", "state": "unproven", "version": 2, "reason": ""}
    more: dict[str, Any] = {"degraded_members": {}, "members": [], "used_in": ["outer@1"], "outdated_tools": ["a.b"]}
    made = {"hash": "3f1c", "star": None, "created_by": "local", "created_at": "2026-11-20T11:12:01.250000Z"}
    states = (("proven", "proven"), ("unproven", "unproven"), ("draft", "failed"))
    versions: list[dict[str, Any]] = [
        {"version": number, "state": state, "proof": {"state": proof}, **made}
        for number, (state, proof) in enumerate(states, start=1)
    ]
    platform.answers = {
        "/v1/teams": {"teams": [team | more]},
        "/v1/teams/watch": team | more,
        "/v1/teams/watch/versions": {"versions": versions},
    }

    listed = workspace.starling("team", "list").stdout.splitlines()
    shown = workspace.starling("team", "show", "watch").stdout.splitlines()

    assert listed[1] == "watch\tunproven, outdated\t2\tWatches."
    assert {"used in   outer@1", "outdated  a.b"} <= {*shown}
    assert [(line.split("\t")[1], line.split("\t")[-1]) for line in shown[-3:]] == [*states]


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


@pytest.mark.parametrize(
    ("width", "hashes"), [(60, set[str]()), (80, {"SPEC", "3f1c7a52d8e9", "STAR", "5d97110765e0"})]
)
def test_versions_on_a_narrow_terminal_wrap_between_words(
    platform: ScriptedPlatform, width: int, hashes: set[str]
) -> None:
    made = {"hash": "3f1c7a52d8e9", "star": "5d97110765e0", "created_by": "local", "created_at": "2026-11-20T11:12:01Z"}
    version = {"version": 1, "state": "superseded", "proof": {"state": "unproven"}, "spec": {}, **made}
    team: dict[str, Any] = {"name": "watch", "version": 1, "state": "draft", "reason": "", "purpose": "", "members": []}
    platform.answers = {
        "/v1/teams/watch": {**team, "degraded_members": {}},
        "/v1/teams/watch/versions": {"versions": [version]},
    }

    with (
        new_workspace(STARLING_URL=platform.url, TZ="UTC") as workspace,
        Terminal.running(workspace, "team", "show", "watch", width=width) as terminal,
    ):
        assert terminal.end() == 0

    words = {*terminal.shown.split()}
    assert {"VERSION", "superseded", "2026-11-20", "11:12:01", "unproven"} <= words
    assert words & {"SPEC", "3f1c7a52d8e9", "STAR", "5d97110765e0"} == hashes


@pytest.mark.parametrize("width", [60, 80])
def test_history_on_a_narrow_terminal_has_two_lines_for_each_change(platform: ScriptedPlatform, width: int) -> None:
    detail = {"version": 1, "goal": "Watch the disk.", "run_id": RUN}
    change = {"at": "2026-11-20T11:12:01Z", "action": "team.build", "by": "k7m2p9", "origin": "architect"}
    platform.answers = {"/v1/teams/watch/history": {"name": "watch", "changes": [{**change, "detail": detail}]}}

    with (
        new_workspace(STARLING_URL=platform.url, TZ="UTC") as workspace,
        Terminal.running(workspace, "team", "history", "watch", width=width) as terminal,
    ):
        assert terminal.end() == 0

    first, *details = terminal.shown.splitlines()
    assert first == "2026-11-20 11:12:01 UTC  build 1  by k7m2p9 from architect"
    assert " ".join(" ".join(details).split()) == f"goal Watch the disk., run id {RUN}"
    assert max(map(len, details)) <= width


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
