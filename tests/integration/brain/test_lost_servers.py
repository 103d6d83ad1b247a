"""Servers and tools that are lost during a run: the next decision is told, and the answer names them."""

from contextlib import ExitStack
from dataclasses import replace
from functools import partialmethod
from pathlib import Path

import pytest

from mcp_gateway.sessions import breakers
from mcp_gateway.sessions.breakers import ServerBreakers
from starling.infra.postgres.audit import Actor
from tests.integration.brain.conftest import Open
from tests.support.gateway_harness import SERVERS, python
from tests.support.platform import (
    BENCH,
    SHOP,
    Platform,
    ScriptedModel,
    Workbench,
    calls,
    decision,
    running_workbench,
    task,
    verdict,
)

ADMIN = Actor.local("test")
LOOK = calls(("look", {"thing": "disk"}))


def cards(platform: Platform, number: int) -> str:
    """What the supervisor was shown of the agents in a decision."""
    said: str = platform.requests_containing("You supervise agents")[number]["messages"][1]["content"]
    return said.partition("<agents>")[2].partition("</agents>")[0]


def card(platform: Platform, number: int, name: str) -> str:
    return next(line for line in cards(platform, number).splitlines() if f'name="{name}"' in line)


async def test_server_that_dies_during_a_run_is_degraded_in_the_next_decision(
    opened: Open, script: ScriptedModel, workbench: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An open breaker stays open: on a slow machine its first second may pass before the next decision.
    monkeypatch.setattr(breakers, "_FREE_FAILURES", 2)  # how many one task makes depends on when the session ends
    monkeypatch.setattr(ServerBreakers, "__init__", partialmethod(ServerBreakers.__init__, now=lambda: 0.0))
    script.supervisor(decision(task("t1", BENCH, "look at the disk")), decision(task("t1", BENCH, "look again")))
    script.agent("t1", replace(LOOK, hold="alive"), LOOK)
    script.reviewer(verdict("APPROVED"))
    with ExitStack() as stack:
        own = stack.enter_context(running_workbench(tmp_path / "own"))
        servers = {"bench": own.as_server("read"), "shop": workbench.as_server("read")}
        async with opened(servers=servers) as platform:
            key = await platform.accept("Look.")
            async with platform.executing(key) as execution:
                await platform.model.received(2)
                stack.close()
                platform.model.release("alive")
                await execution
            stream = await platform.stream(key)

    metrics = platform.services.storage.metrics.metrics.registry
    assert (metrics.get_sample_value("starling_server_failures_total", {"server": "bench"}) or 0) >= 2
    assert 'state="ready"' in card(platform, 0, BENCH)
    assert 'state="degraded"' in card(platform, 1, BENCH)
    assert 'state="ready"' in card(platform, 1, SHOP)
    assert "Not answered: look again (MCP server 'bench': it can't be reached" in stream.reply


async def test_agent_whose_tools_are_all_quarantined_can_not_work(
    platform: Platform, script: ScriptedModel, tmp_path: Path
) -> None:
    script.supervisor(decision(reply="Fine."))
    registry, words = platform.services.registry, tmp_path / "words"
    config = {"changing": python(SERVERS / "misbehaving.py", "changing", str(words))}
    words.write_text("Does it.")
    await registry.reload(config, ADMIN)
    key = await platform.accept("Act.")
    words.write_text("Does it, says the new version.")
    await registry.reload(config, ADMIN, relist=True)

    await platform.finish(key)

    assert "None of its tools can be called now (act: quarantined)" in card(platform, 0, "mcp_agent_changing")
