"""Artifacts in Postgres: one row for a content, however many calls gave it, and one for each call that refers to it."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast

import psycopg
from sqlalchemy import ColumnElement, Select, and_, delete, exists, func, not_, select, tuple_
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from starling.core.artifacts import (
    Artifact,
    ArtifactContent,
    ArtifactOrigin,
    ArtifactStore,
    MediaType,
    NotStored,
    artifact_id,
)
from starling.core.errors import DatabaseUnavailableError, NotFoundError
from starling.infra.postgres.engine import Engine, execute_alone, translated
from starling.infra.postgres.retry_backoff import retry_while_unavailable
from starling.infra.postgres.tables import artifacts, run_artifacts

type Place = tuple[str, str]
"""A tenant and a hash: contents are gone through in this order."""

BEFORE_ALL: Final[Place] = ("", "")
_LISTED = "`GET /v1/runs/{id}/artifacts` and `starling run artifacts` show a run's."
_PATIENCE_SECONDS = 10.0  # with a Postgres that is away

_log = logging.getLogger(__name__)

# Contents that are there already are locked until the reference stands: who forgets contents passes locked ones by.
_PUT: Final = """
WITH room AS (
    SELECT FROM (SELECT coalesce(sum(bytes), 0) AS bytes FROM artifacts WHERE tenant = %(tenant)s) AS held
    WHERE held.bytes + %(bytes)s <= %(quota)s
        OR EXISTS (SELECT FROM artifacts WHERE tenant = %(tenant)s AND hash = %(hash)s)),
kept AS (
    INSERT INTO artifacts (tenant, hash, bytes, characters, content)
    SELECT %(tenant)s, %(hash)s, %(bytes)s, %(characters)s, %(content)s FROM room
    ON CONFLICT (tenant, hash) DO UPDATE SET hash = excluded.hash
    RETURNING tenant, hash),
referred AS (
    INSERT INTO run_artifacts (tenant, run_id, call_id, hash, name, media_type)
    SELECT tenant, %(run_id)s::uuid, %(call_id)s, hash, %(name)s, %(media_type)s FROM kept
    ON CONFLICT DO NOTHING)
SELECT count(*) FROM kept"""


@dataclass(frozen=True, slots=True)
class Quota:
    """How many bytes an artifact may have, and all of a tenant's together: puts at the same moment may pass that."""

    each: int
    tenant: int


class PostgresArtifacts(ArtifactStore):
    """What any process keeps and reads. A Postgres that is away is waited for some seconds."""

    def __init__(self, engine: Engine, quota: Quota, *, patience_seconds: float = _PATIENCE_SECONDS) -> None:
        self._engine = engine
        self._reading = engine.execution_options(isolation_level="AUTOCOMMIT")  # a read needs no BEGIN
        self._quota = quota
        self._patience = patience_seconds

    async def put(self, origin: ArtifactOrigin, text: str, media_type: MediaType) -> str | NotStored:
        size, quota = len(text.encode()), self._quota
        if size > quota.each:
            return NotStored(f"it has {size:,} bytes, more than limits.artifact_bytes allows")
        values: dict[str, Any] = {**_values(origin, text, size, media_type), "quota": quota.tenant}
        try:
            kept = await self._retried(partial(self._put, values))
        except DatabaseUnavailableError:
            return NotStored("Postgres couldn't be used")
        except (psycopg.Error, SQLAlchemyError):
            _log.exception("the result of call %s of run %s can't be kept", origin.call_id, origin.run_id)
            return NotStored("Postgres refused it")
        return values["hash"] if kept else NotStored("the tenant's quota is used up, limits.tenant_artifact_bytes")

    async def read(self, tenant: str, run_id: str, artifact: str) -> ArtifactContent:
        found = await self._one(tenant, run_id, artifact, artifacts.c.content)
        return ArtifactContent(found[0], cast("MediaType", found[1]))

    async def part(self, tenant: str, run_id: str, artifact: str, offset: int, length: int) -> str:
        asked = func.substr(artifacts.c.content, offset + 1, length)
        return (await self._one(tenant, run_id, artifact, asked))[0]

    async def of_run(self, tenant: str, run_id: str) -> Sequence[Artifact]:
        columns = (
            *(run_artifacts.c.hash, run_artifacts.c.name, run_artifacts.c.call_id, run_artifacts.c.media_type),
            *(artifacts.c.bytes, artifacts.c.characters, run_artifacts.c.created_at),
        )
        query = select(*columns).join_from(run_artifacts, artifacts, _referred())
        query = query.where(run_artifacts.c.tenant == tenant, run_artifacts.c.run_id == run_id)
        ordered = query.order_by(run_artifacts.c.created_at, run_artifacts.c.call_id, run_artifacts.c.hash)
        return [Artifact(*row) for row in await self._retried(partial(self._rows, ordered))]

    async def _one(self, tenant: str, run_id: str, artifact: str, asked: ColumnElement[str]) -> Sequence[str]:
        query = select(asked, run_artifacts.c.media_type).join_from(run_artifacts, artifacts, _referred())
        query = query.where(run_artifacts.c.tenant == tenant, run_artifacts.c.run_id == run_id)
        query = query.where(run_artifacts.c.hash == artifact).order_by(run_artifacts.c.created_at).limit(1)
        found = await self._retried(partial(self._rows, query))
        if not found:
            raise NotFoundError("artifact", artifact, _LISTED)
        return found[0]

    async def _put(self, values: dict[str, Any]) -> bool:
        with translated():
            row = await execute_alone(self._engine, _PUT, values)
        return bool(row and row[0])

    async def _rows(self, query: Select[*tuple[Any, ...]]) -> Sequence[Sequence[Any]]:
        with translated():
            async with self._reading.connect() as connection:
                return (await connection.execute(query)).all()

    async def _retried[T](self, attempt: Callable[[], Awaitable[T]]) -> T:
        return await retry_while_unavailable(attempt, seconds=self._patience)


async def forget_contents(
    connection: AsyncConnection, tenant: str | None, after: Place, limit: int
) -> tuple[int, Place | None]:
    """Delete contents that nobody refers to, of a tenant or of all, in the connection's transaction.

    Looks at up to `limit` of them after a place; returns how many went, and the place to go on after if there may be
    more. What is put at the same moment stays: it is either locked, or looked at again once we hold it.
    """
    place = tuple_(artifacts.c.tenant, artifacts.c.hash)
    query = select(artifacts.c.tenant, artifacts.c.hash).where(unreferred(tenant), place > after)
    query = query.order_by(artifacts.c.tenant, artifacts.c.hash).limit(limit)
    held = (await connection.execute(query.with_for_update(skip_locked=True))).all()
    if not held:
        return 0, None
    # A statement of its own: it sees the references that came until we held the contents.
    gone = delete(artifacts).where(place.in_([tuple(row) for row in held]), unreferred(tenant))
    count = (await connection.execute(gone)).rowcount
    return count, tuple(held[-1]) if len(held) == limit else None


def unreferred(tenant: str | None, but_for: ColumnElement[bool] | None = None) -> ColumnElement[bool]:
    """Return what holds for contents that nobody refers to, references `but_for` which don't count."""
    counting = _referred() if but_for is None else and_(_referred(), not_(but_for))
    nobody = not_(exists().where(counting))
    return nobody if tenant is None else and_(nobody, artifacts.c.tenant == tenant)


def _referred() -> ColumnElement[bool]:
    return and_(run_artifacts.c.tenant == artifacts.c.tenant, run_artifacts.c.hash == artifacts.c.hash)


def _values(origin: ArtifactOrigin, text: str, size: int, media_type: MediaType) -> dict[str, Any]:
    return {
        "tenant": origin.tenant,
        "run_id": origin.run_id,
        "call_id": origin.call_id,
        "name": origin.name,
        "media_type": media_type,
        "hash": artifact_id(text),
        "bytes": size,
        "characters": len(text),
        "content": text,
    }
