"""Results of `read` tools with `cache_ttl`, kept for a while in this process.

Each process keeps its own. An invalidation is announced to the others; what one of them misses, it uses for no longer
than `cache_ttl`.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from time import monotonic
from typing import Final

from mcp_gateway.path.stage import Stage
from mcp_gateway.registration.known_servers import Directory
from starling.core.clock import Deadline
from starling.core.json import canonical
from starling.core.tool_calls import Effect, Observation
from starling.core.tools import CallRecord, ToolCall, ToolOutcome

MOST_CHARS: Final = 32_000_000  # of all results together
_LARGEST_CHARS: Final = 1_000_000  # of one result
_ENTRY_CHARS: Final = 500  # what an entry counts besides its content

type _Key = tuple[str, str, str, str, str]


@dataclass(frozen=True, slots=True)
class _Kept:
    outcome: ToolOutcome
    at: float
    size: int


class ResultCache:
    """Results by tenant, tool, definition, configuration and arguments; the least recently used are dropped first.

    `now` returns seconds that only increase.
    """

    def __init__(self, now: Callable[[], float] = monotonic, most_chars: int = MOST_CHARS) -> None:
        self._now = now
        self._most_chars = most_chars
        self._kept: OrderedDict[_Key, _Kept] = OrderedDict()
        self._chars = 0
        self.version = 0  # another number after each invalidation

    def get(self, key: _Key, seconds: float) -> ToolOutcome | None:
        """Return the result of a key that is at most so many seconds old, None where there is none."""
        found = self._kept.get(key)
        if found is None or self._now() - found.at >= seconds:
            return None
        self._kept.move_to_end(key)
        return found.outcome

    def put(self, key: _Key, outcome: ToolOutcome, version: int) -> None:
        """Keep a result, unless it is too large or something was invalidated since the cache had this version."""
        size = len(outcome.text) + len("" if outcome.data is None else canonical(outcome.data)) + len(key[4])
        size += sum(len(binary.content) for binary in outcome.binaries)
        if version != self.version or size > min(_LARGEST_CHARS, self._most_chars):
            return
        self._drop(key)
        self._kept[key] = _Kept(outcome, self._now(), size + _ENTRY_CHARS)
        self._chars += size + _ENTRY_CHARS
        while self._chars > self._most_chars:
            self._drop(next(iter(self._kept)))

    def invalidate(self, tenant: str, tool: str) -> None:
        """Forget the results that a tool, given by its full name, had for a tenant."""
        self.version += 1
        for key in [key for key in self._kept if key[:2] == (tenant, tool)]:
            self._drop(key)

    def clear(self) -> None:
        """Forget everything: invalidations may have been missed."""
        self.version += 1
        self._chars = 0
        self._kept.clear()

    def _drop(self, key: _Key) -> None:
        if (gone := self._kept.pop(key, None)) is not None:
            self._chars -= gone.size


@dataclass(frozen=True, slots=True)
class Cached:
    """Answers a call with the result of an earlier equal one, if the tool's `cache_ttl` says so.

    Only of tools whose effect is `read` both in the run's epoch and now, and that aren't told the run. It comes after
    everything that may refuse a call.
    """

    directory: Directory
    cache: ResultCache
    inner: Stage

    async def __call__(self, call: ToolCall, deadline: Deadline, record: CallRecord | None) -> ToolOutcome:
        server, options = self.directory.server(call.tool.server), self.directory.tool_options(call)
        is_read = call.tool.effect is Effect.READ and self.directory.effect(call) is Effect.READ
        seconds = options.cache_ttl if is_read and not options.requires_context else None
        if server is None or seconds is None:
            return await self.inner(call, deadline, record)
        tool = call.tool
        key = call.tenant, tool.full_name, tool.schemas_key, server.config.hash, canonical(call.arguments)
        if (kept := self.cache.get(key, seconds)) is not None:
            return kept
        version = self.cache.version
        outcome = await self.inner(call, deadline, record)
        if outcome.observation is Observation.COMPLETED:
            self.cache.put(key, replace(outcome, events=()), version)
        return outcome
