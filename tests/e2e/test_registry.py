"""`starling registry`, as real processes."""

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.command_line import SYSTEM_HEALTH, Home, new_home, server_file
from tests.support.gateway import wait_for


@pytest.fixture
def home(database_url: str) -> Generator[Home]:
    """A home with a migrated database of this test's own."""
    with new_home(DATABASE_URL=database_url) as home:
        yield home


def planned(home: Home, file: Path) -> tuple[int, dict[str, Any]]:
    done = home.starling("registry", "plan", "--json", "--mcp-config", file)
    return done.returncode, json.loads(done.stdout)


@pytest.mark.timeout(180)  # each command is a process that imports everything
def test_plan_reload_list_and_rollback(home: Home) -> None:
    file = server_file(home, health=SYSTEM_HEALTH)

    code, report = planned(home, file)
    assert (code, report["epoch"], report["changes"]["servers"]["added"]) == (10, 0, ["health"])
    done = home.json("registry", "reload", "--mcp-config", file)
    assert (done["epoch"], done["changes"]) == (1, report["changes"])
    assert planned(home, file)[0] == 0

    server_file(home)
    assert "- server health" in home.starling("registry", "reload", "--mcp-config", file).stdout
    assert home.json("registry", "rollback")["changes"]["servers"]["added"] == ["health"]
    home.json("agent", "create", "--name", "poet")
    listed = home.starling("registry", "list").stdout.splitlines()
    changes = [["4", "+agent default/poet"], ["3", "+health"], ["2", "-health"], ["1", "+health"]]
    assert [line.split("\t")[0::5] for line in listed[1:]] == changes
    assert {epoch["created_at"][10] for epoch in home.json("registry", "list")} == {"T"}
    assert home.starling("registry", "rollback", "9" * 20).returncode == 2


def test_a_bad_file_is_refused_with_nothing_changed(home: Home) -> None:
    file = home.folder / "mcp.json"
    file.write_text('{"mcpServers": {"a": {"command": 1}}}')

    for command in ("plan", "reload"):
        done = home.starling("registry", command)

        assert done.returncode == 2
        assert "mcpServers.a.command" in done.stderr
    assert home.json("registry", "list") == []


def test_without_a_file_it_is_said_how_to_name_one(home: Home) -> None:
    done = home.starling("registry", "plan")

    assert done.returncode == 2
    assert "--mcp-config" in done.stderr


@pytest.mark.timeout(180)
async def test_a_platform_follows_its_file_and_other_processes(home: Home) -> None:
    file = server_file(home, health=SYSTEM_HEALTH)

    with home.running("up", "--port", "0", "--watch", "--mcp-config", file) as platform:

        def ready() -> tuple[int, set[str]]:
            found = httpx.get(f"{platform.url}/ready", trust_env=False).json()
            return found["epoch"], {server["name"] for server in found["servers"]}

        assert ready() == (1, {"health"})
        server_file(home, health=SYSTEM_HEALTH, other=SYSTEM_HEALTH)
        await wait_for(lambda: ready() == (2, {"health", "other"}), seconds=30)

        assert home.json("registry", "rollback")["epoch"] == 3
        assert ready() == (3, {"health"})
