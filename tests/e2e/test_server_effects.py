"""Effects that a server's annotations propose: on a terminal, in scripts, and for a server of a file."""

import json
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.command_line import STARLING, CliWorkspace, new_workspace
from tests.support.gateway_harness import SERVERS
from tests.support.terminal import Terminal


@pytest.fixture
def workspace(database_url: str) -> Generator[CliWorkspace]:
    with new_workspace(DATABASE_URL=database_url) as workspace:
        yield workspace


def recorder(workspace: CliWorkspace) -> tuple[str | Path, ...]:
    return sys.executable, SERVERS / "recording.py", workspace.folder / "record"


def effects(workspace: CliWorkspace, name: str) -> dict[str, str]:
    return workspace.json("server", "effects", name)["effects"]


def test_effects_are_proposed_by_add_and_set_when_confirmed(workspace: CliWorkspace) -> None:
    added = workspace.starling("server", "add", "recorder", "--", *recorder(workspace))
    before = effects(workspace, "recorder")
    shown = workspace.starling("server", "effects", "recorder", "--propose")
    confirmed = workspace.starling("server", "effects", "recorder", "--propose", "--yes")
    after = effects(workspace, "recorder")
    nothing = workspace.starling("server", "effects", "recorder", "--propose")

    proposed = "pid\tread\treadOnlyHint true\nNot set: `--yes` sets these effects."
    assert (proposed in added.stderr, proposed in shown.stderr) == (True, True)
    assert (before["pid"], after["pid"], after["record"]) == ("unsafe", "read", "unsafe")
    assert "recorder has these effects in epoch 2: pid read." in confirmed.stdout
    assert "propose no other effect" in nothing.stdout


@pytest.mark.parametrize(("answer", "effect"), [("y", "read"), ("n", "unsafe")])
def test_terminal_is_asked_before_proposed_effects_are_set(workspace: CliWorkspace, answer: str, effect: str) -> None:
    command = (STARLING, "server", "add", "recorder", "--", *recorder(workspace))
    with Terminal.running(command, folder=workspace.folder, environment=workspace.environment) as terminal:
        terminal.until("Set these effects? [y/N]")
        terminal.type(f"{answer}\n")
        terminal.until("recorder is in epoch")

    assert effects(workspace, "recorder")["pid"] == effect


def test_yes_sets_proposed_effects_and_an_effect_of_the_admin_has_no_proposals(workspace: CliWorkspace) -> None:
    at_once = workspace.json("server", "add", "at_once", "--yes", "--", *recorder(workspace))
    own = workspace.json("server", "add", "own", "--effect", "idempotent", "--", *recorder(workspace))

    assert {item["tool"]: item["effect"] for item in at_once["proposed"]}["pid"] == "read"
    assert effects(workspace, "at_once")["pid"] == "read"
    assert (own["proposed"], set(effects(workspace, "own").values())) == ([], {"idempotent"})


def test_effects_of_a_server_of_a_file_are_shown_as_its_configuration(workspace: CliWorkspace) -> None:
    command, *arguments = map(str, recorder(workspace))
    options = {"timeout": 9, "tools": {"record": {"approval": "always"}}}
    servers = {"recorder": {"command": command, "args": arguments, "x-starling": options}}
    (workspace.folder / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    workspace.json("registry", "reload")

    shown = workspace.starling("server", "effects", "recorder", "--propose", "--yes")

    text = "{" + shown.stdout.partition("{")[2]
    said = {"timeout": 9, "tools": {"record": {"approval": "always"}, "pid": {"effect": "read"}}}
    assert json.loads(text) == said
    assert effects(workspace, "recorder")["pid"] == "unsafe"


def test_options_of_add_are_in_the_stored_configuration(workspace: CliWorkspace) -> None:
    options = ("--description", "Keeps a record.", "--approval", "always", "--timeout", "7", "--effect", "read")

    workspace.json("server", "add", "recorder", *options, "--", *recorder(workspace))

    shown = workspace.json("server", "show", "recorder")
    stored = shown["config"]["x-starling"]
    assert (stored["description"], stored["approval"], stored["timeout"]) == ("Keeps a record.", "always", 7)
