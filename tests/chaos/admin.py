"""The one who switches off, revokes and prunes while everything is used."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from time import time

import aiohttp
import psycopg
from pydantic import SecretStr
from sqlalchemy.ext.asyncio import AsyncEngine
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_fixed

from starling.app.access.keys import KeyService, KeySpec
from starling.app.container.admin import open_admin
from starling.core.clock import SystemClock
from starling.core.errors import DatabaseUnavailableError, NotFoundError
from starling.core.principal import Scope
from starling.core.settings import Settings
from starling.infra.postgres.audit import Actor
from starling.infra.postgres.engine import ConnectionLimits, open_engine
from starling.infra.postgres.keys import KeyRepository
from starling.infra.postgres.kill_switches import SwitchRepository, Target
from starling.infra.postgres.retention import Forgotten, Selection
from tests.chaos.books import Books
from tests.chaos.promises import CLOSED_SECONDS, HALTED_SECONDS, Halt, Knock, Promises
from tests.chaos.town import LEASE_SECONDS, TenantKey, Town

_ACTOR = Actor.local("chaos")
_AWAY_SECONDS = 120.0  # that Postgres may be
_SEEN_SECONDS = 1.0  # that a promise is seen to be kept
_PATIENCE_SECONDS = 20.0  # with disturbances, until that is given up
_LOOK_SECONDS = 0.1
_KNOCK_SECONDS = 0.3
_PRUNE_SECONDS = 5 * LEASE_SECONDS  # that pruning may take until it looks what is old
_KNOCKING = aiohttp.ClientTimeout(total=5)


@dataclass(frozen=True, slots=True)
class Admin:
    """Their connections are what everybody's are: faults are aimed at them too."""

    town: Town
    books: Books
    engine: AsyncEngine

    @classmethod
    def of(cls, town: Town, books: Books) -> "Admin":
        """Return a town's; whoever has it disposes of its engine."""
        return cls(town, books, open_engine(_address(town), ConnectionLimits(size=4)))

    @property
    def promises(self) -> Promises:
        return self.books.promises

    async def switch_off(self, target: Target) -> None:
        """Switch something off until it was seen that nothing is called, and on again."""
        switches = SwitchRepository(self.engine)
        await _patiently(lambda: switches.off(target, "chaos", _ACTOR))
        since = await self._now()
        while self._watching(since, HALTED_SECONDS):  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_SECONDS)
        until = await self._now()
        self.promises.halts.append(Halt(target.kind, target.name, target.owner, since, until))
        await _patiently(lambda: self._on(switches, target))

    async def _on(self, switches: SwitchRepository, target: Target) -> None:
        with contextlib.suppress(NotFoundError):  # an earlier try got through, and its answer was lost
            await switches.on(target, _ACTOR)

    async def revoke(self, tenant: str) -> None:
        """Give a tenant another key, and revoke the one that it has, whatever is being done with it."""
        keys, old = KeyService(KeyRepository(self.engine), SystemClock()), self.town.keys[tenant]
        wish = KeySpec("chaos", tenant, frozenset({Scope.RUN}))
        row, secret = await _patiently(lambda: keys.create(wish, _ACTOR))
        self.town.planted[f"key {row.id} of {tenant}"] = secret
        old.going = True
        self.town.keys[tenant] = TenantKey(row.id, secret)
        await _patiently(lambda: keys.revoke(old.id, _ACTOR))
        since = await self._now()
        self.promises.halts.append(Halt("key", old.id, tenant, since))
        await asyncio.gather(self._closing(old, since), self._knock(old, since))

    async def prune(self) -> int:
        """Forget what is old enough; return how many rows that were.

        Idempotency keys go too, so nothing goes that somebody may be sending again.
        """
        settings = Settings(database_url=SecretStr(_address(self.town)))

        async def pruned() -> Forgotten:
            age = max(self.promises.prune_age, time() - self.books.sent_since + _PRUNE_SECONDS)
            async with open_admin(settings) as admin:
                return await admin.retention.prune(Selection(timedelta(seconds=age)), _ACTOR)

        return (await _patiently(pruned)).total

    def _watching(self, since: float, seconds: float) -> bool:
        """Whether a promise still has to be seen to hold; what disturbs it moves that, for some time."""
        return time() < min(self.promises.due(since, seconds), since + _PATIENCE_SECONDS) + _SEEN_SECONDS

    async def _closing(self, key: TenantKey, since: float) -> None:
        while self.promises.open_with(key.id) and self._watching(since, CLOSED_SECONDS):  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_SECONDS)

    async def _knock(self, key: TenantKey, since: float) -> None:
        """Ask every API with a key, again and again, until all had to have learned of its end."""
        headers = {"Authorization": f"Bearer {key.secret}"}
        async with aiohttp.ClientSession(headers=headers, timeout=_KNOCKING) as client:
            while self._watching(since, HALTED_SECONDS):
                for address in self.town.addresses:
                    self.promises.knocks.append(Knock(key.id, time(), await _status(client, address)))
                await asyncio.sleep(_KNOCK_SECONDS)

    async def _now(self) -> float:
        rows = await _patiently(lambda: self.town.rows("SELECT extract(epoch FROM clock_timestamp())::float8 AS now"))
        return rows[0]["now"]


async def _status(client: aiohttp.ClientSession, address: str) -> int:
    try:
        async with client.get(f"{address}/v1/runs") as response:
            return response.status
    except (aiohttp.ClientError, TimeoutError):
        return 0


async def _patiently[T](do: Callable[[], Awaitable[T]]) -> T:
    """Do something again while Postgres is away."""
    retrying = AsyncRetrying(
        retry=retry_if_exception_type((DatabaseUnavailableError, psycopg.OperationalError)),
        stop=stop_after_delay(_AWAY_SECONDS),
        wait=wait_fixed(0.1),
        reraise=True,
    )

    async def doing() -> T:
        return await do()

    return await retrying(doing)


def _address(town: Town) -> str:
    return f"{town.postgres.url}&application_name=admin"
