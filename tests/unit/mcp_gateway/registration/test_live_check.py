"""How many open sessions are listed at a time, and when they are listed again."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest

from mcp_gateway.configuration.servers import server_of
from mcp_gateway.registration.approved_tools import LiveReview
from mcp_gateway.registration.known_servers import KnownServer
from mcp_gateway.registration.listed_tools import definition_hash
from mcp_gateway.registration.listing_schedule import AT_ONCE
from mcp_gateway.registration.live_check import AGAIN_SECONDS, DEBOUNCE_SECONDS, LiveCheck, delay_before_listing
from mcp_gateway.sessions.session import Session, ToolsPage
from starling.core.tools import ServerListing

ACT: dict[str, Any] = {"name": "act", "description": "Does it.", "inputSchema": {"type": "object"}}


class Open:
    """A session that answers once the test lets it."""

    server, info = "a", None

    def __init__(self) -> None:
        self.is_asked = False
        self.may_answer = asyncio.Event()

    async def page(self, _: str | None) -> ToolsPage:
        self.is_asked = True
        await self.may_answer.wait()
        return ToolsPage(tools=[ACT])


class Unused:
    async def stop(self) -> None:
        pass


@pytest.fixture
async def live() -> AsyncGenerator[LiveCheck]:
    check = LiveCheck(cast("LiveReview", Unused()), 60)
    yield check
    await check.stop()


@pytest.fixture
def server() -> KnownServer:
    config = server_of({"command": "true"})
    return KnownServer(config, ServerListing("a", "", config.hash, "ready"), {"act": definition_hash(ACT)})


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def asked(sessions: list[Open]) -> int:
    return sum(session.is_asked for session in sessions)


async def test_wave_of_sessions_is_listed_a_few_at_a_time(live: LiveCheck, server: KnownServer) -> None:
    sessions = [Open() for _ in range(3 * AT_ONCE)]
    for session in sessions:
        live.begin(cast("Session", session), server)
    await settled()
    at_first = asked(sessions)
    for session in sessions[:4]:
        session.may_answer.set()
    await asyncio.gather(*(live.tools(cast("Session", session), server) for session in sessions[:4]))
    await settled()

    assert (at_first, asked(sessions)) == (AT_ONCE, AT_ONCE + 4)


async def test_listing_that_a_call_waits_for_runs_at_once(live: LiveCheck, server: KnownServer) -> None:
    sessions = [Open() for _ in range(3 * AT_ONCE)]
    for session in sessions[:-1]:
        live.begin(cast("Session", session), server)
    calling = [asyncio.ensure_future(live.tools(cast("Session", session), server)) for session in sessions[-2:]]
    await settled()

    assert [session.is_asked for session in sessions[-3:]] == [False, True, True]
    for session in sessions[-2:]:
        session.may_answer.set()
    assert [found.offered for found in await asyncio.gather(*calling)] == [server.tools] * 2


async def test_servers_that_change_together_are_not_listed_again_together() -> None:
    delays = [delay_before_listing(elapsed) for elapsed in (0.0, 5.0, 60.0) for _ in range(20)]

    assert len(set(delays)) > 50
    assert min(delays[:20]) >= AGAIN_SECONDS
    assert DEBOUNCE_SECONDS <= min(delays[40:]) <= max(delays[40:]) < 2 * DEBOUNCE_SECONDS
