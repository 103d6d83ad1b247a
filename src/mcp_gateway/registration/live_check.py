"""The tools of an open session: listed before its first call, and again when its server says that they changed."""

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakKeyDictionary

from mcp_gateway.registration.approved_tools import LiveReview
from mcp_gateway.registration.discovery import list_server
from mcp_gateway.registration.known_servers import KnownServer
from mcp_gateway.registration.listed_tools import definition_hashes
from mcp_gateway.sessions.session import Session
from starling.core.errors import ServerUnavailableError

DEBOUNCE_SECONDS: Final = 1.0  # after the first of several notifications
AGAIN_SECONDS: Final = 10.0  # between two listings on one session
_SPREAD: Final = (
    0.5  # of each delay, at most, by which it is longer: servers that change together aren't listed together
)


@dataclass(frozen=True, slots=True)
class LiveTools:
    """The hashes of what is offered on a session, and approved hashes that its server's policy lets change, by tool."""

    offered: Mapping[str, str]
    followed: Mapping[str, str] = field(default_factory=dict[str, str])

    def refusal(self, server: str, tool: str, approved: str) -> str:
        """Return why a tool can't be called by its approved definition, empty if it can."""
        offered = self.offered.get(tool)
        if offered is None:
            return "Its server doesn't offer it any more."
        if approved in (offered, self.followed.get(tool)):
            return ""
        return f"Its server changed it. `starling server approve {server} {tool}` shows how."


@dataclass(slots=True)
class _Listings:
    """The present or last listing of a session, and the timer of the next."""

    task: asyncio.Task[LiveTools]
    begun: float
    timer: asyncio.TimerHandle | None = None


class LiveCheck:
    """Lists the tools of each session before its first call. `seconds` bounds one listing."""

    def __init__(self, review: LiveReview, seconds: float) -> None:
        self._review = review
        self._seconds = seconds
        self._listings: WeakKeyDictionary[Session, _Listings] = WeakKeyDictionary()
        self._tasks: set[asyncio.Task[LiveTools]] = set()

    def begin(self, session: Session, server: KnownServer) -> _Listings:
        """Begin to list the tools of a session unless that was done. A failure is raised by `tools`."""
        if (known := self._listings.get(session)) is not None:
            return known
        listings = self._list(session, server)
        session.on_tools_changed = lambda: self._list_soon(session, server)
        return listings

    async def tools(self, session: Session, server: KnownServer) -> LiveTools:
        """Return what is offered on a session. Raises ServerUnavailableError if it can't be listed."""
        task = self.begin(session, server).task
        return task.result() if task.done() else await asyncio.shield(task)

    def relist(self, name: str) -> None:
        """List the tools of a server's sessions again soon, and store whatever differs then."""
        self._review.expect_changes(name)
        for session in list(self._listings):
            if session.server == name:
                session.on_tools_changed()

    async def stop(self) -> None:
        """Stop listing."""
        for listings in self._listings.values():
            if listings.timer is not None:
                listings.timer.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._review.stop()

    def _list_soon(self, session: Session, server: KnownServer) -> None:
        listings = self._listings[session]
        if listings.timer is None:
            loop = asyncio.get_running_loop()
            delay = delay_before_listing(loop.time() - listings.begun)
            listings.timer = loop.call_later(delay, lambda: session.usable and self._list(session, server))

    def _list(self, session: Session, server: KnownServer) -> _Listings:
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._listed(session, server), name=f"list {session.server}")
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        listings = self._listings[session] = _Listings(task, loop.time())
        return listings

    def _ended(self, task: asyncio.Task[LiveTools]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # read here, for a session on which nothing is called

    async def _listed(self, session: Session, server: KnownServer) -> LiveTools:
        try:
            async with asyncio.timeout(self._seconds):
                listed = await list_server(session, server.tools)
        except TimeoutError:
            session.stop()
            reason = f"it didn't list its tools within {self._seconds:g} s."
            remedy = "Read its own log to see what takes it so long."
            raise ServerUnavailableError(session.server, reason, remedy) from None
        offered = await asyncio.to_thread(definition_hashes, listed.tools)
        if offered == server.tools:
            return LiveTools(offered)
        return LiveTools(offered, await self._review.followed(session.server, server.config.hash, listed))


def delay_before_listing(elapsed: float) -> float:
    """Return the seconds until a server whose tools changed is listed again, so long after the last listing."""
    return max(DEBOUNCE_SECONDS, AGAIN_SECONDS - elapsed) * random.uniform(1, 1 + _SPREAD)  # noqa: S311 - jitter
