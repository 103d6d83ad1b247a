"""An administrator who switches things off, revokes keys and prunes while everything is in use."""

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
from starling.app.container.database import find_database
from starling.app.container.storage import open_storage
from starling.core.clock import SystemClock
from starling.core.errors import DatabaseUnavailableError, NotFoundError
from starling.core.principal import HOST_ADMIN
from starling.core.settings.schema import Settings
from starling.infra.postgres.audit import Actor
from starling.infra.postgres.engine import ConnectionLimits, open_engine
from starling.infra.postgres.keys import KeyRepository
from starling.infra.postgres.kill_switches import SwitchRepository, Target
from starling.infra.postgres.retention import PruneSelection, RetentionReport
from tests.chaos.client_history import ClientHistory
from tests.chaos.cluster import CLIENT_SCOPES, LEASE_SECONDS, Cluster, TenantKey
from tests.chaos.timing_guarantees import CLOSE_SECONDS, SWITCH_SECONDS, KeyProbe, SwitchedOff, TimingGuarantees

_ACTOR = Actor.local("chaos")
_AWAY_SECONDS = 120.0  # how long Postgres may be unreachable
_SEEN_SECONDS = 1.0  # how long a guarantee is watched
_PATIENCE_SECONDS = 20.0  # disturbances delay the check at most so long
_LOOK_SECONDS = 0.1
_KNOCK_SECONDS = 0.3
_PRUNE_SECONDS = 5 * LEASE_SECONDS  # from the start of pruning to its look at the age of runs
_KNOCKING = aiohttp.ClientTimeout(total=5)


@dataclass(frozen=True, slots=True)
class Administrator:
    """Its database connections are targets of faults, like those of services."""

    cluster: Cluster
    history: ClientHistory
    engine: AsyncEngine

    @classmethod
    def of(cls, cluster: Cluster, history: ClientHistory) -> "Administrator":
        """Return the administrator of a cluster; the caller disposes of its engine."""
        return cls(cluster, history, open_engine(_address(cluster), ConnectionLimits(size=4)))

    @property
    def guarantees(self) -> TimingGuarantees:
        return self.history.guarantees

    async def switch_off(self, target: Target) -> None:
        """Switch a target off, watch for as long as no call may be made, and switch it on again."""
        switches = SwitchRepository(self.engine)
        await _patiently(lambda: switches.off(target, "chaos", _ACTOR))
        since = await self._now()
        while self._watching(since, SWITCH_SECONDS):  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_SECONDS)
        until = await self._now()
        self.guarantees.switched_off.append(SwitchedOff(target.kind, target.name, target.owner, since, until))
        await _patiently(lambda: self._on(switches, target))

    async def _on(self, switches: SwitchRepository, target: Target) -> None:
        with contextlib.suppress(NotFoundError):  # an earlier attempt succeeded, and its response was lost
            await switches.on(target, _ACTOR)

    async def revoke(self, tenant: str) -> None:
        """Give a tenant a new key and revoke the old one while it is in use."""
        keys, old = KeyService(KeyRepository(self.engine), SystemClock()), self.cluster.keys[tenant]
        wish = KeySpec("chaos", tenant, CLIENT_SCOPES)
        row, secret = await _patiently(lambda: keys.create(HOST_ADMIN, wish, _ACTOR))
        self.cluster.planted[f"key {row.id} of {tenant}"] = secret
        old.going = True
        self.cluster.keys[tenant] = TenantKey(row.id, secret)
        await _patiently(lambda: keys.revoke(HOST_ADMIN, old.id, _ACTOR))
        since = await self._now()
        self.guarantees.switched_off.append(SwitchedOff("key", old.id, tenant, since))
        await asyncio.gather(self._closing(old, since), self._probe_key(old, since))

    async def check_unready(self) -> None:
        """Check that no API is ready; one that is just restarted or stopped may give no answer."""
        async with aiohttp.ClientSession(timeout=_KNOCKING) as client:
            for address in self.cluster.addresses:
                if await _status(client, f"{address}/ready") == 200:
                    self.history.add_violation("a full disk is told", f"{address}/ready returned 200")

    async def prune(self) -> int:
        """Prune old data; return the number of deleted rows.

        Idempotency keys are pruned too, so requests that may still be retried are left alone.
        """
        settings = Settings(database_url=SecretStr(_address(self.cluster)))

        async def pruned() -> RetentionReport:
            age = max(self.guarantees.prune_age, time() - self.history.oldest_pending + _PRUNE_SECONDS)
            async with open_storage(settings, find_database(settings)) as storage:
                return await storage.retention.prune(PruneSelection(timedelta(seconds=age)), _ACTOR)

        return (await _patiently(pruned)).total

    def _watching(self, since: float, seconds: float) -> bool:
        """Return whether a guarantee still has to be watched; disturbances move its end, up to a limit."""
        return time() < min(self.guarantees.due(since, seconds), since + _PATIENCE_SECONDS) + _SEEN_SECONDS

    async def _closing(self, key: TenantKey, since: float) -> None:
        while self.guarantees.open_with(key.id) and self._watching(since, CLOSE_SECONDS):  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_SECONDS)

    async def _probe_key(self, key: TenantKey, since: float) -> None:
        """Send requests with a revoked key to every API until all of them have to refuse it."""
        headers = {"Authorization": f"Bearer {key.secret}"}
        async with aiohttp.ClientSession(headers=headers, timeout=_KNOCKING) as client:
            while self._watching(since, SWITCH_SECONDS):
                for address in self.cluster.addresses:
                    self.guarantees.key_probes.append(
                        KeyProbe(key.id, time(), await _status(client, f"{address}/v1/runs"))
                    )
                await asyncio.sleep(_KNOCK_SECONDS)

    async def _now(self) -> float:
        rows = await _patiently(
            lambda: self.cluster.rows("SELECT extract(epoch FROM clock_timestamp())::float8 AS now")
        )
        return rows[0]["now"]


async def _status(client: aiohttp.ClientSession, url: str) -> int:
    try:
        async with client.get(url) as response:
            return response.status
    except (aiohttp.ClientError, TimeoutError):
        return 0


async def _patiently[T](do: Callable[[], Awaitable[T]]) -> T:
    """Retry while Postgres is unreachable."""
    retrying = AsyncRetrying(
        retry=retry_if_exception_type((DatabaseUnavailableError, psycopg.OperationalError)),
        stop=stop_after_delay(_AWAY_SECONDS),
        wait=wait_fixed(0.1),
        reraise=True,
    )

    async def doing() -> T:
        return await do()

    return await retrying(doing)


def _address(cluster: Cluster) -> str:
    return f"{cluster.postgres.url}&application_name=admin"
