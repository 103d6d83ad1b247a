"""Queries over skills, and the parts of a flush that store them and count their uses."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from time import monotonic
from typing import Any, Final

from pgvector import HalfVector
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from brain.skills.skill import LearnedSkill, PromptSkill, SkillExample, call_from_json
from starling.core.embeddings import Vector
from starling.infra.fast_json import storable_json
from starling.infra.postgres.engine import (
    Engine,
    encoded,
    fetch_autocommit,
    fetch_by_index,
    pipelined_transaction,
)
from starling.infra.postgres.runs.writer import Clause

CANDIDATES: Final = 30  # by vectors, and as many by words
COMPARED_EACH: Final = 5_000  # rows of a tenant; above, the indexes find those that are compared
MOST_MERGED: Final = 9  # further tasks that a skill is compared by
_MATCHING_WORDS: Final = 400  # rows with a word of the task that are ranked, in a large store
_RECOUNT_SECONDS: Final = 600.0

# The id of a further task is that of its skill with a number as its version (8) and fraction of a millisecond, so that
# of two tasks that are stored at once under the last number one is left out. Ordered by calls, of which one skill is in
# use, and by id: all take their locks alike.
STORE: Final = f"""
INSERT INTO skills (tenant, id, merged_into, state, reason, task, template, calls, code, outcome, tools, shape,
    agent_kind, agent, provenance, source_run, source_path, shared_by, model, embedding, words)
SELECT {{tenant}}, key.id, item.merged_into, item.state, item.reason, item.task, item.template, item.calls,
    coalesce(item.code, ''), item.outcome, item.tools, item.shape, item.agent_kind, item.agent, {{origin}}, item.model,
    CAST(item.embedding AS halfvec), array_to_tsvector(ARRAY(SELECT jsonb_array_elements_text(item.words)))
FROM {{beside}} (
    SELECT *, row_number() OVER (PARTITION BY merged_into ORDER BY id) AS position
    FROM jsonb_to_recordset(CAST({{items}} AS jsonb)) AS given (id uuid, merged_into uuid, state text, reason text,
        task text, template text, calls jsonb, code text, outcome text, tools jsonb, shape text, agent_kind text,
        agent text, source_path text, model text, embedding text, words jsonb)) AS item
CROSS JOIN LATERAL (
    SELECT count(*) + item.position AS number FROM skills AS part
    WHERE part.tenant = {{tenant}} AND part.merged_into = item.merged_into) AS part
CROSS JOIN LATERAL (
    SELECT CASE WHEN item.merged_into IS NULL THEN item.id ELSE CAST(overlay(CAST(item.merged_into AS text)
        PLACING '800' || least(part.number, {MOST_MERGED}) FROM 15 FOR 4) AS uuid) END AS id) AS key
WHERE item.merged_into IS NULL OR part.number <= {MOST_MERGED} {{stored}}
ORDER BY item.shape, key.id
ON CONFLICT DO NOTHING"""  # noqa: S608
_NOT_DELETED: Final = """AND EXISTS (
    SELECT FROM skills AS main WHERE main.tenant = fenced.tenant AND main.id = item.merged_into)"""
_OF_RUN: Final = "'run', fenced.id, item.source_path, NULL"
_LEARNED: Final = STORE.format(
    tenant="fenced.tenant", origin=_OF_RUN, beside="fenced CROSS JOIN", items="%(skills)s", stored=_NOT_DELETED
)
_COUNT: Final = """
counted_uses AS MATERIALIZED (
    SELECT skills.tenant, skills.id, skills.uses + item.uses AS uses, skills.successes + item.success AS successes,
        skills.failures + item.failure AS failures,
        CASE WHEN item.success > 0 THEN 0 ELSE skills.consecutive_failures + item.failure END AS consecutive_failures
    FROM fenced, jsonb_to_recordset(%(skill_uses)s::jsonb) AS item (id uuid, uses int, success int, failure int),
        skills
    WHERE skills.tenant = fenced.tenant AND skills.id = item.id
    ORDER BY skills.id FOR UPDATE OF skills),
tallied AS (
    UPDATE skills SET uses = counted.uses, successes = counted.successes, failures = counted.failures,
        consecutive_failures = counted.consecutive_failures, last_used_at = now(),
        state = CASE WHEN skills.state = 'active' AND retired.reason <> '' THEN 'retired' ELSE skills.state END,
        reason = CASE WHEN skills.state = 'active' AND retired.reason <> '' THEN retired.reason ELSE skills.reason END
    FROM counted_uses AS counted, LATERAL (SELECT CASE
        WHEN counted.consecutive_failures >= %(skill_failures)s
            THEN format('It failed %%s times in a row.', counted.consecutive_failures)
        WHEN counted.successes + counted.failures >= %(skill_judged)s
            AND 2 * counted.successes < counted.successes + counted.failures
            THEN format('%%s of %%s tasks that followed it were approved.', counted.successes,
                counted.successes + counted.failures)
        WHEN counted.uses >= %(skill_ignored)s AND counted.successes = 0
            THEN format('None of %%s tasks that had it succeeded by following it.', counted.uses)
        ELSE '' END AS reason) AS retired
    WHERE skills.tenant = counted.tenant AND skills.id = counted.id)"""
_FAILURES_IN_A_ROW: Final = 3
_JUDGED: Final = 8
_IGNORED: Final = 12  # uses: three skills can be shown together, of which a task follows one

# A vector of another length can't be compared; that of a text without words has no direction, so its cosine is NaN.
_COSINE: Final = """
    CASE WHEN part.model = %(model)s AND vector_dims(part.embedding) = %(dimensions)s
        THEN nullif(1 - (part.embedding <=> %(vector)s::halfvec), 'NaN') END AS cosine"""
# The limit keeps Postgres from choosing a join by its estimate, which is the average of all tenants' rows: where most
# have few, it compared each row of a large tenant with each other one.
_MAIN: Final = """JOIN LATERAL (
        SELECT id, merged_into, state, tools, shape, successes FROM skills
        WHERE tenant = part.tenant AND id = coalesce(part.merged_into, part.id) LIMIT 1) AS main ON true"""
# `part.tenant || ''` keeps Postgres from reading its index of tenants, in full for a large one, beside a better index.
_USABLE_PARTS: Final = f"""
    FROM skills AS part {_MAIN}
    WHERE {{tenant}} = %(tenant)s AND main.state = 'active' AND main.tools <@ %(tools)s::jsonb"""
_USABLE: Final = _USABLE_PARTS.format(tenant="part.tenant")
_BY_TOOL: Final = " AND part.tools ?| %(names)s AND part.tools <@ %(tools)s::jsonb"
_ALL: Final = f"""
WITH usable AS MATERIALIZED (
    SELECT main.id AS skill, part.task, part.words, main.successes, part.merged_into, {_COSINE}
    {_USABLE_PARTS}{{by_tool}}),
near AS (
    SELECT skill FROM usable WHERE cosine IS NOT NULL ORDER BY cosine DESC LIMIT {CANDIDATES}),
named AS (
    SELECT skill FROM usable WHERE words @@ %(query)s::tsquery
    ORDER BY ts_rank(words, %(query)s::tsquery) DESC LIMIT {CANDIDATES})
SELECT skill, task, cosine, successes, (SELECT count(*) FROM usable WHERE merged_into IS NULL) FROM usable
WHERE skill IN (SELECT skill FROM near UNION SELECT skill FROM named)"""  # noqa: S608
COMPARE_EACH: Final = _ALL.format(tenant="part.tenant", by_tool="")
_EACH_OF_TOOLS: Final = _ALL.format(tenant="part.tenant || ''", by_tool=_BY_TOOL)
_NEAR: Final = f"""
SELECT main.id
{_USABLE} AND part.tools <@ %(tools)s::jsonb AND part.model = {{model}} AND vector_dims(part.embedding) = {{dimensions}}
ORDER BY part.embedding::halfvec({{dimensions}}) <=> %(vector)s::halfvec({{dimensions}}) LIMIT {CANDIDATES}"""
_NAMED: Final = f"""
WITH found AS MATERIALIZED (
    SELECT part.id, part.words FROM skills AS part
    WHERE part.tenant || '' = %(tenant)s AND part.words @@ %(rare)s::tsquery
        AND part.tools <@ %(tools)s::jsonb
    LIMIT {_MATCHING_WORDS}),
best AS MATERIALIZED (
    SELECT id FROM found ORDER BY ts_rank(words, %(query)s::tsquery) DESC LIMIT {CANDIDATES})
SELECT main.id
{_USABLE} AND part.id IN (SELECT id FROM best)"""  # noqa: S608
_TASKS_OF: Final = f"""
SELECT main.id, part.task, {_COSINE}, main.successes
FROM (
    SELECT * FROM skills WHERE tenant = %(tenant)s AND id = ANY(%(ids)s::uuid[])
    UNION ALL SELECT * FROM skills WHERE tenant = %(tenant)s AND merged_into = ANY(%(ids)s::uuid[])) AS part {_MAIN}"""  # noqa: S608
_ITERATIVE: Final = "SELECT set_config('hnsw.iterative_scan', 'relaxed_order', true)"
# Comparing each of n rows takes as long as the index over all N rows where n² is some 400 N: for each row that it
# returns, the index has to pass N / n rows, which costs more than a comparison.
_USES_INDEX: Final = """
WITH most AS MATERIALIZED (
    SELECT greatest(%(each)s, sqrt(400 * greatest(reltuples, 0)))::bigint AS rows
    FROM pg_class WHERE oid = 'skills'::regclass)
SELECT (SELECT rows FROM most) < (
    SELECT count(*) FROM (
        SELECT FROM skills AS part
        WHERE part.tenant || '' = %(tenant)s AND part.tools ?| %(names)s AND part.tools <@ %(tools)s::jsonb
        LIMIT (SELECT rows + 1 FROM most)) AS found)"""
_FREQUENT: Final = """
SELECT word, share * greatest(reltuples, 0)
FROM pg_class, pg_stats, unnest(most_common_elems::text::text[], most_common_elem_freqs) AS common (word, share)
WHERE pg_class.oid = 'skills'::regclass AND tablename = 'skills' AND attname = 'words' AND schemaname = current_schema()
    AND word IS NOT NULL"""

_OF_SKILLS: Final = """
SELECT merged_into, id, task, template, calls, shape FROM skills WHERE tenant = %(tenant)s AND """
_SKILLS: Final = f"""{_OF_SKILLS} id = ANY(%(ids)s::uuid[])
UNION ALL {_OF_SKILLS} merged_into = ANY(%(ids)s::uuid[]) ORDER BY merged_into NULLS FIRST, id"""
_OF_SHAPE: Final = f"""
SELECT main.id, main.state, part.task,
    {_COSINE}
FROM skills AS part {_MAIN}
WHERE part.tenant = %(tenant)s AND part.shape = %(shape)s AND main.shape = part.shape AND main.merged_into IS NULL
    AND main.tools = %(tools)s::jsonb
ORDER BY cosine DESC NULLS LAST LIMIT %(limit)s"""  # noqa: S608
_CHANGED: Final = "These tools were changed or removed: "
# One statement: two would lock skills in two passes, and so not in the order in which others lock them.
_FOLLOW: Final = text(f"""
UPDATE skills SET state = changed.state, reason = changed.reason
FROM (
    SELECT tenant, id,
        CASE state WHEN 'active' THEN 'suspended' ELSE 'active' END AS state,
        CASE state WHEN 'active' THEN '{_CHANGED}' || (
            SELECT string_agg(key, ', ' ORDER BY key) FROM jsonb_each(skills.tools)
            WHERE value IS DISTINCT FROM CAST(:pins AS jsonb) -> key) || '.' ELSE '' END AS reason
    FROM skills
    WHERE (state = 'active' AND merged_into IS NULL AND NOT tools <@ CAST(:pins AS jsonb))
        OR (state = 'suspended' AND tools <@ CAST(:pins AS jsonb))
    ORDER BY tenant, id FOR UPDATE) AS changed
WHERE skills.tenant = changed.tenant AND skills.id = changed.id""")  # noqa: S608 - a constant
_COUNTED: Final = """
SELECT count(*) FROM (SELECT FROM skills WHERE tenant = %(tenant)s LIMIT %(limit)s) AS found"""


@dataclass(frozen=True, slots=True)
class SkillQuery:
    """A text that skills are compared with: its words, and its vector of `model` where there is one."""

    text: str
    words: Sequence[str]
    vector: Vector | None = None
    model: str | None = None

    @property
    def vector_text(self) -> str | None:
        """The vector as Postgres reads it."""
        return None if self.vector is None else HalfVector(list(self.vector)).to_text()

    def values(self) -> dict[str, Any]:
        """Return the parameters of queries."""
        return {
            "vector": self.vector_text,
            "dimensions": len(self.vector) if self.vector is not None else None,
            "model": self.model,
            "query": _any_of(self.words),
        }


@dataclass(frozen=True, slots=True)
class SkillUse:
    """That a task's prompt had a skill, and whether the task followed it with success or without."""

    skill_id: str
    success: bool = False
    failure: bool = False


@dataclass(frozen=True, slots=True)
class NewSkill:
    """A skill to be stored, or a further task of the one that it is merged into; `query` has its task's vector."""

    id: str
    skill: LearnedSkill
    query: SkillQuery
    merged_into: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the columns of its row."""
        return {
            **asdict(self.skill),
            "id": self.id,
            "merged_into": self.merged_into,
            "state": "quarantined" if self.skill.suspicion else "active",
            "reason": self.skill.suspicion,
            "calls": [call.to_json() for call in self.skill.calls],
            "shape": self.skill.shape,
            "model": self.query.model,
            "embedding": self.query.vector_text,
            "words": list(self.query.words),
        }


@dataclass(frozen=True, slots=True)
class Candidates:
    """All tasks of each skill that may fit, and the number of skills that they were found among.

    In a large store the number is a lower bound.
    """

    examples: Sequence[SkillExample]
    skills: int


def storing(learned: Sequence[NewSkill], uses: Sequence[SkillUse]) -> Clause:
    """Return the part of a flush that stores skills, and that counts uses and retires skills that failed too often."""
    parts: list[str] = []
    values: dict[str, Any] = {}
    if learned:
        parts.append(f"learned AS ({_LEARNED})")
        values["skills"] = _json([item.to_json() for item in learned])
    if uses:
        parts.append(_COUNT)
        items: dict[str, dict[str, Any]] = {}  # one for each skill: tasks that end together may have had the same one
        for use in uses:
            item = items.setdefault(use.skill_id, {"id": use.skill_id, "uses": 0, "success": 0, "failure": 0})
            item["uses"] += 1
            item["success"] += use.success
            item["failure"] += use.failure
        found = _json(list(items.values()))
        values |= {"skill_uses": found, "skill_ignored": _IGNORED}
        values |= {"skill_failures": _FAILURES_IN_A_ROW, "skill_judged": _JUDGED}
    return Clause(",\n".join(parts), values)


def suspension(tools: Mapping[str, str], pins: Mapping[str, str]) -> str:
    """Return the reason why a skill of these tools is suspended, empty if they all are as in `pins`."""
    gone = sorted(name for name, pin in tools.items() if pins.get(name) != pin)
    return f"{_CHANGED}{', '.join(gone)}." if gone else ""


async def follow_tools(connection: AsyncConnection, pins: Mapping[str, str]) -> None:
    """Suspend skills of all tenants whose tools aren't those of `pins` any more; take up those whose tools are back.

    `pins` has the hash of each tool's definition, by full name. A part of the connection's transaction.
    """
    await connection.execute(_FOLLOW, {"pins": _json(pins)})


class SkillRepository:
    """Reads skills. Up to `each` of those that a task may use are compared one by one."""

    def __init__(self, engine: Engine, each: int = COMPARED_EACH) -> None:
        self._engine = engine
        self._each = each
        self._large: dict[tuple[str, str], tuple[bool, float]] = {}
        self._frequent: Mapping[str, float] = {}  # words, and about how many rows have each
        self._frequent_until = 0.0

    async def count(self, tenant: str, limit: int) -> int:
        """Return how many tasks of skills a tenant has, at most `limit`. Raises DatabaseUnavailableError."""
        rows = await fetch_by_index(self._engine, _COUNTED, {"tenant": tenant, "limit": limit})
        return int(rows[0][0])

    async def candidates(self, tenant: str, tools: Mapping[str, str], query: SkillQuery) -> Candidates:
        """Return what may fit, of active skills whose tools are all among `tools`, as they are now.

        Each of the tenant's tasks is compared. Raises DatabaseUnavailableError.
        """
        return await self._compared(COMPARE_EACH, _values(tenant, tools, query))

    async def candidates_by_index(self, tenant: str, tools: Mapping[str, str], query: SkillQuery) -> Candidates:
        """Return what `candidates` returns, found by the indexes: for large stores. Raises DatabaseUnavailableError.

        Where few skills need only these tools, each of them is compared. Else the index of the vectors and the rarest
        words of the task find the candidates: the nearest vectors are found nearly always, not always.
        """
        values = _values(tenant, tools, query)
        if not await self._uses_index(tenant, values):
            return await self._compared(_EACH_OF_TOOLS, values)
        rare = await self._rare(query)
        statements = [*([nearest_statement(query)] if query.vector is not None else []), *([_NAMED] if rare else [])]
        values["rare"] = _any_of(rare)
        async with pipelined_transaction(self._engine) as connection:
            await connection.execute(_ITERATIVE)
            cursors = [await connection.execute(encoded(statement), values) for statement in statements]
            values["ids"] = list({str(key) for cursor in cursors for (key,) in await cursor.fetchall()})
            cursor = await connection.execute(encoded(_TASKS_OF), values)
            return Candidates([_example(*row) for row in await cursor.fetchall()], COMPARED_EACH)

    async def _compared(self, statement: str, values: Mapping[str, Any]) -> Candidates:
        rows = await fetch_by_index(self._engine, statement, values)
        return Candidates([_example(*row[:-1]) for row in rows], int(rows[0][-1]) if rows else 0)

    async def _uses_index(self, tenant: str, values: Mapping[str, Any]) -> bool:
        """Return whether so many skills of a tenant need only some tools that the indexes are faster."""
        key, now = (tenant, str(values["tools"])), monotonic()
        known, until = self._large.get(key, (False, 0.0))
        if now < until:
            return known
        rows = await fetch_autocommit(self._engine, _USES_INDEX, {**values, "each": self._each})
        self._large = {other: state for other, state in self._large.items() if state[1] > now}
        self._large[key] = bool(rows[0][0]), now + _RECOUNT_SECONDS
        return self._large[key][0]

    async def _rare(self, query: SkillQuery) -> list[str]:
        """Return the words of a task that few skills have: together they find at most some 400 rows.

        Without a vector, the rarest word in any case.
        """
        if monotonic() >= self._frequent_until:
            rows = await fetch_autocommit(self._engine, _FREQUENT, {})
            self._frequent = {str(word): float(count) for word, count in rows}
            self._frequent_until = monotonic() + _RECOUNT_SECONDS
        words = sorted(query.words, key=lambda word: self._frequent.get(word, 0.0))
        rows_so_far = accumulate(self._frequent.get(word, 0.0) for word in words)
        rare = [word for word, count in zip(words, rows_so_far, strict=True) if count <= _MATCHING_WORDS]
        return rare or (words[:1] if query.vector is None else [])

    async def recalled(self, tenant: str, ids: Sequence[str]) -> list[tuple[str, PromptSkill]]:
        """Return the tasks of skills, the first ones first, each with its skill. Raises DatabaseUnavailableError."""
        rows = await fetch_by_index(self._engine, _SKILLS, {"tenant": tenant, "ids": list(ids)})
        return [
            (task, PromptSkill(str(main or key), text, tuple(map(call_from_json, calls)), shape))
            for main, key, task, text, calls, shape in rows
        ]

    async def alike(self, tenant: str, skill: LearnedSkill, query: SkillQuery) -> list[SkillExample]:
        """Return the nearest tasks of skills with the same calls, in any state. Raises DatabaseUnavailableError."""
        wanted = {"shape": skill.shape, "tools": _json(skill.tools), "limit": CANDIDATES}
        rows = await fetch_by_index(self._engine, _OF_SHAPE, {"tenant": tenant, **wanted, **query.values()})
        return [SkillExample(str(key), task, cosine, state) for key, state, task, cosine in rows]


def _values(tenant: str, tools: Mapping[str, str], query: SkillQuery) -> dict[str, Any]:
    return {"tenant": tenant, "tools": _json(tools), "names": list(tools), **query.values()}


def _example(skill: object, task: str, cosine: float | None, successes: int) -> SkillExample:
    return SkillExample(str(skill), task, cosine, successes=successes)


def nearest_statement(query: SkillQuery) -> str:
    """Return the statement that uses a model's index, whose condition has to be in the text of the statement."""
    assert query.vector is not None
    assert query.model is not None
    model = "'" + query.model.replace("'", "''") + "'"
    return _NEAR.format(model=model.replace("%", "%%"), dimensions=len(query.vector))


def _any_of(words: Sequence[str]) -> str:
    """Return a query for texts with at least one of these words, which have no white space or punctuation."""
    return " | ".join(f"'{word}'" for word in dict.fromkeys(words))


def _json(value: object) -> str:
    return storable_json(value).decode()
