"""The vectors of skills in Postgres: made anew for another model, indexed once a store is large, found either way."""

import asyncio
import json
from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest
from pgvector import HalfVector

from brain.retrieval.text_similarity import content_words
from brain.skills.embedding_upkeep import SkillUpkeep
from brain.skills.memory import SkillMemory
from brain.skills.repository import CANDIDATES, COMPARED_EACH, SkillQuery, SkillRepository, nearest_statement
from starling.core.background_tasks import in_background
from starling.core.clock import SystemClock
from starling.core.embeddings import Vector
from starling.core.errors import DatabaseUnavailableError
from starling.core.ids import new_id
from starling.core.tool_calls import Effect
from starling.core.tools import ToolDefinition
from starling.core.tracing import NOOP_TRACER
from starling.infra.embeddings.static_vectors import StaticEmbedder
from starling.infra.postgres.engine import Engine, connected, execute_autocommit, fetch_autocommit
from starling.infra.postgres.skill_vectors import open_skill_vectors
from tests.integration.brain.conftest import Open
from tests.support.platform import Platform

TOOLS = {"desk.find": "1", "desk.file": "2"}
FIND = ToolDefinition("desk", "find", "", {}, None, Effect.READ, "1")
COLORS, THINGS = ("red", "green", "blue", "old", "large"), ("book", "map", "key", "lamp", "coin", "bell", "box", "pen")
SHELVES = [f"Find the {color} {thing} on shelf {at}." for at, (color, thing) in enumerate(product(COLORS, THINGS))]
SHORT = [0.1, 0.2, 0.3]
_ADD = """
INSERT INTO skills (tenant, id, task, template, calls, outcome, tools, shape, agent_kind, agent, provenance, model,
    embedding, words)
SELECT tenant, id, task, task, '[]', 'done', tools, task, 'specialist', 'desk', 'run', model, embedding::halfvec,
    array_to_tsvector(words)
FROM jsonb_to_recordset(%(rows)s::jsonb) AS item (tenant text, id uuid, task text, tools jsonb, model text,
    embedding text, words text[])
RETURNING 1"""
_FULL_DISK = b"""
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100';
END $$;
CREATE TRIGGER refuse BEFORE UPDATE ON skills FOR EACH ROW EXECUTE FUNCTION refuse()"""


class CountingEmbedder(StaticEmbedder):
    """The built-in embedder, with the texts that it was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        self.asked += texts
        return await super().embed(texts)


class ShortEmbedder(StaticEmbedder):
    """Another model: its vectors have three dimensions, which it tells after the first text."""

    name = "other:short"
    dimensions = 0

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        self.dimensions = 3
        return [vector[:3] for vector in await super().embed(texts)]


def row(
    tenant: str, task: str, vector: Sequence[float] | None, model: str | None = "static", tool: str = "desk.find"
) -> dict[str, Any]:
    """A stored skill of one tool."""
    embedding = HalfVector(list(vector)).to_text() if vector is not None else None
    words = list(dict.fromkeys(content_words(task)))
    fields = {"tenant": tenant, "id": new_id(), "task": task, "tools": {tool: TOOLS[tool]}}
    return {**fields, "model": model, "embedding": embedding, "words": words}


async def add(engine: Engine, *rows: dict[str, Any]) -> None:
    await execute_autocommit(engine, _ADD, {"rows": json.dumps(rows)})


async def embedded(tenant: str, tasks: Sequence[str], tool: str = "desk.find") -> list[dict[str, Any]]:
    vectors = await StaticEmbedder().embed(tasks)
    return [row(tenant, task, vector, tool=tool) for task, vector in zip(tasks, vectors, strict=True)]


async def query(text: str) -> SkillQuery:
    (vector,) = await StaticEmbedder().embed([text])
    return SkillQuery(text, content_words(text), vector, "static")


async def indexes(engine: Engine) -> dict[str, bool]:
    statement = """SELECT indexrelid::regclass::text, indisvalid FROM pg_index
        WHERE indrelid = 'skills'::regclass AND starts_with(indexrelid::regclass::text, 'skills_large_')"""
    return dict(await fetch_autocommit(engine, statement, {}))


async def test_sweep_embeds_skills_without_a_vector_of_the_configured_model(engine: Engine, database_url: str) -> None:
    tasks = ["Find the red book.", "Find the green map.", "Find the blue key.", "Find the old lamp."]
    (known,) = await embedded("a", tasks[:1])
    others = row("a", tasks[1], SHORT, "other:m"), row("b", tasks[2], None, None), row("b", tasks[3], SHORT, "static")
    await add(engine, known, *others)
    embedder = CountingEmbedder()

    await SkillUpkeep(database_url, embedder).sweep()
    await SkillUpkeep(database_url, embedder).sweep()

    assert sorted(embedder.asked) == sorted(tasks[1:])
    found = await SkillRepository(engine).candidates("b", TOOLS, await query(tasks[3]))
    cosines = {one.text: one.cosine for one in found.examples}
    assert cosines[tasks[3]] == pytest.approx(1, abs=0.01)
    assert cosines[tasks[2]]


async def test_write_that_a_full_disk_refuses_is_reported(engine: Engine, database_url: str) -> None:
    await add(engine, row("a", "Find the red book.", None, None))
    async with connected(database_url) as connection:
        await connection.execute(_FULL_DISK)
    failures: asyncio.Queue[DatabaseUnavailableError] = asyncio.Queue()
    upkeep = SkillUpkeep(database_url, StaticEmbedder(), on_failure=failures.put_nowait)

    async with in_background(upkeep.repeat(), "skill-upkeep"):
        failure = await failures.get()

    assert "No space left on device" in failure.message


async def test_model_that_tells_its_dimensions_late_is_swept(engine: Engine, database_url: str) -> None:
    await add(engine, *await embedded("a", SHELVES[:3]))

    await SkillUpkeep(database_url, ShortEmbedder(), large=2).sweep()

    models = await fetch_autocommit(engine, "SELECT DISTINCT model, vector_dims(embedding) FROM skills", {})
    assert models == [("other:short", 3)]
    assert set((await indexes(engine)).values()) == {True}


async def test_index_of_a_large_store_is_what_the_statement_of_recall_reads(engine: Engine, database_url: str) -> None:
    await add(engine, *await embedded("large", SHELVES), *await embedded("small", SHELVES[:3]))
    upkeep = SkillUpkeep(database_url, StaticEmbedder(), large=len(SHELVES) - 1)
    wanted = await query("Find the large bell.")

    await upkeep.sweep()

    values = {"tenant": "large", "tools": json.dumps(TOOLS), **wanted.values()}
    async with connected(database_url) as connection:
        await connection.execute("SET enable_seqscan = off")
        await connection.execute("SET enable_sort = off")
        plan = await (await connection.execute(f"EXPLAIN {nearest_statement(wanted)}".encode(), values)).fetchall()
    (used,) = set(await indexes(engine)) - {"skills_large_tools"}
    assert any(f"Index Scan using {used}" in line for (line,) in plan)


async def test_store_that_is_not_large_has_no_index(engine: Engine, database_url: str) -> None:
    await add(engine, *await embedded("a", SHELVES[:20]), *await embedded("b", SHELVES[:20]))

    await SkillUpkeep(database_url, StaticEmbedder(), large=20).sweep()

    assert await indexes(engine) == {}


@pytest.mark.parametrize("tools", [TOOLS, {"desk.find": "1"}], ids=["all tools", "one tool"])
async def test_nearest_tasks_are_found_by_the_index_as_by_comparing_each(
    engine: Engine, database_url: str, tools: dict[str, str]
) -> None:
    """With 1,200 tasks, 900 of them of one tool, both agents are above the size from which on the indexes are read."""
    words = product(COLORS, THINGS, THINGS, ("open", "close", "lend", "clean"))
    tasks = [
        f"Find the {one} {thing} by the {other} on {at}, {act} it." for at, (one, thing, other, act) in enumerate(words)
    ]
    await add(engine, *await embedded("large", tasks[:900]), *await embedded("large", tasks[900:1_200], "desk.file"))
    await SkillUpkeep(database_url, StaticEmbedder(), large=1_000).sweep()
    repository = SkillRepository(engine, each=0)
    found = wanted = 0

    for at in range(20):
        asked = await query(
            f"Could you {('fetch', 'open')[at % 2]} a {COLORS[at % 5]} {THINGS[at % 8]} from shelf {at}?"
        )
        exact = await SkillRepository(engine).candidates("large", tools, asked)
        nearest = sorted(exact.examples, key=lambda one: one.cosine or 0, reverse=True)[:10]
        by_index = await repository.candidates_by_index("large", tools, asked)
        wanted, found = (
            wanted + len(nearest),
            found + len({one.text for one in nearest} & {one.text for one in by_index.examples}),
        )
        assert by_index.skills == COMPARED_EACH  # the indexes don't count

    assert found >= 0.95 * wanted


@pytest.mark.parametrize("has_vector", [True, False], ids=["with a vector", "without"])
async def test_task_with_a_rare_word_is_found_by_the_index_as_by_comparing_each(
    engine: Engine, database_url: str, *, has_vector: bool
) -> None:
    """All 900 tasks have the other words, of which at most 400 are ranked; the last ones can't be found by vectors."""
    await add(engine, *await embedded("a", [f"Keep the parcel in room {at}." for at in range(900)]))
    await SkillUpkeep(database_url, StaticEmbedder(), large=100).sweep()
    foreign = "UPDATE skills SET model = 'other:m' WHERE task ~ 'room 8[89][0-9]' RETURNING 1"
    assert len(await fetch_autocommit(engine, foreign, {})) == 20
    async with connected(database_url) as connection:
        await connection.execute("ANALYZE skills")
    each, by_index = SkillRepository(engine), SkillRepository(engine, each=0)

    for at in range(880, 900):
        asked = await query(f"Keep a parcel for room {at}.")
        asked = asked if has_vector else SkillQuery(asked.text, asked.words)
        exact = await each.candidates("a", TOOLS, asked)
        found = await by_index.candidates_by_index("a", TOOLS, asked)

        wanted = {f"Keep the parcel in room {at}."}
        assert wanted <= {one.text for one in exact.examples}
        assert wanted <= {one.text for one in found.examples}
        assert found.skills == COMPARED_EACH  # the indexes don't count


async def test_task_of_frequent_words_without_a_vector_is_compared_by_the_rarest(
    engine: Engine, database_url: str
) -> None:
    await add(engine, *await embedded("a", [f"Keep the parcel in room {at}." for at in range(900)]))
    await SkillUpkeep(database_url, StaticEmbedder(), large=100).sweep()
    async with connected(database_url) as connection:
        await connection.execute("ANALYZE skills")
    repository = SkillRepository(engine, each=0)

    found = await repository.candidates_by_index("a", TOOLS, SkillQuery("The parcel.", content_words("The parcel.")))

    assert len(found.examples) == CANDIDATES


@pytest.mark.parametrize("each", [5_000, 0], ids=["compared each", "by the indexes"])
async def test_all_tasks_of_a_skill_that_may_fit_are_compared(engine: Engine, database_url: str, each: int) -> None:
    """Sixty tasks of others are nearer than the further tasks of the skill with the nearest one."""
    near = await embedded("a", [f"Find the red book {at}." for at in range(500)])
    far = await embedded("a", ["Find the red book.", "Wash the car.", "Sing."])
    await add(engine, *near, *far)
    merge = "UPDATE skills SET merged_into = %(id)s WHERE id = ANY(%(ids)s::uuid[]) RETURNING 1"
    await execute_autocommit(engine, merge, {"id": far[0]["id"], "ids": [one["id"] for one in far[1:]]})
    await SkillUpkeep(database_url, StaticEmbedder(), large=100).sweep()
    repository = SkillRepository(engine, each)

    search = repository.candidates if each else repository.candidates_by_index
    found = await search("a", TOOLS, await query("Find the red book."))

    assert {one.text for one in found.examples if one.skill_id == far[0]["id"]} == {one["task"] for one in far}
    assert found.skills >= 501


async def test_build_that_was_interrupted_is_done_again(engine: Engine, database_url: str) -> None:
    await add(engine, *await embedded("a", SHELVES))
    upkeep = SkillUpkeep(database_url, StaticEmbedder(), large=1)
    async with connected(database_url) as other:
        await other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        await other.execute("SELECT count(*) FROM skills")  # a snapshot that the build has to wait for
        build = asyncio.create_task(upkeep.sweep())
        while not await indexes(engine):  # noqa: ASYNC110 - it is Postgres that builds
            await asyncio.sleep(0.01)
        build.cancel()
        await asyncio.gather(build, return_exceptions=True)
        await other.execute("ROLLBACK")
    left = await indexes(engine)

    while not await upkeep.sweep():  # noqa: ASYNC110 - until the server has ended the session of the cancelled build
        await asyncio.sleep(0.01)

    assert set(left.values()) == {False}
    assert list((await indexes(engine)).values()) == [True, True]


async def test_sweep_leaves_the_work_to_the_process_that_does_it(engine: Engine, database_url: str) -> None:
    await add(engine, row("a", "Find the red book.", None, None))
    embedder = CountingEmbedder()

    async with open_skill_vectors(database_url) as first:
        swept = await SkillUpkeep(database_url, embedder).sweep()

    assert first is not None
    assert (swept, embedder.asked) == (False, [])


async def test_index_of_a_former_model_is_dropped(engine: Engine, database_url: str) -> None:
    await add(engine, *await embedded("a", SHELVES))
    await SkillUpkeep(database_url, ShortEmbedder(), large=1).sweep()
    former = await indexes(engine)

    await SkillUpkeep(database_url, StaticEmbedder(), large=1).sweep()

    assert len(former) == len(await indexes(engine)) == 2
    assert set(former) & set(await indexes(engine)) == {"skills_large_tools"}


async def test_of_two_processes_with_different_models_the_one_started_last_makes_vectors(
    engine: Engine, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    earlier_embedder = CountingEmbedder()
    earlier = SkillUpkeep(database_url, earlier_embedder, large=1)
    later = SkillUpkeep(database_url, ShortEmbedder(), large=1)
    await add(engine, *await embedded("a", SHELVES[:10]))
    await earlier.sweep()
    await later.sweep()
    indexed = await indexes(engine)
    await add(engine, *await embedded("a", SHELVES[10:12]))  # learned in the earlier process meanwhile

    swept = [await earlier.sweep(), await earlier.sweep(), await later.sweep()]

    models = await fetch_autocommit(engine, "SELECT DISTINCT model FROM skills", {})
    assert (swept, models, earlier_embedder.asked) == ([False, False, True], [("other:short",)], [])
    assert await indexes(engine) == indexed
    assert [record.args for record in caplog.records if "STARLING_EMBEDDINGS" in record.message] == [
        ("other:short", "static")
    ]


async def test_skill_with_a_vector_of_another_model_is_recalled_by_its_words(engine: Engine) -> None:
    await add(engine, row("a", "Find the red book on shelf 7.", SHORT, "other:short"))
    repository = SkillRepository(engine)
    memory = SkillMemory(repository, StaticEmbedder(), lambda text: text, NOOP_TRACER, SystemClock())

    found = await memory.search("a", [FIND], "Please find the red book on shelf 7.")

    assert len(found.recalled) == 1
    assert found.cut == pytest.approx(0.29)  # that of one skill with one task, without vectors


async def test_vector_of_another_length_is_ignored_by_recall_and_by_the_index(
    engine: Engine, database_url: str
) -> None:
    await add(engine, *await embedded("a", SHELVES))
    await SkillUpkeep(database_url, StaticEmbedder(), large=1).sweep()

    await add(engine, row("a", "Find the golden door.", SHORT), row("a", "Open the golden gate.", [0.0] * 256))

    wanted = await query("Find the golden door.")
    for found in (
        await SkillRepository(engine).candidates("a", TOOLS, wanted),
        await SkillRepository(engine, each=0).candidates_by_index("a", TOOLS, wanted),
    ):
        cosines = {one.text: one.cosine for one in found.examples if "golden" in one.text}
        assert cosines == {"Find the golden door.": None, "Open the golden gate.": None}


async def test_worker_embeds_skills_of_another_model_from_its_start_on(platform: Platform, opened: Open) -> None:
    engine = platform.services.storage.engine
    await add(engine, row("a", "Find the red book.", SHORT, "other:m"))
    models = "SELECT model FROM skills"

    async with opened():
        while await fetch_autocommit(engine, models, {}) != [("static",)]:  # noqa: ASYNC110 - it is another task
            await asyncio.sleep(0.01)
