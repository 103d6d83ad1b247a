"""What a new user does first: `starling init` at a terminal, and `starling server enable`."""

import re
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal

from tests.support.command_line import CliWorkspace, new_workspace
from tests.support.documented_commands import ROOT
from tests.support.gateway_harness import SERVERS
from tests.support.model_script import Answer
from tests.support.model_server import Body, ModelServer
from tests.support.terminal import Terminal

KEY = "sk-" + "a1" * 20


@contextmanager
def served(*answers: Answer, pulled: Sequence[str] | None = None) -> Generator[ModelServer]:
    """Serve these answers, then `ok` to every request."""
    waiting = [*answers]

    async def answer(_: Body) -> Answer:
        return waiting.pop(0) if waiting else Answer("ok")

    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(ModelServer(answer, pulled=pulled)) as server,
    ):
        yield server


@contextmanager
def asked(**variables: str) -> Generator[tuple[CliWorkspace, Terminal]]:
    """`starling init` at a terminal, in a new folder and without a model in the environment."""
    with (
        new_workspace(STARLING_MODEL="", **variables) as workspace,
        Terminal.running(workspace, "init", width=200) as terminal,
    ):
        yield workspace, terminal


def test_refused_key_is_told_and_the_next_one_is_used_and_only_in_a_private_file() -> None:
    with served(Answer(status=401)) as server, asked(OLLAMA_HOST="127.0.0.1:9") as (workspace, terminal):
        for key, asks in (("sk-wrong", "Use it all the same? [y/N]"), (KEY, "Next: ")):
            terminal.until("Number [1]:")
            terminal.type("1\n")
            terminal.until("Key (not shown):")
            terminal.type(f"{key}\n")
            terminal.until("Address [https://api.openai.com/v1]:")
            terminal.type(f"{server.url}\n")
            terminal.until("Model [gpt-4.1-mini]:")
            terminal.type("scripted\n")
            shown = terminal.until(asks)
            terminal.raw = b""
            if key != KEY:
                assert "401" in shown
                assert "OPENAI_API_KEY" in shown or "key" in shown
                terminal.type("n\n")
        code = terminal.end()
        found = workspace.json("doctor")
        keys = workspace.folder / "starling.env"

        assert (code, KEY in shown, "sk-wrong" in shown) == (0, False, False)
        assert (keys.stat().st_mode & 0o777, KEY in keys.read_text()) == (0o600, True)
        assert "sk-" not in (workspace.folder / "starling.yaml").read_text()
        assert {one["state"] for one in found if one["subject"].startswith("model ")} == {"ok"}
        assert server.requests[-1].headers["Authorization"] == f"Bearer {KEY}"


def test_key_of_the_environment_is_used_and_not_asked_for() -> None:
    with served() as server, asked(OLLAMA_HOST="127.0.0.1:9", OPENAI_API_KEY=KEY) as (workspace, terminal):
        for question, answer in (
            ("Number [1]:", "1"),
            ("Address [", server.url),
            ("Model [gpt-4.1-mini]:", "scripted"),
        ):
            terminal.until(question)
            terminal.type(f"{answer}\n")
        terminal.until("Next: ")

        assert terminal.end() == 0
        assert not (workspace.folder / "starling.env").exists()
        assert server.requests[-1].headers["Authorization"] == f"Bearer {KEY}"


def test_ollama_that_answers_at_its_host_is_proposed_and_tried() -> None:
    with served(pulled=["qwen3:8b"]) as server:
        with asked(OLLAMA_HOST=server.root.removeprefix("http://")) as (workspace, terminal):
            terminal.until("Number [2]:")
            terminal.type("\n")
            terminal.until("Model [qwen3:8b]:")
            terminal.type("\n")
            terminal.until("Next: ")

            assert terminal.end() == 0
            assert 'model: "ollama:qwen3:8b"' in (workspace.folder / "starling.yaml").read_text()
            assert not (workspace.folder / "starling.env").exists()

        assert [body["model"] for body in server.bodies] == ["qwen3:8b"]


def test_fixed_rules_that_are_chosen_need_no_key() -> None:
    with asked(OLLAMA_HOST="127.0.0.1:9") as (workspace, terminal):
        terminal.until("none, only fixed rules")
        terminal.until("Number [1]:")
        terminal.type("3\n")
        terminal.until("Next: ")

        assert terminal.end() == 0
        assert 'model: "offline:rules"' in (workspace.folder / "starling.yaml").read_text()
        assert not (workspace.folder / "starling.env").exists()


def test_variables_of_the_environment_win_over_the_file_and_a_wrong_line_is_named() -> None:
    with new_workspace(LOG_LEVEL="DEBUG") as workspace:
        (workspace.folder / "starling.env").write_text("# one\n\nLOG_LEVEL=NONE\nPORT=many\n")
        wrong_value = workspace.starling("doctor")
        (workspace.folder / "starling.env").write_text("PORT\n")
        wrong_line = workspace.starling("doctor")
        (workspace.folder / "starling.env").write_text("PORT=80\0\n")
        zero_byte = workspace.starling("doctor")

    assert (wrong_value.returncode, "PORT: " in wrong_value.stderr, "LOG_LEVEL: " in wrong_value.stderr) == (
        2,
        True,
        False,
    )
    for said in (wrong_line, zero_byte):
        assert (said.returncode, "starling.env is wrong: line 1" in said.stderr) == (2, True)


def test_request_of_getting_started_is_answered_with_what_init_wrote(workspace: CliWorkspace) -> None:
    page = (ROOT / "docs/guides/getting-started.md").read_text("utf-8").partition("## Send requests")[2]
    request = re.search(r"starling ask '(.+)'", page)
    assert request
    workspace.starling("init")

    with workspace.running("up", "--port", "0"):
        answered = workspace.starling("ask", request[1])

    assert answered.returncode == 0, answered.stdout + answered.stderr
    assert "Not answered" not in answered.stdout


FILE = """\
{{
  "mcpServers": {{
    // "disabled": true
    "other": {{"disabled": true, "command": "no-such-command", "args": ["\\"disabled\\": true"]}},
    "recorder": {{"command": {python}, "args": {args},  "disabled" :true,}}, // mine
  }},
}}
"""


@pytest.fixture
def file(workspace: CliWorkspace) -> Path:
    file = workspace.folder / "mcp.json"
    args = f'["{SERVERS / "recording.py"}", "{workspace.folder / "record"}"]'
    file.write_text(FILE.format(python=f'"{sys.executable}"', args=args))
    return file


def test_disabled_server_of_the_file_is_tried_enabled_and_in_the_next_epoch(
    workspace: CliWorkspace, file: Path
) -> None:
    before = file.read_text()
    workspace.json("registry", "reload")

    done = workspace.starling("server", "enable", "recorder")
    again = workspace.starling("server", "enable", "recorder")

    assert done.stdout.startswith("recorder is in epoch 2, with "), done.stderr
    assert again.stdout == done.stdout
    assert file.read_text() == before.replace('"disabled" :true', '"disabled" :false')
    assert [server["name"] for server in workspace.json("server", "list")] == ["recorder"]


def test_server_that_is_unknown_or_does_not_start_is_refused_and_the_file_kept(
    workspace: CliWorkspace, file: Path
) -> None:
    before = file.read_text()

    unknown, broken = (workspace.starling("server", "enable", name) for name in ("nobody", "other"))

    assert (unknown.returncode, "mcp.json has these: other, recorder." in unknown.stderr) == (2, True)
    assert (broken.returncode, "'no-such-command' was not found" in broken.stderr) == (1, True)
    assert file.read_text() == before


def test_server_is_enabled_in_the_file_where_nothing_runs() -> None:
    with new_workspace() as workspace:
        workspace.starling("init")
        file = workspace.folder / "mcp.json"
        file.write_text(
            file.read_text().replace('"effect": "read"},\n    },', '"effect": "read"}, "disabled": true,\n    },', 1)
        )

        done = workspace.starling("server", "enable", "system_health")

        assert "system_health is enabled in mcp.json, with " in done.stdout, done.stderr
        assert '"disabled": false,' in file.read_text()
