"""What a flush stores: at most nine further tasks of a skill, however many tasks end at the same time; its record."""

import asyncio
from collections.abc import Sequence

import pytest
from psycopg import AsyncConnection

from brain.skills.catalog.repository import SkillCatalog
from brain.skills.memory import SkillMemory
from brain.skills.repository import MOST_MERGED, NewSkill, SkillQuery, SkillRepository, SkillUse, storing
from brain.skills.skill import LearnedSkill, SkillCall
from starling.core.clock import SystemClock
from starling.core.ids import new_id
from starling.core.tool_calls import Effect
from starling.core.tools import ToolDefinition
from starling.core.tracing import NOOP_TRACER
from starling.infra.postgres.engine import Engine, connected
from tests.support.run_factories import wait_for_lock_waiter

CALLS = (SkillCall("bench.look", {}),)


def learned(skills: Sequence[tuple[str, str | None]], source: str, tool: str) -> list[NewSkill]:
    """Return skills by id and by the one that each is merged into; its tool is another one's unless it is given."""
    return [
        NewSkill(
            key,
            LearnedSkill(
                f"Look at {n}.",
                "Look.",
                CALLS,
                "Done.",
                {"bench.look": tool or into or key},
                "specialist",
                "a",
                f"t{n}",
            ),
            SkillQuery(source, ["look"]),
            into,
        )
        for n, (key, into) in enumerate(skills)
    ]


def further(main: str, count: int) -> list[tuple[str, str | None]]:
    return [(new_id(), main) for _ in range(count)]


async def store(
    connection: AsyncConnection, skills: Sequence[tuple[str, str | None]], uses: Sequence[SkillUse] = (), tool: str = ""
) -> None:
    """Store what the tasks of one run teach and use, as its flush does."""
    clause = storing(learned(skills, new_id(), tool), uses)
    statement = f"WITH fenced AS (SELECT 'a' AS tenant, %(run)s::uuid AS id), {clause.sql} SELECT FROM fenced"  # noqa: S608
    await connection.execute(statement.encode(), {"run": new_id(), **clause.values})


async def tasks_of(engine: Engine, main: str) -> list[str]:
    return [found.task for found in (await SkillCatalog(engine).tasks("a", [main]))[main]]


async def test_further_tasks_of_one_run_are_stored_up_to_nine_in_their_order(engine: Engine, database_url: str) -> None:
    main = new_id()
    async with connected(database_url) as connection:
        await store(connection, [(main, None)])

        await store(connection, further(main, 12))

    assert await tasks_of(engine, main) == [f"Look at {n}." for n in range(MOST_MERGED)]


@pytest.mark.parametrize(
    ("successes", "uses", "reason"),
    [
        (0, 11, ""),
        (0, 12, "None of 12 tasks that had it succeeded by following it."),
        (1, 13, ""),
    ],
)
async def test_skill_that_twelve_tasks_had_and_none_followed_is_retired(
    engine: Engine, database_url: str, successes: int, uses: int, reason: str
) -> None:
    main = new_id()
    async with connected(database_url) as connection:
        await store(connection, [(main, None)])

        for number in range(uses):
            await store(connection, [], [SkillUse(main, success=number < successes)])

    (skill,) = await SkillCatalog(engine).latest("a", limit=9)
    assert (skill.state, skill.reason) == ("retired" if reason else "active", reason)


async def test_recalled_skill_is_shown_as_its_nearest_task_had_it(engine: Engine, database_url: str) -> None:
    main = new_id()
    async with connected(database_url) as connection:
        await store(connection, [(main, None)], tool="1")
        await store(connection, further(main, 2), tool="1")
        await connection.execute(
            "UPDATE skills SET task = 'Wash the car.', template = 'Wash it.' WHERE id = %s", [main]
        )
    tool = ToolDefinition("bench", "look", "", {}, None, Effect.READ, "1")
    memory = SkillMemory(SkillRepository(engine), None, lambda text: text, NOOP_TRACER, SystemClock())

    (shown,) = (await memory.search("a", [tool], "Look at 1.")).recalled

    assert (shown.id, shown.template, shown.known) == (main, "Look.", True)


async def test_further_task_of_a_skill_that_was_deleted_meanwhile_is_not_stored(
    engine: Engine, database_url: str
) -> None:
    main, catalog = new_id(), SkillCatalog(engine)
    async with connected(database_url) as connection:
        await store(connection, [(main, None)])
        await store(connection, further(main, 2))
        async with catalog.changing() as changing:
            await catalog.delete(changing, "a", main)

        await store(connection, further(main, 1))

        assert (await (await connection.execute("SELECT count(*) FROM skills")).fetchone()) == (0,)


async def test_skills_with_the_same_calls_that_two_runs_learn_at_the_same_time_are_one(
    engine: Engine, database_url: str
) -> None:
    first, second = new_id(), new_id()
    async with connected(database_url) as one, connected(database_url) as two:
        await one.execute("BEGIN")
        await store(one, [(first, None), (new_id(), None)], tool="1")

        late = asyncio.create_task(store(two, [(second, None)], tool="1"))
        await wait_for_lock_waiter(database_url)
        await one.execute("COMMIT")
        await late

    assert [skill.id for skill in await SkillCatalog(engine).latest("a", limit=9)] == [first]


@pytest.mark.parametrize("stored", [1, 5, 8])
async def test_further_tasks_of_two_runs_that_end_at_the_same_time_are_at_most_nine(
    engine: Engine, database_url: str, stored: int
) -> None:
    main, other = new_id(), new_id()
    async with connected(database_url) as one, connected(database_url) as two:
        await store(one, [(main, None), (other, None)])
        await store(one, [*further(main, stored), *further(other, stored)])
        await one.execute("BEGIN")
        await store(one, [*further(main, 5), *further(other, 5)])

        late = asyncio.create_task(store(two, [*further(other, 6), *further(main, 6)]))
        await wait_for_lock_waiter(database_url)
        await one.execute("COMMIT")
        await late

    for key in (main, other):
        assert stored < len(await tasks_of(engine, key)) <= MOST_MERGED
