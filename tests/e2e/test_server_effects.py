"""Effects that a server's annotations propose: on a terminal, in scripts, and for a server of a file."""

import json
import sys
from pathlib import Path

import pytest

from tests.support.command_line import CliWorkspace
from tests.support.gateway_harness import SERVERS
from tests.support.terminal import Terminal


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
    with Terminal.running(workspace, "server", "add", "recorder", "--", *recorder(workspace)) as terminal:
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


OPTIONS = {"timeout": 9, "tools": {"record": {"approval": "always"}}}
PROPOSED = {"timeout": 9, "tools": {"record": {"approval": "always"}, "pid": {"effect": "read"}}}


def server_of_a_file(workspace: CliWorkspace, *, comment: str = "") -> Path:
    """Put the recorder into a file."""
    command, *arguments = map(str, recorder(workspace))
    server = {"command": command, "args": arguments, "x-starling": OPTIONS}
    file = workspace.folder / "mcp.json"
    file.write_text(comment + json.dumps({"mcpServers": {"recorder": server}}))
    file.chmod(0o640)
    workspace.json("registry", "reload")
    return file


def test_effects_of_a_server_of_a_file_are_written_into_it(workspace: CliWorkspace) -> None:
    file = server_of_a_file(workspace)
    before = file.read_text()

    shown = workspace.starling("server", "effects", "recorder", "--propose")
    unchanged = file.read_text()
    done = workspace.starling("server", "effects", "recorder", "--propose", "--yes")

    written = json.loads(before)
    written["mcpServers"]["recorder"]["x-starling"] = PROPOSED
    assert (unchanged, file.read_text()) == (before, json.dumps(written, indent=2) + "\n")
    assert (shown.returncode, "Not written: `--yes` writes this to" in shown.stderr) == (0, True)
    assert '+          "pid": {' in done.stderr
    assert "recorder has these effects in epoch 2: pid read." in done.stdout
    assert effects(workspace, "recorder")["pid"] == "read"
    assert (file.stat().st_mode & 0o777, list(workspace.folder.glob(".mcp*"))) == (0o640, [])


@pytest.mark.parametrize(
    ("comment", "timeout", "reason"),
    [
        pytest.param("// mine\n", 9, "has comments, or commas that JSON does not allow", id="comments"),
        pytest.param("", 8, "has no server recorder with the configuration that is in use", id="not-in-use"),
    ],
)
def test_effects_are_only_shown_where_the_file_has_comments_or_is_not_in_use(
    workspace: CliWorkspace, comment: str, timeout: int, reason: str
) -> None:
    file = server_of_a_file(workspace, comment=comment)
    changed = file.read_text().replace('"timeout": 9', f'"timeout": {timeout}')
    file.write_text(changed)

    done = workspace.starling("server", "effects", "recorder", "--propose", "--yes")

    assert json.loads("{" + done.stdout.partition("{")[2]) == PROPOSED
    assert reason in done.stderr
    assert "Write this yourself into recorder of its mcpServers, then `starling registry reload`" in done.stderr
    assert (effects(workspace, "recorder")["pid"], file.read_text()) == ("unsafe", changed)


def test_other_changes_of_the_file_are_left_to_a_reload(workspace: CliWorkspace) -> None:
    file = server_of_a_file(workspace)
    file.write_text(file.read_text().replace('"mcpServers": {', '"mcpServers": {"other": {"command": "none"},'))

    done = workspace.starling("server", "effects", "recorder", "--propose", "--yes")

    assert "`starling registry plan` shows what else it changes" in done.stderr
    assert json.loads(file.read_text())["mcpServers"]["recorder"]["x-starling"] == PROPOSED
    assert effects(workspace, "recorder")["pid"] == "unsafe"


def test_options_of_add_are_in_the_stored_configuration(workspace: CliWorkspace) -> None:
    options = ("--description", "Keeps a record.", "--approval", "always", "--timeout", "7", "--effect", "read")

    workspace.json("server", "add", "recorder", *options, "--", *recorder(workspace))

    shown = workspace.json("server", "show", "recorder")
    stored = shown["config"]["x-starling"]
    assert (stored["description"], stored["approval"], stored["timeout"]) == ("Keeps a record.", "always", 7)
