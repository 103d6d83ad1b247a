"""Artifacts are there once for each content, for the runs that refer to them, and go when nobody does any more."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from psycopg import AsyncConnection
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from starling.core.artifacts import ArtifactContent, ArtifactOrigin, NotStored
from starling.core.errors import NotFoundError
from starling.core.ids import new_id
from starling.infra.postgres.artifacts import FIRST_CONTENT, PostgresArtifacts, Quota, delete_unreferenced_contents
from starling.infra.postgres.engine import open_engine
from starling.infra.postgres.retention import PruneSelection, Retention
from tests.support.admission_harness import AdmissionHarness
from tests.support.run_factories import wait_for_lock_waiter

OLD = PruneSelection(timedelta(days=30))
QUOTA = Quota(10_000, 25_000)
LONG = "λ" * 4_000  # 8,000 bytes
HOLD_DELETION = (  # whoever deletes a content waits at an advisory lock first
    """CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN OLD; END $$""",
    "CREATE TRIGGER hold BEFORE DELETE ON artifacts FOR EACH ROW EXECUTE FUNCTION hold()",
)


@pytest.fixture
def services(engine: AsyncEngine) -> PostgresArtifacts:
    return PostgresArtifacts(engine, QUOTA, retry_seconds=0.1)


def origin(run_id: str, call_id: str = "t1.0.0", tenant: str = "default") -> ArtifactOrigin:
    return ArtifactOrigin(tenant, run_id, call_id, "files.read")


async def kept(services: PostgresArtifacts, content: str, of: ArtifactOrigin) -> str:
    found = await services.put(of, content.encode(), "text/plain")
    assert isinstance(found, str), found
    return found


async def run_of(engine: AsyncEngine, *, days: int = 0, tenant: str = "default") -> str:
    """Return the id of a run; it ended so many days ago, or goes on."""
    key = await AdmissionHarness(engine).accept(thread=new_id(), tenant=tenant)
    if days:
        ended = "UPDATE runs SET status = 'failed', ended_at = now() - make_interval(days => :days) WHERE id = :id"
        await execute(engine, ended, days=days, id=key.id)
    return key.id


async def execute(engine: AsyncEngine, statement: str, **values: object) -> None:
    async with engine.begin() as connection:
        await connection.execute(text(statement), values)


async def count(engine: AsyncEngine, table: str) -> int:
    async with engine.connect() as connection:
        return (await connection.execute(text(f"SELECT count(*) FROM {table}"))).scalar_one()  # noqa: S608


async def waiting(url: str, tasks: Sequence[asyncio.Future[Any]]) -> None:
    """Return once all of them wait for locks, but for those that are done."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    async with asyncio.timeout(60), await AsyncConnection.connect(url, autocommit=True) as watcher:
        row = (-1,)
        while row is None or row[0] != sum(not task.done() for task in tasks):
            row = await (await watcher.execute(query)).fetchone()


@asynccontextmanager
async def open_put(engine: AsyncEngine, of: ArtifactOrigin, content: str) -> AsyncGenerator[None]:
    """Hold a put's transaction open for as long as the block lasts, then commit it."""
    async with engine.connect() as connection:
        await connection.execute(
            text("""
            WITH kept AS (INSERT INTO artifacts (tenant, hash, bytes, characters, content)
                VALUES (:tenant, :hash, 1, 1, :content) ON CONFLICT (tenant, hash) DO UPDATE SET hash = excluded.hash)
            INSERT INTO run_artifacts (tenant, run_id, call_id, hash, name, media_type)
            VALUES (:tenant, :run_id, :call_id, :hash, :name, 'text/plain')"""),
            {
                "tenant": of.tenant, "run_id": of.run_id, "call_id": of.call_id, "name": of.name,
                "hash": hashlib.sha256(content.encode()).hexdigest(), "content": content,
            },
        )  # fmt: skip
        yield
        await connection.commit()


async def test_stored_artifact_is_read_whole_and_in_parts(services: PostgresArtifacts) -> None:
    run, content = new_id(), "première\n" + LONG

    artifact = await kept(services, content, origin(run))

    assert artifact == hashlib.sha256(content.encode()).hexdigest()
    assert await services.read("default", run, artifact) == ArtifactContent(content.encode(), "text/plain")
    assert await services.part("default", run, artifact, 3, 7) == "mière\nλ"
    assert await services.part("default", run, artifact, len(content) - 2, 50) == "λλ"
    assert await services.part("default", run, artifact, 2**40, 50) == ""
    (listed,) = await services.of_run("default", run)
    assert (listed.id, listed.name, listed.call_id) == (artifact, "files.read", "t1.0.0")
    assert (listed.bytes, listed.characters) == (len(content.encode()), len(content))


async def test_binary_content_counts_is_pruned_and_belongs_to_its_tenant_as_text_does(
    services: PostgresArtifacts, engine: AsyncEngine
) -> None:
    run, image = await run_of(engine, days=60), b"\x89PNG\r\n\x1a\n" + bytes(7_000)

    found = [await services.put(origin(run), image + bytes([number]), "image/png") for number in range(4)]

    artifact = found[0]
    assert isinstance(artifact, str)
    assert isinstance(found[3], NotStored)
    assert await services.read("default", run, artifact) == ArtifactContent(image + b"\0", "image/png")
    with pytest.raises(NotFoundError):
        await services.read("shop", run, artifact)
    assert (await Retention(engine).prune(OLD)).rows["artifacts"] == 3


async def test_storing_the_same_artifact_again_changes_nothing(
    services: PostgresArtifacts, engine: AsyncEngine
) -> None:
    run = new_id()

    first, again = await asyncio.gather(kept(services, LONG, origin(run)), kept(services, LONG, origin(run)))

    assert first == again
    assert len(await services.of_run("default", run)) == await count(engine, "artifacts") == 1


async def test_equal_content_of_several_calls_is_stored_once(services: PostgresArtifacts, engine: AsyncEngine) -> None:
    runs = [new_id(), new_id()]
    for run in runs:
        await asyncio.gather(*(kept(services, LONG, origin(run, f"t1.0.{index}")) for index in range(4)))

    assert (await count(engine, "artifacts"), await count(engine, "run_artifacts")) == (1, 8)
    assert {item.call_id for item in await services.of_run("default", runs[0])} == {f"t1.0.{n}" for n in range(4)}


async def test_content_over_the_size_limit_is_not_stored(services: PostgresArtifacts, engine: AsyncEngine) -> None:
    refused = await services.put(origin(new_id()), ("λ" * 5_001).encode(), "text/plain")

    assert refused == NotStored("it has 10,002 bytes, more than limits.artifact_bytes allows")
    assert await count(engine, "artifacts") == 0


async def test_content_over_the_quota_of_the_tenant_is_not_stored(services: PostgresArtifacts) -> None:
    run = new_id()
    for letter in "abc":
        await kept(services, letter * 8_000, origin(run, letter))

    refused = await services.put(origin(run, "d"), b"d" * 8_000, "text/plain")
    known = await kept(services, "a" * 8_000, origin(new_id()))
    others = await kept(services, "d" * 8_000, origin(new_id(), tenant="shop"))

    assert isinstance(refused, NotStored)
    assert "limits.tenant_artifact_bytes" in refused.reason
    assert known
    assert others


async def test_storing_while_postgres_is_unavailable_is_refused_without_an_error(database_url: str) -> None:
    away = open_engine(database_url.rpartition("@")[0] + "@127.0.0.1:1/nowhere")
    services = PostgresArtifacts(away, QUOTA, retry_seconds=0.1)

    assert await services.put(origin(new_id()), LONG.encode(), "text/plain") == NotStored("Postgres couldn't be used")
    await away.dispose()


async def test_storing_what_postgres_rejects_is_refused_without_an_error(services: PostgresArtifacts) -> None:
    assert await services.put(origin("no UUID"), b"a", "text/plain") == NotStored("Postgres refused it")


async def test_pruning_deletes_references_of_old_runs_and_contents_without_references(
    services: PostgresArtifacts, engine: AsyncEngine
) -> None:
    old, young = await run_of(engine, days=60), await run_of(engine, days=1)
    shared = await kept(services, LONG, origin(young))
    await kept(services, LONG, origin(old))
    for letter in "abc":
        await kept(services, letter, origin(old, letter))
    retention = Retention(engine, rows_at_once=2)

    looked = await retention.preview(OLD)
    forgotten = await retention.prune(OLD)

    assert looked.rows == forgotten.rows
    assert (forgotten.rows["run_artifacts"], forgotten.rows["artifacts"]) == (4, 3)
    assert (await services.read("default", young, shared)).content.decode() == LONG
    assert (await retention.prune(OLD)).total == 0


async def test_reference_stored_after_its_run_was_pruned_is_deleted_by_the_next_pruning(
    services: PostgresArtifacts, engine: AsyncEngine
) -> None:
    old = await run_of(engine, days=60)
    await Retention(engine).prune(OLD)
    await kept(services, LONG, origin(old))

    forgotten = await Retention(engine).prune(OLD)

    assert (forgotten.rows["run_artifacts"], forgotten.rows["artifacts"]) == (1, 1)


async def test_pruning_a_tenant_keeps_artifacts_of_other_tenants(
    services: PostgresArtifacts, engine: AsyncEngine
) -> None:
    for tenant in ("ours", "theirs"):
        await kept(services, LONG, origin(await run_of(engine, days=60, tenant=tenant), tenant=tenant))

    forgotten = await Retention(engine).prune(PruneSelection(timedelta(days=30), tenant="ours"))

    assert forgotten.rows["artifacts"] == await count(engine, "artifacts") == 1


async def test_content_stored_before_a_concurrent_pruning_stays(
    services: PostgresArtifacts, engine: AsyncEngine
) -> None:
    old, live = await run_of(engine, days=60), await run_of(engine)
    artifact = await kept(services, LONG, origin(old))
    async with open_put(engine, origin(live), LONG):
        forgotten = await Retention(engine).prune(OLD)

    assert "artifacts" not in forgotten.rows
    assert (await services.read("default", live, artifact)).content.decode() == LONG


async def test_content_stored_after_a_concurrent_pruning_is_stored_again(
    services: PostgresArtifacts, engine: AsyncEngine, database_url: str
) -> None:
    live = await run_of(engine)
    artifact = await kept(services, LONG, origin(new_id()))
    await execute(engine, "DELETE FROM run_artifacts")
    async with engine.connect() as connection:
        assert await delete_unreferenced_contents(connection, None, FIRST_CONTENT, 10) == (1, None)
        putting = asyncio.ensure_future(kept(PostgresArtifacts(engine, QUOTA), LONG, origin(live)))
        await wait_for_lock_waiter(database_url)
        await connection.commit()
        assert await putting == artifact

    assert (await services.read("default", live, artifact)).content.decode() == LONG


async def test_content_stored_between_selection_and_deletion_of_a_pruning_stays(
    services: PostgresArtifacts, engine: AsyncEngine, database_url: str
) -> None:
    live = await run_of(engine)
    for letter in "abc":
        await kept(services, letter, origin(new_id()))
    for statement in ("DELETE FROM run_artifacts", *HOLD_DELETION):
        await execute(engine, statement)

    async def prune() -> None:
        async with engine.begin() as connection:
            await delete_unreferenced_contents(connection, None, FIRST_CONTENT, 10)

    async with engine.connect() as holder:
        await holder.execute(text("SELECT pg_advisory_xact_lock(7)"))
        tasks: list[asyncio.Future[Any]] = [asyncio.ensure_future(prune())]
        await waiting(database_url, tasks)  # before the first of them is deleted
        tasks += [asyncio.ensure_future(kept(services, letter, origin(live, letter))) for letter in "abc"]
        await waiting(database_url, tasks)
        await holder.rollback()
    await asyncio.gather(*tasks)

    listed = await services.of_run("default", live)
    assert {(await services.read("default", live, item.id)).content.decode() for item in listed} == set("abc")


@pytest.mark.parametrize("seed", range(3))
async def test_pruning_concurrent_with_storing_the_same_content_loses_none(
    services: PostgresArtifacts, engine: AsyncEngine, seed: int
) -> None:
    contents = [f"{seed} {number}" for number in range(3)]
    live = [await run_of(engine) for _ in range(6)]

    async def put_all(run: str) -> None:
        for number, content in enumerate(contents * 4):
            await kept(services, content, origin(run, f"t1.{number}.0"))

    async def forget_some() -> None:
        for _ in range(12):
            old = await run_of(engine, days=60)
            for number, content in enumerate(contents):
                await kept(services, content, origin(old, f"t1.{number}.0"))
            await Retention(engine, rows_at_once=2).prune(OLD)

    await asyncio.gather(forget_some(), forget_some(), *map(put_all, live))

    for run in live:
        listed = await services.of_run("default", run)
        assert len(listed) == len(contents) * 4
        assert {(await services.read("default", run, item.id)).content.decode() for item in listed} == set(contents)


async def test_lists_of_runs_that_ended_badly_are_served_by_an_index(engine: AsyncEngine) -> None:
    runs = """INSERT INTO runs (tenant, id, thread_id, branch_id, arrival, status, epoch, graph_version, input, config,
            principal, correlation_id, trace_id, ended_at)
        SELECT 'default', gen_random_uuid(), 't', 'main', n,
            CASE n % 500 WHEN 0 THEN 'parked' ELSE 'succeeded' END, 1, 1, '', '{}', '{}', '', '', now()
        FROM generate_series(1, 5000) AS n"""
    await execute(engine, "INSERT INTO threads (tenant, id) VALUES ('default', 't')")
    await execute(engine, "INSERT INTO branches (tenant, thread_id, id) VALUES ('default', 't', 'main')")
    await execute(engine, runs)
    query = "SELECT id FROM runs WHERE tenant = 'default' AND status = 'parked' ORDER BY id DESC LIMIT 20"
    async with engine.connect() as connection:
        await connection.execute(text("ANALYZE runs"))
        plan = [row[0] for row in await connection.execute(text(f"EXPLAIN {query}"))]

    assert any("runs_ended_badly" in line for line in plan), plan
