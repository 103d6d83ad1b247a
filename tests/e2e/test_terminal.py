"""`starling ask` and `starling run tail` on a terminal: prompts, the tree of tasks, Ctrl-C."""

import re
import signal
from collections.abc import Generator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace

import pytest

from tests.support.command_line import SYSTEM_HEALTH, CliWorkspace, Service, new_workspace, server_file
from tests.support.effect_recorder import AGENT, EffectRecorder
from tests.support.model_script import Answer, Rule, When
from tests.support.model_server import model_process, model_variables
from tests.support.platform import calls, decision, task, verdict
from tests.support.terminal import Terminal

QUESTION = "How full is this disk?"
GUARDED = SYSTEM_HEALTH | {"x-starling": {"effect": "read", "approval": "always"}}
LARGE_USAGE = (250_000, 10)  # more than the tokens that a run has
TASKS = {"costly": ("read_it", {"what": "it"}), "late": ("charge", {"what": "a", "stall": "before", "gate": "never"})}
RULES = (
    Rule(decision(reply="The second one is fine."), When(schema="supervisor_decision", contains="the second")),
    Rule(
        decision(question="Which disk?", options=["the first", "the second"]),
        When(schema="supervisor_decision", contains="Is the disk fine?"),
    ),
    *(Rule(calls(call), When(contains=f'<task id="{name}">', tool="charge")) for name, call in TASKS.items()),
    Rule(
        replace(decision(task("costly", AGENT)), usage=LARGE_USAGE),
        When(schema="supervisor_decision", contains="Read it at any price."),
    ),
    Rule(decision(task("late", AGENT)), When(schema="supervisor_decision", contains="Charge a.")),
    *(Rule(verdict("APPROVED"), When(schema="verdict", contains=f'<task id="{name}"')) for name in TASKS),
    *(Rule(Answer("It is done [1]."), When(contains=text)) for text in ("Read it at any price.", "Charge a.")),
)


@pytest.fixture(scope="module")
def model_url(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """A model that follows RULES, and else answers as offline:rules."""
    with model_process(tmp_path_factory.mktemp("model"), *RULES, offline_rules=True) as url:
        yield url


@pytest.fixture(scope="module")
def workspace(model_url: str) -> Generator[CliWorkspace]:
    with new_workspace(**model_variables(model_url)) as workspace:
        yield workspace


@pytest.fixture(scope="module", autouse=True)
def platform(workspace: CliWorkspace) -> Generator[Service]:
    servers = {
        "system_health": GUARDED,
        "effects": EffectRecorder(workspace.folder / "effects").as_server(timeout=1),
    }
    with workspace.running("up", "--port", "0", "--mcp-config", server_file(workspace, **servers)) as service:
        yield service


def on_terminal(workspace: CliWorkspace, *arguments: str) -> AbstractContextManager[Terminal]:
    return Terminal.running(workspace, *arguments)


def test_ask_prompts_for_the_approval_of_a_call_and_goes_on(workspace: CliWorkspace) -> None:
    with on_terminal(workspace, "ask", QUESTION) as terminal:
        terminal.until("Approve? [y/N/show] ")
        terminal.type("show\n")
        whole = terminal.until('"name": "system_health.disk"')
        terminal.type("y\n")
        code = terminal.end()

    assert code == 0, terminal.shown
    assert "✓ t1 mcp_agent_system_health: How full is this disk" in terminal.shown
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
    ended = workspace.starling("run", "tail", "last")

    assert code == 130
    assert re.search(r"Run \S+ (has ended: cancelled|is running; its worker will end it)\.", terminal.shown)
    assert "Cancelled: " in ended.stdout


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


def test_ask_goes_on_after_a_restart_of_the_platform() -> None:
    with new_workspace() as workspace, ExitStack() as stack:
        up = ("up", "--mcp-config", server_file(workspace, system_health=GUARDED))
        with workspace.running(*up, "--port", "0") as first:
            terminal = stack.enter_context(on_terminal(workspace, "ask", QUESTION))
            terminal.until("Approve? [y/N/show] ")
            first.stopped_by(signal.SIGTERM)
        with workspace.running(*up, "--port", first.url.rpartition(":")[2]):
            terminal.type("y\n")
            code = terminal.end()

    assert code == 0, terminal.shown
    assert terminal.shown.count("Approve?") == 1
    assert "Succeeded: " in terminal.shown


@pytest.mark.parametrize(
    ("request_text", "prompt", "typed", "reply"),
    [
        ("Is the disk fine?", "Your answer (its number, or Enter to let the run assume one): ", "2", "The second one"),
        ("Read it at any price.", "How many more tokens? [number/N] ", "1,000,000", "It is done [1]."),
        ("Charge a.", "Was the call made? [done/not_done/give_up, Enter: decide later] ", "done", "It is done [1]."),
    ],
)
def test_ask_prompts_for_an_answer_and_the_run_goes_on_with_it(
    workspace: CliWorkspace, request_text: str, prompt: str, typed: str, reply: str
) -> None:
    with on_terminal(workspace, "ask", request_text) as terminal:
        terminal.until(prompt)
        terminal.type(f"{typed}\n")
        code = terminal.end()

    assert code == 0, terminal.shown
    assert reply in terminal.shown
    assert terminal.shown.count(prompt) == 1
    assert "starling run approve" not in terminal.shown


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


def test_chat_is_a_conversation_on_one_thread_that_asks_as_ask_does(workspace: CliWorkspace) -> None:
    with on_terminal(workspace, "chat", "--thread", "talk") as terminal:
        terminal.until("> ")
        terminal.type(f"{QUESTION}\n")
        terminal.until("Approve? [y/N/show] ")
        terminal.type("y\n")
        terminal.until("Succeeded: ")
        terminal.type("Is the disk fine?\n")
        terminal.until("Your answer (")
        terminal.type("2\n")
        terminal.until("The second one")
        terminal.type("\x04")
        code = terminal.end()
    runs = workspace.json("run", "list", "--thread", "talk")

    assert code == 0, terminal.shown
    assert "`starling chat --thread talk` continues it" in " ".join(terminal.shown.split())
    assert [run["input"] for run in runs] == ["Is the disk fine?", QUESTION]


def test_chat_goes_on_after_a_run_was_cancelled_by_ctrl_c(workspace: CliWorkspace) -> None:
    with on_terminal(workspace, "chat") as terminal:
        terminal.until("> ")
        terminal.type(f"{QUESTION}\n")
        terminal.until("Approve? [y/N/show] ")
        terminal.type("\x03")
        terminal.until("or cancel it (c)? ")
        terminal.type("c\n")
        terminal.type("Is the disk fine?\n")
        terminal.until("Your answer (")
        terminal.type("2\n")
        terminal.until("The second one")
        terminal.type("\x04")
        code = terminal.end()

    assert code == 0, terminal.shown


def test_chat_takes_the_lines_of_a_pipe_as_requests(workspace: CliWorkspace) -> None:
    done = workspace.starling("chat", "--thread", "piped", "--yes", stdin=f"{QUESTION}\n\n{QUESTION}\n")

    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Succeeded: ") == 2
    assert "> " not in done.stdout
