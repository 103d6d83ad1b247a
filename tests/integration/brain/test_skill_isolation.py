"""What Postgres reads for one tenant's skills doesn't depend on those of the others, so its time tells nothing of them.

Counted by Postgres itself, for the statements as they are executed: rows of tables and of indexes, and pages.
"""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from brain.registry.cards import AgentCard
from brain.retrieval.text_similarity import content_words
from brain.skills.catalog.repository import SkillCatalog, SkillFilter
from brain.skills.embedding_upkeep import SkillUpkeep
from brain.skills.memory import SkillMemory
from brain.skills.repository import COMPARE_EACH, SkillQuery, SkillRepository
from brain.skills.skill import LearnedSkill, SkillCall
from starling.core.clock import SystemClock
from starling.core.tool_calls import Effect
from starling.core.tools import ToolDefinition
from starling.core.tracing import NOOP_TRACER
from starling.infra.embeddings.static_vectors import StaticEmbedder
from starling.infra.postgres.engine import (
    ConnectionLimits,
    Engine,
    connected,
    execute_autocommit,
    fetch_autocommit,
    open_engine,
    transaction,
)

TASK = "Look at the left disk."
TOOL = ToolDefinition("bench", "look", "Look.", {"type": "object"}, None, Effect.READ, "1")
CARD = AgentCard("mcp_agent_bench", "specialist", "", "bench", (TOOL,))
EMBEDDER = StaticEmbedder()
OF_OTHERS, UNKNOWN = 6_000, "00000000-0000-0000-0000-000000000001"
LEARNED = LearnedSkill(
    TASK, TASK, (SkillCall("bench.look", {}),), "Done.", {"bench.look": "1"}, "specialist", CARD.name, "t1"
)
_ADD = """
INSERT INTO skills (tenant, id, task, template, calls, outcome, tools, shape, agent_kind, agent, provenance, model,
    embedding, words)
SELECT format(%(tenant)s, number %% 200), gen_random_uuid(), %(task)s, %(task)s, '[]', 'Done.', '{"bench.look": "1"}',
    %(shape)s || CASE WHEN number > 1 THEN number::text ELSE '' END, 'specialist', 'mcp_agent_bench', 'run', 'static',
    %(vector)s::halfvec, array_to_tsvector(%(words)s)
FROM generate_series(1, %(count)s) AS number
RETURNING 1"""
_READS = """
SELECT seq_tup_read, (SELECT sum(idx_tup_read)::int FROM pg_stat_user_indexes WHERE relid = rows.relid), idx_scan,
    heap_blks_read + heap_blks_hit + idx_blks_read + idx_blks_hit
FROM pg_stat_user_tables AS rows JOIN pg_statio_user_tables AS pages USING (relid) WHERE rows.relname = 'skills'"""
_OTHERS = """
SELECT pid FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type <> 'autovacuum worker'"""

type Act = Callable[[Engine], Awaitable[object]]


@dataclass(frozen=True)
class Reads:
    """What was read of the table of skills: rows without an index, entries of indexes, searches in these, pages."""

    unindexed: int
    entries: int
    searches: int
    pages: int


async def recall(engine: Engine) -> object:
    return await memory(engine).recall("own", CARD, TASK)


async def place(engine: Engine) -> object:
    """What a task does that ends: its skill is compared with those of the same calls."""
    return await memory(engine).placed("own", LEARNED)


async def list_all(engine: Engine) -> object:
    return await SkillCatalog(engine).latest("own", limit=50)


async def list_of_agent(engine: Engine) -> object:
    which = SkillFilter(states=["active"], agent=CARD.name, ending="0001")
    return await SkillCatalog(engine).latest("own", limit=50, which=which)


async def show(engine: Engine) -> object:
    return await SkillCatalog(engine).named("own", [UNKNOWN]), await SkillCatalog(engine).tasks("own", [UNKNOWN])


def memory(engine: Engine) -> SkillMemory:
    """A memory that has read nothing yet."""
    return SkillMemory(SkillRepository(engine), EMBEDDER, lambda text: text, NOOP_TRACER, SystemClock())


@pytest.fixture
async def engine(database_url: str, request: pytest.FixtureRequest) -> AsyncGenerator[Engine]:
    """An engine with one connection, on a database where nothing but the test reads skills."""
    behind_pooler = getattr(request, "param", False)
    engine = open_engine(database_url, ConnectionLimits(size=1, behind_pooler=behind_pooler))
    async with transaction(engine) as connection:
        await connection.execute("ALTER TABLE skills SET (autovacuum_enabled = false)")
    yield engine
    await engine.dispose()


async def add(engine: Engine, tenant: str, count: int) -> None:
    """Store skills of one task, one with the calls of LEARNED; `%s` in the tenant stands for a number below 200."""
    query = await memory(engine).query("own", TASK)
    values = {"task": TASK, "shape": LEARNED.shape, "vector": query.vector_text, "words": list(query.words)}
    await execute_autocommit(engine, _ADD, {"tenant": tenant, "count": count, **values})


async def analyze(engine: Engine) -> None:
    async with transaction(engine) as connection:
        await connection.execute("ANALYZE skills")


async def reads_of(engine: Engine, act: Act) -> Reads:
    """Return what is read once the statements are prepared, and other sessions have counted what they read."""
    while await fetch_autocommit(engine, _OTHERS, {}):
        pass
    for _ in range(5):
        await act(engine)
    before = await _read(engine)
    await act(engine)
    after = await _read(engine)
    return Reads(*(now - then for now, then in zip(after, before, strict=True)))


async def _read(engine: Engine) -> tuple[int, ...]:
    await fetch_autocommit(engine, "SELECT pg_stat_force_next_flush()::text", {})
    return (await fetch_autocommit(engine, _READS, {}))[0]


@pytest.mark.parametrize("own", [0, 3])
@pytest.mark.parametrize("act", [recall, place, list_all, list_of_agent, show])
async def test_what_is_read_for_a_tenant_is_the_same_beside_thousands_of_equal_skills_of_another(
    engine: Engine, database_url: str, act: Act, own: int
) -> None:
    await add(engine, "own", own)
    await analyze(engine)
    alone = await reads_of(engine, act)

    await add(engine, "other", OF_OTHERS)
    await analyze(engine)
    beside = await reads_of(engine, act)
    await SkillUpkeep(database_url, EMBEDDER, large=OF_OTHERS - 1).sweep()
    beside_indexed = await reads_of(engine, act)

    for found in (beside, beside_indexed):
        assert replace(found, pages=0) == replace(alone, pages=0)
        assert found.pages <= alone.pages + 2 * alone.searches  # an index over more rows may have two more levels
    assert beside.unindexed == 0
    assert beside.entries <= 4 * own  # of the tenant alone: its skills are counted, compared and read


@pytest.mark.parametrize("engine", [False, True], ids=["direct", "behind a pooler"], indirect=True)
async def test_no_skill_of_others_is_read_for_a_tenant_that_has_most_of_all_skills(engine: Engine) -> None:
    """Reading the whole table would be faster."""
    await add(engine, "own", 600)
    await add(engine, "other", 400)
    await analyze(engine)

    found = await reads_of(engine, recall)

    assert (found.unindexed, found.entries) == (0, 3 * 600 + 3)  # counted, compared with its own skill; three read


async def test_each_skill_of_a_tenant_is_compared_once_whatever_the_other_tenants_have(
    engine: Engine, database_url: str
) -> None:
    """Where most tenants have few skills, Postgres expects few of each."""
    await add(engine, "own", 300)
    await add(engine, "other%s", 400)
    (vector,) = await EMBEDDER.embed([TASK])
    query = SkillQuery(TASK, content_words(TASK), vector, EMBEDDER.name)
    values = {"tenant": "own", "tools": json.dumps({"bench.look": "1"}), **query.values()}

    async with connected(database_url) as connection:
        explained = f"EXPLAIN (ANALYZE, FORMAT JSON) {COMPARE_EACH}".encode()
        ((found,),) = await (await connection.execute(explained, values)).fetchall()

    assert _removed(found[0]["Plan"]) == 0


def _removed(plan: dict[str, Any]) -> int:
    """Return how many pairs of rows were compared in vain."""
    return plan.get("Rows Removed by Join Filter", 0) + sum(map(_removed, plan.get("Plans", ())))
