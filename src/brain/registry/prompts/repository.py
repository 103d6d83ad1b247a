"""Queries over the texts of prompts, each stored once by its content."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import RowMapping, Select, select, text
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from starling.core.llm import PromptVersion
from starling.core.principal import SHARED
from starling.infra.postgres.engine import translated
from starling.infra.postgres.tables import prompts

_COLUMNS = ("name", "hash", "source", "version", "label", "remote_name")

_SAVE = text("""
INSERT INTO prompts (tenant, hash, name, text, source, version, label, remote_name)
SELECT :tenant, found.* FROM unnest(
    CAST(:hashs AS text[]), CAST(:names AS text[]), CAST(:texts AS text[]), CAST(:sources AS text[]),
    CAST(:versions AS integer[]), CAST(:labels AS text[]), CAST(:remote_names AS text[])) AS found
ON CONFLICT (tenant, hash, name) DO UPDATE SET source = excluded.source, version = excluded.version,
    label = excluded.label, remote_name = excluded.remote_name, stored_at = clock_timestamp()""")

_STATE = text("""
SELECT md5(string_agg(CAST(extract(epoch FROM stored_at) AS text), ' ' ORDER BY hash, name))
FROM prompts WHERE tenant = :tenant""")


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


async def stored_state(connection: AsyncConnection) -> str:
    """Return what is another text after each `save_texts`; empty before the first."""
    return await connection.scalar(_STATE, {"tenant": SHARED}) or ""


class PromptRepository:
    """Texts of prompts in Postgres. They are never changed or removed: epochs pin them."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def store(self, found: Sequence[StoredPrompt]) -> None:
        """Store texts in a transaction of their own."""
        with translated():
            async with self._engine.begin() as connection:
                await save_texts(connection, found)

    async def state(self) -> str:
        """Return the `stored_state` of now."""
        with translated():
            async with self._engine.connect() as connection:
                return await stored_state(connection)

    async def texts(self, hashes: Collection[str]) -> Mapping[str, str]:
        """Return texts by hash; one that isn't stored is left out."""
        query = select(prompts.c.hash, prompts.c.text).where(prompts.c.tenant == SHARED, prompts.c.hash.in_(hashes))
        with translated():
            async with self._engine.connect() as connection:
                return {row.hash: row.text for row in await connection.execute(query)}

    async def latest(self) -> Mapping[str, StoredPrompt]:
        """Return for each prompt the text that a source was last found to have."""
        query = _stored().ext(distinct_on(prompts.c.name)).order_by(prompts.c.name, prompts.c.stored_at.desc())
        with translated():
            async with self._engine.connect() as connection:
                rows = (await connection.execute(query)).mappings()
                return {row["name"]: _prompt(row) for row in rows}

    async def starting_with(self, digits: str, limit: int) -> Sequence[StoredPrompt]:
        """Return texts whose hash begins with these hex digits, ordered by hash."""
        begins = prompts.c.hash.startswith(digits, autoescape=True)
        query = _stored().where(begins).order_by(prompts.c.hash, prompts.c.name).limit(limit)
        with translated():
            async with self._engine.connect() as connection:
                return [_prompt(row) for row in (await connection.execute(query)).mappings()]


def _stored() -> Select[tuple[object, ...]]:
    columns = (prompts.c[name] for name in (*_COLUMNS, "text", "stored_at"))
    return select(*columns).where(prompts.c.tenant == SHARED)


def _prompt(row: RowMapping) -> StoredPrompt:
    return StoredPrompt(row["text"], PromptVersion(**{name: row[name] for name in _COLUMNS}), row["stored_at"])
