"""Ends requests, also open streams, when their key is revoked or expires."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from starling.app.access.keys import KeyService
from starling.core.background_tasks import in_background
from starling.core.errors import DatabaseUnavailableError, UnauthorizedError

_CHECK_SECONDS = 2.0
_REMEDY = "Call with another key of the tenant; `starling key create` makes one."
_log = logging.getLogger(__name__)


class RevocationWatcher:
    """The requests that are being served, by key. Opened by `watch_revocations`."""

    def __init__(self, keys: KeyService) -> None:
        self._keys = keys
        self._serving: defaultdict[str, set[asyncio.Timeout]] = defaultdict(set)
        self._in_use = asyncio.Event()

    @asynccontextmanager
    async def of(self, key_id: str) -> AsyncGenerator[None]:
        """Run the block; end it with UnauthorizedError once the key is revoked or has expired."""
        lifetime = asyncio.timeout(None)
        try:
            async with lifetime:
                serving = self._serving[key_id]
                serving.add(lifetime)
                self._in_use.set()
                try:
                    yield
                finally:
                    serving.discard(lifetime)
        except TimeoutError:
            if not lifetime.expired():
                raise
            raise UnauthorizedError(f"The key {key_id} was revoked or has expired.", _REMEDY) from None

    async def watch(self) -> None:
        """Check the keys in use every two seconds, until cancelled."""
        while True:
            await self._in_use.wait()
            await asyncio.sleep(_CHECK_SECONDS)
            self._serving = defaultdict(set, {key: serving for key, serving in self._serving.items() if serving})
            if not self._serving:
                self._in_use.clear()
                continue
            try:
                await self._end_revoked()
            except DatabaseUnavailableError as error:
                _log.warning("the keys in use can't be checked: %s", error)

    async def _end_revoked(self) -> None:
        in_use = frozenset(self._serving)
        for key_id in in_use - await self._keys.active(in_use):
            for lifetime in self._serving.pop(key_id):
                lifetime.reschedule(0)  # in the past: it ends now


@asynccontextmanager
async def watch_revocations(keys: KeyService) -> AsyncGenerator[RevocationWatcher]:
    """Yield the watcher; it checks keys for as long as the context lasts."""
    revocations = RevocationWatcher(keys)
    async with in_background(revocations.watch(), "watch-keys"):
        yield revocations
