"""`starling ask` and `starling run tail` on a terminal: prompts, the tree of tasks, Ctrl-C."""

from collections.abc import Generator
from contextlib import AbstractContextManager

import pytest

from tests.support.command_line import STARLING, SYSTEM_HEALTH, CliWorkspace, Service, new_workspace, server_file
from tests.support.terminal import Terminal

QUESTION = "How full is this disk?"
SERVERS = {"system_health": SYSTEM_HEALTH | {"x-starling": {"effect": "read", "approval": "always"}}}


@pytest.fixture(scope="module")
def workspace() -> Generator[CliWorkspace]:
    with new_workspace() as workspace:
        yield workspace


@pytest.fixture(scope="module", autouse=True)
def platform(workspace: CliWorkspace) -> Generator[Service]:
    with workspace.running("up", "--port", "0", "--mcp-config", server_file(workspace, **SERVERS)) as service:
        yield service


def on_terminal(workspace: CliWorkspace, *arguments: str) -> AbstractContextManager[Terminal]:
    return Terminal.running([STARLING, *arguments], folder=workspace.folder, environment=workspace.environment)


def test_ask_prompts_for_the_approval_of_a_call_and_goes_on(workspace: CliWorkspace) -> None:
    with on_terminal(workspace, "ask", QUESTION) as terminal:
        terminal.until("Approve? [y/N/show] ")
        terminal.type("show\n")
        whole = terminal.until('"name": "system_health.disk"')
        terminal.type("y\n")
        code = terminal.end()

    assert code == 0, terminal.shown
    assert "✓ mcp_agent_system_health: How full is this disk" in terminal.shown
    assert "✓ system_health.disk(): {" in terminal.shown
    assert "Succeeded: " in terminal.shown
    assert whole.count("Approve?") >= 1


def test_enter_refuses_a_call(workspace: CliWorkspace) -> None:
    with on_terminal(workspace, "ask", QUESTION) as terminal:
        terminal.until("Approve? [y/N/show] ")
        terminal.type("\n")
        code = terminal.end()

    assert code == 1
    assert "Not answered" in terminal.shown


def test_ctrl_c_offers_to_cancel_the_run(workspace: CliWorkspace) -> None:
    with on_terminal(workspace, "ask", QUESTION) as terminal:
        terminal.until("Approve? [y/N/show] ")
        terminal.type("\x03")
        terminal.until("or cancel it (c)? ")
        terminal.type("c\n")
        code = terminal.end()

    assert code == 130
    assert "is cancelled: cancelled." in terminal.shown
    assert workspace.json("run", "list")[0]["status"] == "cancelled"


def test_tail_prompts_where_ask_was_left(workspace: CliWorkspace) -> None:
    with on_terminal(workspace, "ask", QUESTION) as terminal:
        terminal.until("Approve? [y/N/show] ")
        terminal.type("\x03")
        terminal.until("or cancel it (c)? ")
        terminal.type("\n")
        left = terminal.end()
    with on_terminal(workspace, "run", "tail", "last") as tail:
        tail.until("Approve? [y/N/show] ")
        tail.type("y\n")
        code = tail.end()

    assert (left, code) == (130, 0)
    assert "The run continues: `starling run tail" in terminal.shown


@pytest.mark.parametrize(("option", "code", "words"), [("--yes", 0, "Succeeded"), ("--no", 1, "Not answered")])
def test_options_answer_without_a_terminal(workspace: CliWorkspace, option: str, code: int, words: str) -> None:
    done = workspace.starling("ask", QUESTION, option)

    assert done.returncode == code, done.stderr
    assert f"Answered by {option}." in done.stdout
    assert words in done.stdout
    assert "\x1b" not in done.stdout


def test_yes_and_no_together_are_refused(workspace: CliWorkspace) -> None:
    done = workspace.starling("ask", QUESTION, "--yes", "--no")

    assert done.returncode == 2
    assert "--yes and --no can't be combined." in done.stderr
