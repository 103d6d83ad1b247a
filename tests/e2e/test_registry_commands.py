"""`starling registry` commands."""

import json
import sys
from pathlib import Path
from typing import Any

import httpx

from tests.support.command_line import CliWorkspace, server_file
from tests.support.gateway_harness import SERVERS, wait_for

RECORDER = {"command": sys.executable, "args": [str(SERVERS / "recording.py"), "/dev/null"]}


def planned(workspace: CliWorkspace, file: Path) -> tuple[int, dict[str, Any]]:
    done = workspace.starling("registry", "plan", "--json", "--mcp-config", file)
    return done.returncode, json.loads(done.stdout)


def test_registry_commands_plan_reload_list_and_roll_back(workspace: CliWorkspace) -> None:
    file = server_file(workspace, health=RECORDER)

    code, report = planned(workspace, file)
    assert (code, report["epoch"], report["changes"]["servers"]["added"]) == (10, 0, ["health"])
    done = workspace.json("registry", "reload", "--mcp-config", file)
    assert (done["epoch"], done["changes"]) == (1, report["changes"])
    assert planned(workspace, file)[0] == 0

    server_file(workspace)
    assert "- server health" in workspace.starling("registry", "reload", "--mcp-config", file).stdout
    assert workspace.json("registry", "rollback")["changes"]["servers"]["added"] == ["health"]
    workspace.json("agent", "create", "--name", "poet")
    listed = workspace.starling("registry", "list").stdout.splitlines()
    changes = [["4", "+agent default/poet"], ["3", "+health"], ["2", "-health"], ["1", "+health"]]
    assert [line.split("\t")[0::5] for line in listed[1:]] == changes
    assert {epoch["created_at"][10] for epoch in workspace.json("registry", "list")} == {"T"}
    assert workspace.starling("registry", "rollback", "9" * 20).returncode == 2


def test_plan_prints_agents_and_teams_that_would_lose_their_tools(workspace: CliWorkspace) -> None:
    workspace.json("registry", "reload", "--mcp-config", server_file(workspace, health=RECORDER))
    member = {"name": "watcher", "role": "Watcher", "goal": "Watch.", "server": "health"}
    crew = {"name": "crew", "purpose": "Watches.", "members": [member]}
    (workspace.folder / "crew.json").write_text(json.dumps(crew))
    workspace.json("team", "import", "crew.json", "--activate")
    workspace.json("agent", "create", "--name", "writer", "--tool", "health.record")

    done = workspace.starling("registry", "plan", "--mcp-config", server_file(workspace))

    assert done.returncode == 10
    assert "! agent default/writer can't work then: It needs tools that aren't there: health.record." in done.stdout
    assert "! team default/crew lacks something then: watcher: Its server 'health' was removed." in done.stdout
    assert planned(workspace, server_file(workspace))[1]["broken_teams"].keys() == {"default/crew"}


def test_reload_of_an_invalid_file_changes_nothing(workspace: CliWorkspace) -> None:
    file = workspace.folder / "mcp.json"
    file.write_text('{"mcpServers": {"a": {"command": 1}}}')

    for command in ("plan", "reload"):
        done = workspace.starling("registry", command)

        assert done.returncode == 2
        assert "mcpServers.a.command" in done.stderr
    assert workspace.json("registry", "list") == []


def test_plan_without_a_file_says_how_to_name_one_and_keeps_the_servers(workspace: CliWorkspace) -> None:
    workspace.starling("registry", "reload", "--mcp-config", server_file(workspace, health=RECORDER))

    done = workspace.starling("registry", "plan")

    assert done.returncode == 0
    assert "(--mcp-config): servers stay as they are." in done.stderr


async def test_platform_follows_its_server_file_and_other_processes(workspace: CliWorkspace) -> None:
    file = server_file(workspace, health=RECORDER)

    with workspace.running("up", "--port", "0", "--watch", "--mcp-config", file) as platform:

        def ready() -> tuple[int, set[str]]:
            found = httpx.get(f"{platform.url}/ready", trust_env=False).json()
            return found["epoch"], {server["name"] for server in found["servers"]}

        assert ready() == (1, {"health"})
        server_file(workspace, health=RECORDER, other=RECORDER)
        await wait_for(lambda: ready() == (2, {"health", "other"}), seconds=30)

        assert workspace.json("registry", "rollback")["epoch"] == 3
        assert ready() == (3, {"health"})
