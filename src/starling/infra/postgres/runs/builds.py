"""Builds of teams as runs: the names that unfinished builds reserve, and what a run that publishes was asked for."""

from collections.abc import Mapping
from typing import Any, Final

from psycopg import AsyncConnection
from sqlalchemy import Select, select
from sqlalchemy.ext.asyncio import AsyncConnection as EngineConnection

from starling.core.errors import ConflictError, LeaseLostError, RunCancelledError
from starling.core.teams.building import BuildOrigin, BuildRequest
from starling.infra.postgres.tables.run_records import runs

_TAKEN: Final = """
SELECT (SELECT id::text FROM runs WHERE tenant = %(tenant)s AND build IS NOT NULL AND ended_at IS NULL
        AND build ->> 'name' = %(name)s AND id <> %(id)s),
    EXISTS (SELECT FROM workflows WHERE tenant = %(tenant)s AND name = %(name)s)"""


async def check_name(connection: AsyncConnection[Any], tenant: str, run_id: str, build: BuildRequest) -> None:
    """Check that no other unfinished run builds the team of this name, and that a new team has a new name.

    Part of the transaction that accepts the run, which holds the lock of the registry: so the name is reserved from
    then on. Raises ConflictError.
    """
    if build.name is None:
        return
    values = {"tenant": tenant, "name": build.name, "id": run_id}
    row = await (await connection.execute(_TAKEN, values)).fetchone()
    assert row is not None
    other, exists = row
    if other:
        raise _being_built(build.name, other)
    if exists and build.kind == "team":
        raise ConflictError(
            f"There is a team {build.name!r} already.",
            f"Choose another name, or build a version of it: `starling team build GOAL --change {build.name}`, "
            f"`POST /v1/teams/{build.name}/versions`.",
        )


async def check_not_being_built(connection: EngineConnection, tenant: str, name: str) -> None:
    """Check that no unfinished run builds a team or a version of this name; proofs don't matter.

    Part of a transaction that holds the lock of the registry. Raises ConflictError.
    """
    query = _unfinished(tenant).where(runs.c.build["name"].astext == name, runs.c.build["kind"].astext != "proof")
    if run := await connection.scalar(query.with_only_columns(runs.c.id)):
        raise _being_built(name, run)


async def reserved_names(connection: EngineConnection, tenant: str, run_id: str) -> Mapping[str, str]:
    """Return the names that unfinished builds other than this run reserve, each with its run."""
    found = await connection.execute(_unfinished(tenant).where(runs.c.id != run_id))
    return {row.name: row.id for row in found if row.name}


async def held_build(connection: EngineConnection, origin: BuildOrigin) -> BuildRequest | None:
    """Return what the run of a build was asked to build, None if it is a run of another kind.

    The run can't be claimed, cancelled or ended by others until the transaction ends. Raises LeaseLostError where it is
    not held under the fence of the build, RunCancelledError where it is to be cancelled.
    """
    query = select(runs.c.build, runs.c.cancel_requested).where(
        runs.c.tenant == origin.caller.tenant,
        runs.c.id == origin.run_id,
        runs.c.fence == origin.fence,
        runs.c.ended_at.is_(None),
    )
    row = (await connection.execute(query.with_for_update(read=True))).one_or_none()
    if row is None:
        raise LeaseLostError(origin.run_id, origin.fence)
    if row.cancel_requested:
        raise RunCancelledError("The run was cancelled.")
    return BuildRequest.model_validate(row.build, extra="ignore") if row.build else None


def _unfinished(tenant: str) -> Select[Any, Any]:
    query = select(runs.c.id, runs.c.build["name"].astext.label("name"))
    return query.where(runs.c.tenant == tenant, runs.c.build.is_not(None), runs.c.ended_at.is_(None))


def _being_built(name: str, run_id: str) -> ConflictError:
    return ConflictError(
        f"The run {run_id} builds the team {name!r} now.",
        "Wait until it has ended, cancel it with `starling run cancel`, or choose another name.",
    )
