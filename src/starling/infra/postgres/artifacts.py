"""Artifacts in Postgres: one row for each distinct content, and one for each call that refers to it."""

import asyncio
import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import psycopg
from sqlalchemy import ColumnElement, and_, delete, exists, not_, select, tuple_
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from starling.core.artifacts import (
    Artifact,
    ArtifactContent,
    ArtifactOrigin,
    ArtifactStore,
    NotStored,
    artifact_id,
    text_in,
)
from starling.core.errors import DatabaseUnavailableError, NotFoundError
from starling.infra.postgres.availability import retry_while_unavailable
from starling.infra.postgres.engine import Engine, fetch_autocommit
from starling.infra.postgres.tables.run_records import artifacts, run_artifacts

type ContentKey = tuple[str, str]
"""A tenant and a content hash: the order in which contents are scanned."""

FIRST_CONTENT: Final[ContentKey] = ("", "")
_LISTED = "`GET /v1/runs/{id}/artifacts` and `starling run artifacts` show a run's."
_HASHED_AT_ONCE: Final = 2**20  # bytes; longer contents are hashed in a thread
_RETRY_SECONDS = 10.0  # while Postgres is unavailable

_log = logging.getLogger(__name__)

# Existing contents are locked until the reference is committed: the deletion of contents skips locked rows.
_PUT: Final = """
WITH room AS (
    SELECT FROM (SELECT coalesce(sum(bytes), 0) AS bytes FROM artifacts WHERE tenant = %(tenant)s) AS held
    WHERE held.bytes + %(bytes)s <= %(quota)s
        OR EXISTS (SELECT FROM artifacts WHERE tenant = %(tenant)s AND hash = %(hash)s)),
kept AS (
    INSERT INTO artifacts (tenant, hash, bytes, characters, content, binary_content)
    SELECT %(tenant)s, %(hash)s, %(bytes)s, %(characters)s, %(content)s, %(binary)s::bytea FROM room
    ON CONFLICT (tenant, hash) DO UPDATE SET hash = excluded.hash
    RETURNING tenant, hash),
referred AS (
    INSERT INTO run_artifacts (tenant, run_id, call_id, hash, name, media_type)
    SELECT tenant, %(run_id)s::uuid, %(call_id)s, hash, %(name)s, %(media_type)s FROM kept
    ON CONFLICT DO NOTHING)
SELECT count(*) FROM kept"""

_OF_RUN: Final = """
SELECT hash, name, call_id, media_type, bytes, characters, run_artifacts.created_at
FROM run_artifacts JOIN artifacts USING (tenant, hash) WHERE tenant = %(tenant)s AND run_id = %(run_id)s
ORDER BY run_artifacts.created_at, call_id, hash"""
_ONE: Final = """
SELECT {} FROM run_artifacts JOIN artifacts USING (tenant, hash)
WHERE tenant = %(tenant)s AND run_id = %(run_id)s AND hash = %(hash)s ORDER BY run_artifacts.created_at LIMIT 1"""
_WHOLE: Final = _ONE.format("content, binary_content, media_type")
_PART: Final = _ONE.format("substr(content, least(%(offset)s, 2147483646)::int + 1, %(length)s::int)")


@dataclass(frozen=True, slots=True)
class Quota:
    """The most bytes of one artifact, and of all of a tenant's artifacts: concurrent puts may exceed the latter."""

    each: int
    tenant: int


class PostgresArtifacts(ArtifactStore):
    """Stores and reads artifacts. Retries for `retry_seconds` while Postgres is unavailable."""

    def __init__(self, engine: Engine, quota: Quota, *, retry_seconds: float = _RETRY_SECONDS) -> None:
        self._engine = engine
        self._quota = quota
        self._retry_seconds = retry_seconds

    async def put(self, origin: ArtifactOrigin, content: bytes, media_type: str) -> str | NotStored:
        size, quota = len(content), self._quota
        if size > quota.each:
            return NotStored(f"it has {size:,} bytes, more than limits.artifact_bytes allows")
        form = _form(content) if size <= _HASHED_AT_ONCE else await asyncio.to_thread(_form, content)
        values = {
            "tenant": origin.tenant,
            "run_id": origin.run_id,
            "call_id": origin.call_id,
            "name": origin.name,
            "media_type": media_type,
            **form,
            "bytes": size,
            "quota": quota.tenant,
        }
        try:
            kept = await self._fetch(_PUT, **values)
        except DatabaseUnavailableError:
            return NotStored("Postgres couldn't be used")
        except (psycopg.Error, SQLAlchemyError):
            _log.exception("the result of call %s of run %s can't be stored", origin.call_id, origin.run_id)
            return NotStored("Postgres refused it")
        if kept == [(0,)]:
            return NotStored("the tenant's quota is used up, limits.tenant_artifact_bytes")
        return form["hash"]

    async def read(self, tenant: str, run_id: str, artifact: str) -> ArtifactContent:
        text, binary, media_type = await self._one(_WHOLE, tenant, run_id, artifact)
        return ArtifactContent(text.encode() if binary is None else binary, media_type)

    async def part(self, tenant: str, run_id: str, artifact: str, offset: int, length: int) -> str:
        return (await self._one(_PART, tenant, run_id, artifact, offset=offset, length=length))[0]

    async def of_run(self, tenant: str, run_id: str) -> Sequence[Artifact]:
        return [Artifact(*row) for row in await self._fetch(_OF_RUN, tenant=tenant, run_id=run_id)]

    async def _one(self, query: str, tenant: str, run_id: str, artifact: str, **values: int) -> tuple[Any, ...]:
        found = await self._fetch(query, tenant=tenant, run_id=run_id, hash=artifact, **values)
        if not found:
            raise NotFoundError("artifact", artifact, _LISTED)
        return found[0]

    async def _fetch(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        attempt = partial(fetch_autocommit, self._engine, statement, values)
        return await retry_while_unavailable(attempt, seconds=self._retry_seconds)


def _form(content: bytes) -> dict[str, Any]:
    """Return the values of a content's row; which form it has depends on its bytes alone, as its hash does."""
    text = text_in(content)
    stored = {"content": text or "", "characters": len(text or ""), "binary": content if text is None else None}
    return {"hash": artifact_id(content), **stored}


async def delete_unreferenced_contents(
    connection: AsyncConnection, tenant: str | None, after: ContentKey, limit: int, among: Collection[str] | None = None
) -> tuple[int, ContentKey | None]:
    """Delete contents without a reference, of a tenant or of all, in the connection's transaction; maybe only some.

    Checks up to `limit` of them after `after`; returns how many were deleted, and the key to continue after if there
    may be more. Contents that are put concurrently stay: they are either locked, or checked again under the lock.
    """
    place = tuple_(artifacts.c.tenant, artifacts.c.hash)
    query = select(artifacts.c.tenant, artifacts.c.hash).where(unreferenced(tenant), place > after)
    query = query.order_by(artifacts.c.tenant, artifacts.c.hash).limit(limit)
    query = query if among is None else query.where(artifacts.c.hash.in_(among))
    locked = (await connection.execute(query.with_for_update(skip_locked=True))).all()
    if not locked:
        return 0, None
    # A separate statement: it sees references that were committed before the contents were locked.
    deletion = delete(artifacts).where(place.in_([tuple(row) for row in locked]), unreferenced(tenant))
    count = (await connection.execute(deletion)).rowcount
    return count, tuple(locked[-1]) if len(locked) == limit else None


def unreferenced(tenant: str | None, ignoring: ColumnElement[bool] | None = None) -> ColumnElement[bool]:
    """Return the condition for contents without a reference; references that match `ignoring` don't count."""
    counting = _is_referenced() if ignoring is None else and_(_is_referenced(), not_(ignoring))
    no_reference = not_(exists().where(counting))
    return no_reference if tenant is None else and_(no_reference, artifacts.c.tenant == tenant)


def _is_referenced() -> ColumnElement[bool]:
    return and_(run_artifacts.c.tenant == artifacts.c.tenant, run_artifacts.c.hash == artifacts.c.hash)
