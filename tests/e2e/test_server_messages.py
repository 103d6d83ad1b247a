"""What a server says during its calls, as events of the run over HTTP and on the command line."""

import json
from collections.abc import Generator

import pytest

from tests.support.command_line import CliWorkspace, new_workspace, server_file
from tests.support.gateway_harness import TOOLS
from tests.support.model_script import Answer, Rule, When
from tests.support.model_server import model_process, model_variables
from tests.support.platform import calls, decision, task, verdict
from tests.support.terminal import Terminal

_SCRIPT = TOOLS / "node/node_modules/.bin/mcp-server-everything"
_RULES = (
    Rule(decision(task("t1", "mcp_agent_everything", "take a while")), When(schema="supervisor_decision")),
    Rule(verdict("APPROVED", "fits"), When(schema="verdict")),
    Rule(
        calls(
            ("toggle-simulated-logging", {}),  # which logs a message at once
            ("trigger-long-running-operation", {"duration": 1, "steps": 4}),
        ),
        When(contains='<task id="t1">', tool="trigger-long-running-operation"),
    ),
    Rule(Answer("It took a while [1].")),
)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Generator[CliWorkspace]:
    """A folder whose platform has the reference server that reports progress and logs."""
    if not _SCRIPT.exists():
        pytest.skip(f"no {_SCRIPT}: run scripts/node-servers")
    server = {"command": str(TOOLS.parent / "bin/node"), "args": [str(_SCRIPT)], "x-starling": {"effect": "read"}}
    with (
        model_process(tmp_path_factory.mktemp("model"), *_RULES) as url,
        new_workspace(**model_variables(url)) as workspace,
        workspace.running("up", "--port", "0", "--mcp-config", server_file(workspace, everything=server)),
    ):
        yield workspace


def test_progress_and_log_of_a_real_server_are_events_and_shown_by_commands(workspace: CliWorkspace) -> None:
    asked = workspace.starling("ask", "Take a while.", "--json")
    events = [json.loads(line) for line in asked.stdout.splitlines()]
    reports = [event for event in events if event["type"] == "tool_progress"]
    [log] = [event for event in events if event["type"] == "tool_log"]

    assert [(event["progress"], event["total"]) for event in reports] == [(step, 4) for step in (1, 2, 3, 4)]
    assert {event["name"] for event in reports} == {"everything.trigger-long-running-operation"}
    assert log["message"]

    tailed = workspace.starling("run", "tail", "last").stdout
    assert "everything.trigger-long-running-operation: 2 of 4" in tailed
    assert f"{log['name']} logs {log['level']}: {log['message']}" in tailed

    shown = workspace.starling("run", "show", "last").stdout
    assert f"logs {log['level']}: {log['message']}" in shown


def test_progress_of_a_call_is_shown_at_its_line_on_a_terminal(workspace: CliWorkspace) -> None:
    with Terminal.running(workspace, "ask", "Take a while.") as terminal:
        terminal.until(": 2 of 4")
        code = terminal.end()

    assert code == 0, terminal.shown
    assert "✓ everything.trigger-long-running-operation(duration=1, steps=4): Long running" in terminal.shown
