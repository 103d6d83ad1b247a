"""What bounds the memory of server processes: they are measured from time to time, and those beyond a limit closed."""

import asyncio
import logging
import math
from collections.abc import Callable, Collection, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Final

import psutil

from mcp_gateway.sessions.session import Session
from starling.core.settings.schema import Limits


def memory_of(roots: Collection[int], each: float, together: float) -> Mapping[int, int]:
    """Return the resident bytes of the process trees below these children of this process.

    The sum of resident sizes (RSS) costs one read a process, but counts what processes share several times: libraries,
    and what a fork has not changed. Where it exceeds `each` or `together`, the proportional size (PSS) is read, in
    which shared pages are divided; where the system has none, the unshared size (USS).
    """
    if not roots:
        return {}
    trees = _trees(roots)
    resident = {root: sum(map(_resident, processes)) for root, processes in trees.items()}
    if sum(resident.values()) > together:
        return {root: sum(map(_proportional, processes)) for root, processes in trees.items()}
    return {root: sum(map(_proportional, trees[root])) if size > each else size for root, size in resident.items()}


def kill(root: int) -> None:
    """Kill the processes below a child of this process, which reaps them."""
    for process in _trees([root])[root]:
        with suppress(psutil.Error):
            if process.pid != root:
                process.kill()


def _trees(roots: Collection[int]) -> Mapping[int, list[psutil.Process]]:
    """Return the processes of each tree; one scan of all processes."""
    trees: dict[int, list[psutil.Process]] = {root: [] for root in roots}
    tree_of = {root: root for root in roots}
    for process in psutil.Process().children(recursive=True):  # parents before their children
        with suppress(psutil.Error):
            root = tree_of.get(process.pid) or tree_of.get(process.ppid())
            if root is not None:
                tree_of[process.pid] = root
                trees[root].append(process)
    return trees


def _resident(process: psutil.Process) -> int:
    try:
        return process.memory_info().rss
    except psutil.Error:
        return 0  # it has ended


def _proportional(process: psutil.Process) -> int:
    try:
        full = process.memory_full_info()
    except psutil.AccessDenied:  # of another user
        return _resident(process)
    except psutil.Error:
        return 0
    return getattr(full, "pss", full.uss)


BUSY_SECONDS: Final = 2.0  # between two sweeps while a server is called
REST_SECONDS: Final = 60.0  # while none is
_MIB: Final = 2**20
_REMEDY: Final = "Raise `limits.memory_bytes_per_server` if it needs that much, or ask it for less at a time."
_log = logging.getLogger(__name__)


class MemorySweep:
    """Ends each server that uses more memory than it may, and closes idle sessions while all use more together.

    There is no sweep while no process runs. `running` returns the sessions whose servers are processes of this one;
    `close_idle` begins to close the one of them that has been idle for longest and returns it, None if none is idle;
    `fail` begins to close one that uses too much memory; `spawn` starts tasks.
    """

    def __init__(
        self,
        limits: Limits,
        running: Callable[[], Collection[Session]],
        close_idle: Callable[[], Session | None],
        fail: Callable[[Session, str, str], object],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._each = limits.memory_bytes_per_server or math.inf
        self._together = limits.server_memory_bytes or math.inf
        self._running, self._close_idle, self._fail = running, close_idle, fail
        self._spawn = spawn
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False
        self._sizes: dict[Session, int] = {}  # in bytes, as they were measured last
        self.used = 0  # bytes of all of them

    def make_room(self) -> str:
        """Close idle sessions while servers use too much; return why no further one may be started, if so."""
        while self.used > self._together and (closed := self._close_idle()) is not None:
            _log.info("the idle session with MCP server %s is closed: servers use too much memory", closed.server)
            self.used -= self._sizes.pop(closed, 0)
        if self.used <= self._together:
            return ""
        return f"the servers of this process use {_shown(self.used)} of memory, and all of them are in use."

    def begin(self) -> None:
        """Have a sweep made within `BUSY_SECONDS`: a server is started or called."""
        due = asyncio.get_running_loop().time() + BUSY_SECONDS
        if self._timer is None or self._timer.when() > due:
            self._schedule(BUSY_SECONDS)

    def stop(self) -> None:
        """Make no further sweep."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _schedule(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._stopped:
            self._timer = asyncio.get_running_loop().call_later(seconds, lambda: self._spawn(self._sweep()))

    async def _sweep(self) -> None:
        sessions = self._running()
        self._timer = None
        try:
            await self._measure({session.process_id: session for session in sessions if session.process_id})
        except OSError as error:  # such as too many open files
            _log.warning("the memory of MCP servers can't be measured: %s", error)
        if sessions and self._timer is None:
            self._schedule(BUSY_SECONDS if any(session.calls for session in sessions) else REST_SECONDS)

    async def _measure(self, running: Mapping[int, Session]) -> None:
        sizes = await asyncio.to_thread(memory_of, list(running), self._each, self._together)
        for pid in [pid for pid, size in sizes.items() if size > self._each]:
            used, limit = _shown(sizes[pid]), _shown(self._each)
            reason = f"it used {used} of memory, more than `limits.memory_bytes_per_server` ({limit})."
            self._fail(running[pid], reason, _REMEDY)
            await asyncio.to_thread(kill, pid)
        # What is being closed gives its memory back soon: it is no reason to close more.
        self._sizes = {running[pid]: size for pid, size in sizes.items() if running[pid].usable}
        self.used = sum(self._sizes.values())
        self.make_room()


def _shown(size: float) -> str:
    return f"{size / _MIB:,.0f} MiB"
