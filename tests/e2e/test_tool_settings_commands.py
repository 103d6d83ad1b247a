"""`starling server tool`: what it shows and sets, and where else settings of tools are named."""

import json
import sys

import pytest

from tests.support.command_line import CliWorkspace
from tests.support.gateway_harness import SERVERS


@pytest.fixture
def workspace(workspace: CliWorkspace) -> CliWorkspace:
    args = [str(SERVERS / "recording.py"), str(workspace.folder / "record")]
    document = {"mcpServers": {"recorder": {"command": sys.executable, "args": args}}}
    (workspace.folder / "mcp.json").write_text(json.dumps(document))
    return workspace


def test_settings_of_a_tool_are_set_shown_and_taken_back(workspace: CliWorkspace) -> None:
    workspace.starling("registry", "reload")
    tool = ("server", "tool", "recorder", "record")

    done = workspace.json(*tool, "--set", "timeout=7", "--set", "description=Writes.", "--set", "error_when=[]")
    shown = workspace.starling(*tool)
    plan = workspace.starling("registry", "plan")
    server = workspace.starling("server", "show", "recorder")
    back = workspace.json(*tool, "--unset", "timeout", "--unset", "error_when")
    wrong = workspace.starling(*tool, "--set", "retries=3")

    assert done["settings"] == {"timeout": 7.0, "description": "Writes.", "error_when": []}
    assert "timeout\t7.0\ttool_settings" in shown.stdout
    kept = "description, error_when, timeout"
    assert f"= recorder.record keeps settings of its own, which win over the file: {kept}" in plan.stdout
    assert f"record has settings of its own, which win over the configuration: {kept}" in server.stdout
    assert back["settings"] == {"description": "Writes."}
    assert "retries: there is no such field" in wrong.stderr
