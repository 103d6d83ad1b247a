"""Servers in the platform's own process: functions and FastMCP servers of packages, on the way of all calls."""

import asyncio
import importlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mcp_gateway.configuration.servers import ServerConfig, server_of
from starling.core.tool_calls import CallState, Effect, state_after_answer
from tests.support.gateway_harness import GatewayHarness, call, wait_for

FUNCTIONS = '''
import asyncio
import threading
import time
import starling

barrier, entered, left = threading.Barrier(2), threading.Event(), threading.Event()

@starling.tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b

@starling.tool
def meet() -> str:
    barrier.wait(20)
    return "met"

@starling.tool
async def block() -> str:
    entered.set()
    left.wait(20)
    return "done"

'''
NEVER = """
import threading
import starling

started = threading.Event()

@starling.tool
def hang() -> str:
    started.set()
    threading.Event().wait()
"""
PROGRAM = """
import asyncio
from mcp_gateway.configuration.servers import server_of
from mcp_gateway.sessions.checked_connections import CheckedConnections
from mcp_gateway.sessions import pool
from starling.core.settings.schema import Limits


async def main():
    async with pool.SessionPool(Limits(), {}, CheckedConnections()) as sessions:
        client = await sessions.open_new("a", server_of({"type": "inprocess", "entry_point": "never"})).opened()
        calling = asyncio.get_running_loop().create_task(client.call_tool("hang"))
        import never
        await asyncio.to_thread(never.started.wait)
    calling.cancel()
    print("closed")

asyncio.run(main())
"""

type Install = Callable[..., str]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs a package of one module whose entry point has the module's name."""

    def installed(module: str, text: str, attribute: str = "") -> str:
        folder = tmp_path / module
        information = folder / f"{module}-1.dist-info"
        information.mkdir(parents=True)
        (folder / f"{module}.py").write_text(text)
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1\n")
        (information / "entry_points.txt").write_text(f"[starling.servers]\n{module} = {module}{attribute}\n")
        monkeypatch.syspath_prepend(str(folder))
        return module

    return installed


def in_process(entry_point: str, **options: Any) -> ServerConfig:
    return server_of({"type": "inprocess", "entry_point": entry_point, "x-starling": options})


async def test_functions_that_block_block_neither_each_other_nor_the_platform(
    harness: GatewayHarness, install: Install
) -> None:
    async with harness.listing(in_process(install("blocking_functions", FUNCTIONS))) as (gateway, listing):
        module = importlib.import_module("blocking_functions")
        met = await asyncio.gather(*(call(gateway, listing, "meet") for _ in range(2)))
        blocked = asyncio.ensure_future(call(gateway, listing, "block"))
        await wait_for(module.entered.is_set)
        module.left.set()
        done = await blocked

    assert [outcome.text for outcome in (*met, done)] == ["met", "met", "done"]


async def test_call_that_takes_too_long_is_in_doubt_if_it_may_have_changed_something(
    harness: GatewayHarness, install: Install
) -> None:
    config = in_process(install("slow_functions", FUNCTIONS), tools={"meet": {"timeout": 0.3}})
    async with harness.listing(config) as (gateway, listing):
        late = await call(gateway, listing, "meet")
        after = await call(gateway, listing, "add", a=1)
        importlib.import_module("slow_functions").barrier.abort()

    assert state_after_answer(late.observation, Effect.UNSAFE) is CallState.IN_DOUBT
    assert after.text == "2"


def test_process_ends_though_a_function_never_returns(install: Install, tmp_path: Path) -> None:
    path = str(tmp_path / install("never", NEVER))

    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={"PYTHONPATH": path},
        text=True,
        capture_output=True,
        timeout=60,
        check=False,
    )

    assert (done.returncode, done.stdout) == (0, "closed\n"), done.stderr


@pytest.mark.parametrize(
    ("module", "text", "attribute", "reason"),
    [
        ("raising", "raise ValueError('not today')", "", "can't be used: ValueError: not today."),
        ("leaving", "raise SystemExit(3)", "", "can't be used: SystemExit: 3."),
        ("empty", "number = 3", "", "nothing in it is marked with @starling.tool."),
        ("wanting", "import nothing_of_that_name", "", "No module named 'nothing_of_that_name'."),
        ("missing", "", ":server", "can't be used: AttributeError"),
        ("deeper", "nothing = 1", ":nothing.more", "can't be used: AttributeError"),
        ("interrupting", "raise KeyboardInterrupt", "", "can't be used: KeyboardInterrupt"),
        ("broken", "this is no Python", "", "can't be used: SyntaxError"),
        ("number", "nothing = 1", ":nothing", "nothing in it is marked with @starling.tool."),
        ("none", "server = None", ":server", "nothing in it is marked with @starling.tool."),
        ("failing", "def server():\n    raise ValueError", ":server", "nothing in it is marked with @starling.tool."),
    ],
)
async def test_entry_point_that_cannot_be_served_is_degraded(
    harness: GatewayHarness, install: Install, module: str, text: str, attribute: str, reason: str
) -> None:
    listing = await harness.listed(in_process(install(f"{module}_module", text, attribute)))

    assert listing.state == "degraded"
    assert reason in listing.error
    assert "Install its package" in listing.remedy


async def test_entry_point_that_is_not_installed_is_named(harness: GatewayHarness, install: Install) -> None:
    install("another_server", "")

    listing = await harness.listed(in_process("nobody"))

    assert "no installed package has the entry point 'nobody'" in listing.error
    assert "another_server" in listing.error


async def test_without_fastmcp_the_server_is_degraded_and_says_what_to_install(
    harness: GatewayHarness, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fastmcp", None)

    listing = await harness.listed(in_process(install("without_fastmcp", FUNCTIONS)))

    assert listing.state == "degraded"
    assert "pip install 'starling-swarm[inprocess]'" in listing.error
