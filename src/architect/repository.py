"""Queries over the versions of teams: specs that are never changed, and their states."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter
from typing import Annotated, Any, Literal

from pydantic import Field, PlainSerializer, TypeAdapter
from sqlalchemy import Row, Text, case, func, insert, literal, select, update
from sqlalchemy.dialects.postgresql import JSONB, distinct_on
from sqlalchemy.ext.asyncio import AsyncConnection

from starling.core.json import as_read, storable
from starling.core.principal import Grant, Principal
from starling.core.teams.building import BuildOrigin
from starling.core.teams.proofs import PartReport, ProofReport, ProofState
from starling.core.teams.spec import TeamSpec
from starling.infra.postgres.audit import AuditEntry, check_maker, latest_of_team
from starling.infra.postgres.engine import Repository
from starling.infra.postgres.tables.registry import workflows

type TeamState = Literal["draft", "proven", "unproven", "active", "superseded", "archived"]


@dataclass(frozen=True, slots=True)
class TeamKey:
    """A team of a tenant."""

    tenant: str
    name: str


@dataclass(frozen=True, slots=True)
class Creator:
    """Who wrote a version: the id of a key or `local`, and what that key could call then (None: everything)."""

    name: str
    grant: Grant | None


@dataclass(frozen=True, slots=True)
class ProofSummary:
    """The last proof of a version: `score` is the share of criteria that are met."""

    state: ProofState
    score: float
    run_id: str
    trace_id: str
    tools: Annotated[Mapping[str, str], Field(exclude=True)]  # the hash of each definition that it holds for
    parts: Annotated[Sequence[PartReport], Field(exclude=True)] = ()

    @property
    def version_state(self) -> Literal["draft", "proven", "unproven"]:
        """The state of a version with this proof that was not activated."""
        return "draft" if self.state == "failed" else self.state


@dataclass(frozen=True, slots=True)
class TeamVersion:
    """One version of a team. `star` is the hash of what its last activation compiled.

    `goal` and the run that it was `built_by` are null for an imported one, `proof` for one that was never proved.
    `outdated_tools` are those of its proof that changed since, or are gone.
    """

    version: int
    spec: TeamSpec
    hash: str
    state: TeamState
    creator: Annotated[Creator, PlainSerializer(attrgetter("name"), return_type=str), Field(alias="created_by")]
    created_at: datetime
    star: str | None
    activated_by: str | None
    activated_at: datetime | None
    goal: str | None = None
    built_by: str | None = None
    proof: ProofSummary | None = None
    outdated_tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class VersionState:
    """The state of one version of a team, without its spec."""

    version: int
    state: TeamState
    hash: str


@dataclass(frozen=True, slots=True)
class TeamSummary:
    """A team: its active version, else its newest. `reason` says why an active one can't work now.

    `degraded_members` says which of its members can't, by name, as `outer/inner` for members of a team inside it.
    `outdated_tools` are those of its proof that changed since, or are gone.
    """

    name: str
    purpose: str
    state: TeamState
    version: int
    versions: int
    created_at: datetime
    activated_at: datetime | None
    reason: str = ""
    degraded_members: Mapping[str, str] = field(default_factory=dict[str, str])
    outdated_tools: tuple[str, ...] = ()
    proved: Annotated[Mapping[str, str], Field(exclude=True)] = field(default_factory=dict[str, str])


# Of a proof only what `ProofSummary` has: the cases may be long.
_WITHOUT_CASES = workflows.c.proof.op("-", return_type=JSONB())(literal("cases", Text())).label("proof")
_COLUMNS = (*(column for column in workflows.c if column.name != "proof"), _WITHOUT_CASES)
_ACTIVE_FIRST = case((workflows.c.state == "active", 0), else_=1)
_UNUSED = ("draft", "proven", "unproven")  # states of versions that aren't, and weren't, active


class TeamRepository(Repository):
    """Versions of teams in Postgres. No statement changes spec, hash or creator of a stored version.

    What takes a connection is part of its caller's transaction, which holds the lock of the registry: so versions are
    numbered and activated one at a time. Specs are read and written in threads: a long one takes part of a second.
    """

    async def add(
        self,
        connection: AsyncConnection,
        tenant: str,
        spec: TeamSpec,
        creator: Creator,
        build: tuple[str, BuildOrigin, ProofReport] | None = None,
    ) -> TeamVersion:
        """Store a spec as the next version of its team: a draft, or in the state that the proof of its build gives.

        A `build` has the goal, where it ran, and the proof.
        """
        highest = select(func.max(workflows.c.version)).where(_of(TeamKey(tenant, spec.name)))
        values: dict[str, Any] = {
            "tenant": tenant,
            "name": spec.name,
            "version": (await connection.scalar(highest) or 0) + 1,
            "spec": await asyncio.to_thread(spec.model_dump, mode="json"),
            "hash": await asyncio.to_thread(lambda: spec.hash),
            "state": "draft",
            "created_by": creator.name,
            "creator_grant": creator.grant and creator.grant.as_json(),
        }
        if build:
            goal, origin, proof = build
            values |= {"goal": goal, "built_by": origin.run_id, "built_at_path": origin.path, **_proof(proof)}
            values["state"] = _summary(values["proof"]).version_state
        stored = await connection.execute(insert(workflows).values(**values).returning(*_COLUMNS))
        return await asyncio.to_thread(_version, stored.one())

    async def built(self, connection: AsyncConnection, tenant: str, run_id: str, path: str) -> TeamVersion | None:
        """Return the version that a run built in the task of a path, or None."""
        query = select(*_COLUMNS).where(workflows.c.tenant == tenant, workflows.c.built_by == run_id)
        row = (await connection.execute(query.where(workflows.c.built_at_path == path))).one_or_none()
        return None if row is None else await asyncio.to_thread(_version, row)

    async def add_proof(
        self, connection: AsyncConnection, team: TeamKey, version: int, proof: ProofReport
    ) -> TeamVersion | None:
        """Store the last proof of a version, and its state unless it was activated or archived.

        Returns None where this proof is stored already.
        """
        values = _proof(proof)
        of = _of(team) & (workflows.c.version == version)
        state = case((workflows.c.state.in_(_UNUSED), _summary(values["proof"]).version_state), else_=workflows.c.state)
        new = update(workflows).where(of, workflows.c.proof.is_distinct_from(values["proof"]))
        row = (await connection.execute(new.values(**values, state=state).returning(*_COLUMNS))).one_or_none()
        return None if row is None else await asyncio.to_thread(_version, row)

    async def proof(self, connection: AsyncConnection, team: TeamKey, version: int) -> ProofReport | None:
        """Return the last proof of a version, None if it has none."""
        stored = await connection.scalar(select(workflows.c.proof).where(_of(team), workflows.c.version == version))
        return None if stored is None else await asyncio.to_thread(ProofReport.model_validate, stored)

    async def check_maker(self, connection: AsyncConnection, caller: Principal, name: str) -> None:
        """Raise ForbiddenError where another key made the first version of a team, and the caller isn't an admin."""
        versions = select(workflows.c.created_by).where(_of(TeamKey(caller.tenant, name)))
        if (maker := await connection.scalar(versions.order_by(workflows.c.version).limit(1))) is not None:
            check_maker(f"team {name!r}", maker, caller)

    async def versions(self, connection: AsyncConnection, team: TeamKey) -> Sequence[TeamVersion]:
        """Return every version of a team, oldest first."""
        query = select(*_COLUMNS).where(_of(team)).order_by(workflows.c.version)
        rows = (await connection.execute(query)).all()
        return await asyncio.to_thread(lambda: [_version(row) for row in rows])

    async def states(self, connection: AsyncConnection, team: TeamKey) -> Sequence[VersionState]:
        """Return the state of every version of a team, oldest first; no spec is read."""
        columns = (workflows.c[name] for name in ("version", "state", "hash"))
        query = select(*columns).where(_of(team)).order_by(workflows.c.version)
        return [VersionState(*row) for row in await connection.execute(query)]

    async def newest(self, connection: AsyncConnection, tenant: str) -> Mapping[str, VersionState]:
        """Return the active, else the newest version of each team of a tenant, archived ones too, by name."""
        columns = (workflows.c[name] for name in ("name", "version", "state", "hash"))
        query = select(*columns).where(workflows.c.tenant == tenant).ext(distinct_on(workflows.c.name))
        query = query.order_by(workflows.c.name, _ACTIVE_FIRST, workflows.c.version.desc())
        return {name: VersionState(*row) for name, *row in await connection.execute(query)}

    async def version(self, connection: AsyncConnection, team: TeamKey, number: int) -> TeamVersion:
        """Return one version of a team that has it."""
        query = select(*_COLUMNS).where(_of(team), workflows.c.version == number)
        return await asyncio.to_thread(_version, (await connection.execute(query)).one())

    async def activate(
        self, connection: AsyncConnection, team: TeamKey, version: int, star_hash: str, activated_by: str
    ) -> None:
        """Make a version the active one, in place of the one that is."""
        active = update(workflows).where(_of(team), workflows.c.state == "active", workflows.c.version != version)
        await connection.execute(active.values(state="superseded"))
        chosen = update(workflows).where(_of(team), workflows.c.version == version)
        now = {"activated_by": activated_by, "activated_at": func.now()}
        await connection.execute(chosen.values(state="active", star_hash=star_hash, **now))

    async def archive(self, connection: AsyncConnection, team: TeamKey) -> None:
        """Archive every version of a team."""
        await connection.execute(update(workflows).where(_of(team)).values(state="archived"))

    async def changes(self, team: TeamKey, *, limit: int) -> Sequence[AuditEntry]:
        """Return the latest audited changes of a team, newest first."""
        return await latest_of_team(self._engine, team.tenant, team.name, limit=limit)

    async def summaries(self, tenant: str) -> Sequence[TeamSummary]:
        """Return all teams of a tenant by name."""
        columns = (workflows.c[name] for name in ("name", "state", "version", "created_at", "activated_at"))
        count = func.count().over(partition_by=workflows.c.name).label("versions")
        proved = func.coalesce(workflows.c.proof["tools"], literal({}, JSONB)).label("proved")
        query = select(*columns, workflows.c.spec["purpose"].astext.label("purpose"), proved, count)
        query = query.where(workflows.c.tenant == tenant).ext(distinct_on(workflows.c.name))
        query = query.order_by(workflows.c.name, _ACTIVE_FIRST, workflows.c.version.desc())
        async with self.reading() as connection:
            return [TeamSummary(**row) for row in (await connection.execute(query)).mappings()]


def _of(team: TeamKey) -> Any:
    return (workflows.c.tenant == team.tenant) & (workflows.c.name == team.name)


def _version(row: Row[Any]) -> TeamVersion:
    as_stored = ("version", "hash", "state", "created_at", "activated_by", "activated_at", "goal", "built_by")
    return TeamVersion(
        **{name: getattr(row, name) for name in as_stored},
        spec=TeamSpec.model_validate(as_read(row.spec), extra="ignore"),
        creator=Creator(row.created_by, Grant.from_json(row.creator_grant)),
        star=row.star_hash,
        proof=row.proof and _summary(row.proof),
    )


def _proof(proof: ProofReport) -> dict[str, Any]:
    return {"proof": storable(proof.model_dump(mode="json", exclude={"not_judged"})), "proven_state": proof.state}


_summary = TypeAdapter(ProofSummary).validate_python
