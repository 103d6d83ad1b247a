"""A breaker per server: after failures in a row its calls fail at once, and from time to time one of them tries."""

import asyncio
import logging
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Final

from starling.core.errors import DatabaseUnavailableError, ServerUnavailableError
from starling.core.outages import Outage
from starling.infra.postgres.server_breakers import BreakerRepository

_FREE_FAILURES: Final = 4  # two calls, each tried twice
_LONGEST_SECONDS: Final = 30.0
_DOUBLINGS: Final = 5
_STOP_SECONDS: Final = 2.0
_log = logging.getLogger(__name__)

type Key = tuple[str, str]  # a server's name and the hash of its unresolved configuration


@dataclass(slots=True)
class _Breaker:
    last: ServerUnavailableError
    failures: int = 0  # in a row
    waits: int = 0  # how often calls had to wait
    is_open: bool = False
    until: float = 0.0  # when the next call may try
    trying: bool = False


@dataclass(frozen=True, slots=True)
class OpenBreaker:
    """A server whose calls fail at once: failures in a row, the last reason, and the seconds until one may try."""

    failures: int
    reason: str
    seconds: float

    @property
    def text(self) -> str:
        """The reason with the time of the next trial."""
        when = f"is tried again in {self.seconds:.0f} s" if self.seconds > 0 else "is being tried again"
        times = f"{self.failures} times in a row" if self.failures > 1 else "once"
        return f"{self.reason} It failed {times} and {when}."


class ServerBreakers:
    """Counts failures in a row of each configuration: starts and connections that failed, calls that timed out.

    From the fourth on, or the first costly one, attempts are refused for 1, 2, 4 … 30 s; then one is let through, and
    the others once a call was answered, be it with a tool's error. `on_change` is called with the name of a server
    whose breaker opened, waits anew or closed; `on_failure` is called at each failure that counts.
    """

    def __init__(
        self, now: Callable[[], float] = monotonic, on_failure: Callable[[str], None] = lambda _: None
    ) -> None:
        self.on_change: Callable[[str], None] = lambda _: None
        self._on_failure = on_failure
        self._now = now
        self._outages: dict[Key, Outage] = {}
        self._breakers: dict[Key, _Breaker] = {}

    @contextmanager
    def attempt(self, key: Key) -> Generator[None]:
        """Make one attempt. Raises ServerUnavailableError, with the last reason, while none is let through."""
        self.check(key)
        breaker = self._breakers.get(key)
        if breaker is None or not breaker.is_open:
            yield
            return
        breaker.trying = True
        try:
            yield
        finally:
            breaker.trying = False

    def check(self, key: Key) -> None:
        """Raise ServerUnavailableError, with the last reason, while no attempt is let through."""
        breaker, state = self._breakers.get(key), self.state(key)
        if breaker is not None and state is not None and (breaker.trying or state.seconds > 0):
            raise ServerUnavailableError(key[0], state.text, breaker.last.remedy)

    def refuses(self, key: Key) -> bool:
        """Whether the time of the next attempt has not come yet."""
        state = self.state(key)
        return state is not None and state.seconds > 0

    def state(self, key: Key) -> OpenBreaker | None:
        """Return the open breaker of a configuration, None where calls are made."""
        breaker = self._breakers.get(key)
        if breaker is None or not breaker.is_open:
            return None
        return OpenBreaker(breaker.failures, breaker.last.reason, max(0.0, breaker.until - self._now()))

    def state_of(self, server: str) -> OpenBreaker | None:
        """Return the open breaker of the configuration of a server that failed last, None where calls are made."""
        keys = [key for key in self._breakers if key[0] == server]
        return next((state for key in reversed(keys) if (state := self.state(key)) is not None), None)

    def failed(self, key: Key, error: ServerUnavailableError, *, is_costly: bool = False) -> None:
        """Note a failure. Those of attempts that began before the breaker opened don't count."""
        if self.refuses(key):
            return
        breaker = self._breakers.setdefault(key, _Breaker(error))
        breaker.failures, breaker.last = breaker.failures + 1, error
        self._on_failure(key[0])
        if breaker.is_open or is_costly or breaker.failures >= _FREE_FAILURES:
            seconds = min(2.0 ** min(breaker.waits, _DOUBLINGS), _LONGEST_SECONDS)
            breaker.is_open, breaker.waits, breaker.until = True, breaker.waits + 1, self._now() + seconds
            begins, again = f"MCP server {key[0]} fails again and again", f"MCP server {key[0]} works again"
            outage = self._outages.setdefault(key, Outage(_log, begins, again, self._now))
            outage.failed(OpenBreaker(breaker.failures, error.reason, seconds).text)
            self.on_change(key[0])

    def answered(self, key: Key) -> None:
        """Note an answer to a call: the breaker closes."""
        if (outage := self._outages.get(key)) is not None:
            outage.recovered()
        self._forget(key)

    def keep_only(self, configs: Mapping[str, str]) -> None:
        """Forget all configurations but these, given by server as hashes."""
        for key in (self._breakers | self._outages).keys() - configs.items():
            self._outages.pop(key, None)
            self._forget(key)

    def _forget(self, key: Key) -> None:
        breaker = self._breakers.pop(key, None)
        if breaker is not None and breaker.is_open:
            self.on_change(key[0])


class BreakerReports:
    """Writes when a breaker opens, waits anew or closes, in the background: no call waits for it.

    What can't be stored while Postgres is away is not stored later; rows of an earlier state expire.
    """

    def __init__(self, stored: BreakerRepository, process: str, breakers: ServerBreakers) -> None:
        self._stored = stored
        self._process = process
        self._breakers = breakers
        breakers.on_change = self._changed_now
        self._changed: dict[str, None] = {}  # in order
        self._writing: asyncio.Task[None] | None = None
        self._any_stored = self._stopped = False

    async def stop(self) -> None:
        """Write no more; delete what this process stored."""
        self._stopped = True
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                if self._writing is not None:
                    await self._writing
                if self._any_stored:
                    await self._stored.remove(self._process)
        except (TimeoutError, DatabaseUnavailableError) as error:
            _log.warning("servers that failed here are shown as failing for some minutes yet: %r", error)

    def _changed_now(self, server: str) -> None:
        if self._stopped:
            return
        self._changed[server] = None
        if self._writing is None or self._writing.done():
            self._writing = asyncio.get_running_loop().create_task(self._write(), name="store breakers")

    async def _write(self) -> None:
        while self._changed:
            server = next(iter(self._changed))
            del self._changed[server]
            state = self._breakers.state_of(server)
            try:
                if state is None:
                    await self._stored.remove(self._process, server)
                else:
                    self._any_stored = True
                    await self._stored.save(server, self._process, state.failures, state.reason, state.seconds)
            except DatabaseUnavailableError as error:
                _log.info("other processes are not told how calls of server %s end here: %s", server, error)
