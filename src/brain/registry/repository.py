"""Queries over epochs and what they pin: tool definitions, custom agents, stars of teams and texts of prompts."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import RowMapping, Select, cast, exists, func, select, text, tuple_, update
from sqlalchemy.dialects.postgresql import JSONB, distinct_on, insert
from sqlalchemy.ext.asyncio import AsyncConnection

from brain.registry.manifest import AgentPin, Changes, Epoch, Manifest, Names, difference
from starling.core.agents import LLMAgentConfig
from starling.core.errors import NotFoundError
from starling.core.llm import PromptVersion
from starling.core.principal import SHARED, Principal
from starling.core.teams.stars import StarSpec
from starling.infra.postgres.audit import Actor, check_maker
from starling.infra.postgres.engine import Repository, autocommit
from starling.infra.postgres.runs.listing import EpochRange
from starling.infra.postgres.tables.registry import agents, epochs, prompts, stars
from starling.infra.postgres.tables.run_records import runs
from starling.infra.postgres.tool_definitions import LOCK_REGISTRY, pinned_definitions

CHANNEL: Final = "starling_registry"

_ONE_AT_A_TIME = text(LOCK_REGISTRY)
_VERDICTS = text("""
SELECT data ->> 'status' AS status, count(*) AS verdicts FROM events
WHERE type = 'reflection' AND NOT data ->> 'path' LIKE '%/%' AND tenant = :tenant AND data ->> 'agent' = :agent
GROUP BY data ->> 'status'""")
_NOTIFY = text(f"SELECT pg_notify('{CHANNEL}', '')")


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """An epoch: its actor and origin, its changes, and the number of unfinished runs that use it."""

    number: int
    hash: str
    active: bool
    created_at: datetime
    closed_at: datetime | None
    actor: str
    origin: str
    changes: Changes
    runs: int


@dataclass(frozen=True, slots=True)
class Activation:
    """The epoch that is active now, what that changed, and what was in force before."""

    epoch: Epoch
    changes: Changes
    former: Manifest


class EpochRepository(Repository):
    """Epochs in Postgres. What takes a connection is part of its caller's transaction."""

    async def begin(self, connection: AsyncConnection) -> Epoch:
        """Lock the registry until the transaction ends; return the active epoch, with number 0 if there is none."""
        await connection.execute(_ONE_AT_A_TIME)
        return await self.current(connection)

    async def activate(
        self, connection: AsyncConnection, actor: Actor, change: Callable[[Manifest], Manifest]
    ) -> Activation:
        """Make the changed manifest the active epoch; keep the active one if it is equal.

        Every process is notified once the transaction is committed.
        """
        active = await self.begin(connection)
        manifest = change(active.manifest)
        await connection.execute(_NOTIFY)
        if active.number and active.manifest == manifest:
            return Activation(active, Changes(), active.manifest)
        changes = difference(active.manifest, manifest)
        highest = await connection.scalar(select(func.max(epochs.c.number)).where(epochs.c.tenant == SHARED))
        epoch = Epoch((highest or 0) + 1, manifest)
        await connection.execute(update(epochs).where(epochs.c.tenant == SHARED, epochs.c.active).values(active=False))
        await connection.execute(
            insert(epochs).values(
                tenant=SHARED,
                number=epoch.number,
                hash=manifest.hash,
                manifest=manifest.model_dump(mode="json"),
                changes=changes.model_dump(mode="json"),
                actor=actor.name,
                origin=actor.origin,
                active=True,
            )
        )
        return Activation(epoch, changes, active.manifest)

    async def active(self) -> Epoch:
        """Return the active epoch; number 0, with nothing in it, before the first."""
        async with self.reading() as connection:
            return await self.current(connection)

    async def current(self, connection: AsyncConnection) -> Epoch:
        """Return what `active` returns, read in a transaction."""
        query = select(epochs.c.number, epochs.c.manifest).where(epochs.c.tenant == SHARED, epochs.c.active)
        row = (await connection.execute(query)).one_or_none()
        return Epoch(0, Manifest()) if row is None else Epoch(row.number, Manifest.model_validate(row.manifest))

    async def before_other_servers(self) -> int | None:
        """Return the number of the latest epoch whose servers weren't those of now, None where there is none."""
        changed = epochs.c.changes["servers"] != cast(Names().model_dump(mode="json"), JSONB)
        query = select(func.max(epochs.c.number)).where(epochs.c.tenant == SHARED, changed)
        async with self.reading() as connection:
            latest = await connection.scalar(query)
        return latest - 1 if latest and latest > 1 else None

    async def active_number(self) -> int | None:
        """Return the number of the active epoch, None before the first."""
        query = select(epochs.c.number).where(epochs.c.tenant == SHARED, epochs.c.active)
        async with autocommit(self._engine) as connection:
            return await connection.scalar(query)

    async def get(self, number: int) -> Epoch:
        """Return the epoch of a number. Raises NotFoundError."""
        async with self.reading() as connection:
            return await self.within(connection, number)

    async def within(self, connection: AsyncConnection, number: int) -> Epoch:
        """Return the epoch of a number, read in a transaction. Raises NotFoundError."""
        query = select(epochs.c.manifest).where(epochs.c.tenant == SHARED, epochs.c.number == number)
        manifest = await connection.scalar(query)
        if manifest is None:
            raise NotFoundError("epoch", str(number), "`starling registry list` shows which there are.")
        return Epoch(number, Manifest.model_validate(manifest))

    async def first_with_team(self, connection: AsyncConnection, team: str) -> int:
        """Return the first epoch from which on a team, `tenant/name`, was pinned as it is in the active one."""
        active = await self.current(connection)
        star = epochs.c.manifest["teams"][team].astext
        other = star.is_distinct_from(active.manifest.teams.get(team))
        before = select(func.max(epochs.c.number)).where(epochs.c.tenant == SHARED, other).scalar_subquery()
        query = select(func.min(epochs.c.number)).where(epochs.c.tenant == SHARED)
        return await connection.scalar(query.where(epochs.c.number > func.coalesce(before, 0))) or active.number

    async def prompts_since(self) -> Mapping[str, int]:
        """Return for each prompt the epoch that last changed its wording."""
        since: dict[str, int] = {}
        for number, names in await self._prompt_changes():
            for name in (*names.added, *names.changed):
                since.setdefault(name, number)
        return since

    async def pinning_prompt(self, digest: str) -> Sequence[EpochRange]:
        """Return the epochs that pin a text of a prompt."""
        changed = [number for number, _ in await self._prompt_changes()]
        query = select(epochs.c.number, epochs.c.manifest["prompts"], epochs.c.created_at)
        async with self.reading() as connection:
            rows = await connection.execute(
                query.where(epochs.c.tenant == SHARED, epochs.c.number.in_(changed)).order_by(epochs.c.number)
            )
            found = [(row[0], digest in row[1].values(), row[2]) for row in rows]
        ends = [*((number, at) for number, _, at in found[1:]), (None, None)]
        return [
            EpochRange(number, end, begun, until)
            for (number, pins, begun), (end, until) in zip(found, ends, strict=True)
            if pins
        ]

    async def _prompt_changes(self) -> Sequence[tuple[int, Names]]:
        """Return the epochs that pinned other prompts than the one before, newest first, and which they were."""
        changed = epochs.c.changes["prompts"] != cast(Names().model_dump(mode="json"), JSONB)
        query = select(epochs.c.number, epochs.c.changes["prompts"]).where(epochs.c.tenant == SHARED, changed)
        async with self.reading() as connection:
            rows = await connection.execute(query.order_by(epochs.c.number.desc()))
            return [(row[0], Names.model_validate(row[1])) for row in rows]

    async def latest(self, limit: int) -> Sequence[EpochRecord]:
        """Return the latest epochs, newest first."""
        held = select(func.count()).where(runs.c.epoch == epochs.c.number, runs.c.ended_at.is_(None)).scalar_subquery()
        columns = (epochs.c[name] for name in EpochRecord.__slots__ if name != "runs")
        query = select(*columns, held.label("runs")).where(epochs.c.tenant == SHARED)
        async with self.reading() as connection:
            rows = (await connection.execute(query.order_by(epochs.c.number.desc()).limit(limit))).mappings()
            found = [dict[str, Any](**row) for row in rows]
        for row in found:
            row["changes"] = Changes.model_validate(row["changes"], extra="ignore")
        return [EpochRecord(**row) for row in found]

    async def close_unheld(self) -> frozenset[int]:
        """Close epochs that aren't active and that no unfinished run holds; return the open ones."""
        held = exists().where(runs.c.epoch == epochs.c.number, runs.c.ended_at.is_(None))
        ours = epochs.c.tenant == SHARED
        free = select(epochs.c.number).where(ours, ~epochs.c.active, epochs.c.closed_at.is_(None), ~held)
        free = free.with_for_update(of=epochs, skip_locked=True)  # every process does so every few seconds
        unheld = update(epochs).where(ours, epochs.c.number.in_(free)).values(closed_at=func.now())
        closed = unheld.returning(epochs.c.number).cte("closed")
        open_ones = select(epochs.c.number).where(
            ours, epochs.c.closed_at.is_(None), epochs.c.number.not_in(select(closed.c.number))
        )
        async with autocommit(self._engine) as connection:
            return frozenset(await connection.scalars(open_ones))

    async def definitions(self, manifest: Manifest) -> Mapping[tuple[str, str], Mapping[str, Any]]:
        """Return the pinned definition of each tool, by server and name."""
        pins = [
            (server, name, pin.hash) for server, entry in manifest.servers.items() for name, pin in entry.tools.items()
        ]
        async with self.reading() as connection:
            return await pinned_definitions(connection, pins)


@dataclass(frozen=True, slots=True)
class AgentVersion:
    """A configuration that an agent has or had; an older one that is taken up again keeps its date."""

    hash: str
    config: LLMAgentConfig
    created_at: datetime


class AgentRepository(Repository):
    """Custom agents in Postgres. Configurations are never removed: epochs pin them."""

    async def save(self, connection: AsyncConnection, tenant: str, config: LLMAgentConfig, maker: str) -> None:
        """Store a configuration and who made it, as part of the connection's transaction."""
        values = {"name": config.id, "hash": config.hash, "config": config.model_dump(mode="json")}
        row = insert(agents).values(tenant=tenant, **values, created_by=maker)
        await connection.execute(row.on_conflict_do_nothing())

    async def names(self, connection: AsyncConnection, tenant: str) -> Collection[str]:
        """Return the names of all agents of a tenant, of archived ones too."""
        return set(await connection.scalars(select(agents.c.name).where(agents.c.tenant == tenant).distinct()))

    async def check_maker(self, connection: AsyncConnection, caller: Principal, name: str) -> None:
        """Raise ForbiddenError where another key made the first version of an agent, and the caller isn't an admin."""
        first = select(agents.c.created_by).where(agents.c.tenant == caller.tenant, agents.c.name == name)
        made = (await connection.execute(first.order_by(agents.c.created_at).limit(1))).one_or_none()
        if made is not None:
            check_maker(f"agent {name!r}", made.created_by, caller)

    async def versions(self, tenant: str, name: str) -> Sequence[AgentVersion]:
        """Return every version of an agent, oldest first."""
        query = select(agents.c.hash, agents.c.config, agents.c.created_at)
        query = query.where(agents.c.tenant == tenant, agents.c.name == name).order_by(agents.c.created_at)
        async with self.reading() as connection:
            found = await connection.execute(query)
            return [
                AgentVersion(row.hash, LLMAgentConfig.model_validate(row.config, extra="ignore"), row.created_at)
                for row in found
            ]

    async def verdicts(self, tenant: str, name: str) -> Mapping[str, int]:
        """Return how often results of an agent got each verdict, in the tasks of own plans of runs that are kept."""
        async with self.reading() as connection:
            found = await connection.execute(_VERDICTS, {"tenant": tenant, "agent": name})
            return {row.status: row.verdicts for row in found}

    async def pinned(self, pins: Iterable[AgentPin]) -> Mapping[AgentPin, LLMAgentConfig]:
        """Return the configurations of agents of any tenants."""
        wanted = {(pin.tenant, pin.name, pin.hash): pin for pin in pins}
        key = agents.c.tenant, agents.c.name, agents.c.hash
        query = select(*key, agents.c.config).where(tuple_(*key).in_(wanted))
        async with self.reading() as connection:
            found = await connection.execute(query)
            return {
                wanted[row.tenant, row.name, row.hash]: LLMAgentConfig.model_validate(row.config, extra="ignore")
                for row in found
            }


class StarRepository(Repository):
    """Stars in Postgres. They are never changed or removed: epochs pin them."""

    async def save(self, connection: AsyncConnection, tenant: str, star: StarSpec) -> None:
        """Store a star, as part of the connection's transaction."""
        values = {"tenant": tenant, "hash": star.hash, "star": star.model_dump(mode="json")}
        await connection.execute(insert(stars).values(**values).on_conflict_do_nothing())

    async def stars(self, tenant: str, hashes: Collection[str]) -> Mapping[str, StarSpec]:
        """Return the stars of a tenant by hash."""
        async with self.reading() as connection:
            return await self.within(connection, tenant, hashes)

    async def within(self, connection: AsyncConnection, tenant: str, hashes: Collection[str]) -> Mapping[str, StarSpec]:
        """Return the stars of a tenant by hash, read in a transaction."""
        query = select(stars.c.hash, stars.c.star).where(stars.c.tenant == tenant, stars.c.hash.in_(hashes))
        return {row.hash: StarSpec.model_validate(row.star) for row in await connection.execute(query)}

    async def pinned(self, pins: Collection[tuple[str, str]]) -> Mapping[tuple[str, str], StarSpec]:
        """Return stars of any tenants, by tenant and hash."""
        key = stars.c.tenant, stars.c.hash
        query = select(*key, stars.c.star).where(tuple_(*key).in_(pins))
        async with self.reading() as connection:
            found = await connection.execute(query)
            return {(row.tenant, row.hash): StarSpec.model_validate(row.star) for row in found}


_COLUMNS = ("name", "hash", "source", "version", "label", "remote_name")

_SAVE = text("""
INSERT INTO prompts (tenant, hash, name, text, source, version, label, remote_name)
SELECT :tenant, found.* FROM unnest(
    CAST(:hashs AS text[]), CAST(:names AS text[]), CAST(:texts AS text[]), CAST(:sources AS text[]),
    CAST(:versions AS integer[]), CAST(:labels AS text[]), CAST(:remote_names AS text[])) AS found
ON CONFLICT (tenant, hash, name) DO UPDATE SET source = excluded.source, version = excluded.version,
    label = excluded.label, remote_name = excluded.remote_name, stored_at = clock_timestamp()""")


@dataclass(frozen=True, slots=True)
class StoredPrompt:
    """A text with the place where it was last found, and when that was."""

    text: str
    version: PromptVersion
    stored_at: datetime | None = None


async def save_texts(connection: AsyncConnection, found: Sequence[StoredPrompt]) -> None:
    """Store texts as those that their sources have now, as part of the connection's transaction."""
    if not found:
        return
    ordered = sorted(found, key=lambda one: (one.version.hash, one.version.name))  # one order of locks
    values = {f"{name}s": [getattr(one.version, name) for one in ordered] for name in _COLUMNS}
    await connection.execute(_SAVE, {"tenant": SHARED, "texts": [one.text for one in ordered], **values})


class PromptRepository(Repository):
    """Texts of prompts in Postgres. They are never changed or removed: epochs pin them."""

    async def store(self, found: Sequence[StoredPrompt]) -> None:
        """Store texts in a transaction of their own."""
        async with self.changing() as connection:
            await save_texts(connection, found)

    async def texts(self, hashes: Collection[str]) -> Mapping[str, str]:
        """Return texts by hash; one that isn't stored is left out."""
        query = select(prompts.c.hash, prompts.c.text).where(prompts.c.tenant == SHARED, prompts.c.hash.in_(hashes))
        async with self.reading() as connection:
            return {row.hash: row.text for row in await connection.execute(query)}

    async def latest(self) -> Mapping[str, StoredPrompt]:
        """Return for each prompt the text that a source was last found to have."""
        query = _stored().ext(distinct_on(prompts.c.name)).order_by(prompts.c.name, prompts.c.stored_at.desc())
        async with self.reading() as connection:
            rows = (await connection.execute(query)).mappings()
            return {row["name"]: _prompt(row) for row in rows}

    async def starting_with(self, digits: str, limit: int) -> Sequence[StoredPrompt]:
        """Return texts whose hash begins with these hex digits, ordered by hash."""
        begins = prompts.c.hash.startswith(digits, autoescape=True)
        query = _stored().where(begins).order_by(prompts.c.hash, prompts.c.name).limit(limit)
        async with self.reading() as connection:
            return [_prompt(row) for row in (await connection.execute(query)).mappings()]


def _stored() -> Select[tuple[object, ...]]:
    columns = (prompts.c[name] for name in (*_COLUMNS, "text", "stored_at"))
    return select(*columns).where(prompts.c.tenant == SHARED)


def _prompt(row: RowMapping) -> StoredPrompt:
    return StoredPrompt(row["text"], PromptVersion(**{name: row[name] for name in _COLUMNS}), row["stored_at"])
