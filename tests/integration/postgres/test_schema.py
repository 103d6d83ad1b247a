"""The chain of migrations and the versions that it needs: what it makes, who runs it, what is refused."""

import asyncio
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any
from uuid import UUID

import alembic.command
import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from procrastinate.schema import SchemaManager
from psycopg.rows import dict_row
from sqlalchemy import Connection, make_url
from sqlalchemy.ext.asyncio import AsyncEngine

from starling.core.errors import DatabaseUnavailableError, DatabaseUnsuitableError
from starling.infra.postgres import schema
from starling.infra.postgres.audit import Actor
from starling.infra.postgres.engine import ConnectionLimits, connected, open_engine
from starling.infra.postgres.retention import PruneSelection
from starling.infra.postgres.schema import (
    COMPATIBLE_FROM,
    check,
    check_versions,
    current_revision,
    migrations_folder,
    revisions,
    upgrade,
)
from starling.infra.postgres.tables.access import metadata
from tests.integration.http.conftest import running_api
from tests.support.run_factories import wait_for_lock_waiter

_FOREIGN = ("procrastinate_", "checkpoint", "alembic_version")

_SHAPE: Mapping[str, str] = {
    "columns": """
        SELECT table_name, column_name, data_type, udt_name, is_nullable, column_default FROM information_schema.columns
        WHERE table_schema = 'public' ORDER BY table_name, column_name""",
    "indexes": "SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY indexdef",
    "constraints": """
        SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
        WHERE connamespace = 'public'::regnamespace AND contype <> 'n' ORDER BY 1, 2, 3""",
    "functions": """
        SELECT proname, pg_get_functiondef(p.oid) FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
        WHERE pronamespace = 'public'::regnamespace AND lanname IN ('sql', 'plpgsql') ORDER BY 1, 2""",
    "triggers": "SELECT tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal ORDER BY 1, 2",
}


async def _shape(url: str, prefix: str) -> Mapping[str, Sequence[tuple[Any, ...]]]:
    """Return what tells two schemas apart, of the things whose description holds `prefix`."""
    async with connected(url) as connection:
        found = {name: await (await connection.execute(query.encode())).fetchall() for name, query in _SHAPE.items()}
    word = re.compile(rf"\b{prefix}")
    return {name: [row for row in rows if word.search(str(row))] for name, rows in found.items()}


def _ours(name: str | None, kind: str, _parents: object) -> bool:
    return kind != "table" or not (name or "").startswith(_FOREIGN)


async def test_the_migrations_make_what_tables_describes(engine: AsyncEngine) -> None:
    def compare(connection: Connection) -> list[Any]:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "compare_server_default": True, "include_name": _ours}
        )
        return list(compare_metadata(context, metadata))

    async with engine.connect() as connection:
        assert await connection.run_sync(compare) == []


async def test_every_index_and_constraint_is_described(database_url: str, empty_database_url: str) -> None:
    engine = open_engine(empty_database_url)
    async with engine.begin() as connection:
        await connection.exec_driver_sql("CREATE EXTENSION vector")
        await connection.run_sync(metadata.create_all)
    await engine.dispose()

    for table in metadata.tables:
        assert await _shape(database_url, table) == await _shape(empty_database_url, table), table


async def test_the_queues_tables_are_those_of_the_installed_procrastinate(
    database_url: str, empty_database_url: str
) -> None:
    async with connected(empty_database_url) as connection:
        await connection.execute(SchemaManager.get_schema())

    assert await _shape(database_url, "procrastinate") == await _shape(empty_database_url, "procrastinate")
    assert version("procrastinate") == "3.10.0"


async def test_the_checkpointers_tables_are_those_of_the_installed_saver(
    database_url: str, empty_database_url: str
) -> None:
    async with connected(empty_database_url) as connection:
        connection.row_factory = dict_row
        await AsyncPostgresSaver(connection).setup()

    assert await _shape(database_url, "checkpoint") == await _shape(empty_database_url, "checkpoint")


async def test_setup_of_the_checkpoint_saver_changes_nothing(database_url: str) -> None:
    async with connected(database_url) as connection:
        query = "SELECT v FROM checkpoint_migrations ORDER BY v"
        before = await (await connection.execute(query)).fetchall()
        connection.row_factory = dict_row
        await AsyncPostgresSaver(connection).setup()
        after = await (await connection.execute(query)).fetchall()

    assert [row["v"] for row in after] == [row[0] for row in before]


async def test_two_tasks_upgrade_one_new_database(empty_database_url: str) -> None:
    newest = await asyncio.gather(upgrade(empty_database_url), upgrade(empty_database_url))

    assert newest == [revisions()[-1]] * 2
    await check(empty_database_url)


async def test_two_processes_upgrade_one_new_database(empty_database_url: str) -> None:
    program = (
        "import asyncio, sys; from starling.infra.postgres.schema import upgrade; asyncio.run(upgrade(sys.argv[1]))"
    )
    command = [sys.executable, "-c", program, empty_database_url]

    processes = [await asyncio.create_subprocess_exec(*command) for _ in range(2)]

    assert [await process.wait() for process in processes] == [0, 0]
    await check(empty_database_url)


@pytest.mark.parametrize(
    ("note", "outcome"),
    [
        ("compatible from 0018", "9999"),
        (
            "compatible from 9999",
            "It can be used from schema 9999 on. It is older than the database: install the newer",
        ),
    ],
)
async def test_upgrade_waits_for_that_of_a_later_version_and_says_whether_its_schema_can_be_used(
    database_url: str, note: str, outcome: str
) -> None:
    async with connected(database_url) as later:
        await later.execute("UPDATE alembic_version SET version_num = %s", (revisions()[-2],))
        async with later.transaction():
            await later.execute("SELECT pg_advisory_xact_lock(%s)", (int.from_bytes(b"starling"),))
            ours = asyncio.create_task(upgrade(database_url))
            await wait_for_lock_waiter(database_url)
            await later.execute("UPDATE alembic_version SET version_num = '9999'")
            await later.execute(f"COMMENT ON TABLE alembic_version IS '{note}'".encode())
        (found,) = await asyncio.gather(ours, return_exceptions=True)

    assert outcome in str(found)
    assert isinstance(found, str | DatabaseUnsuitableError)


async def test_upgrade_that_gets_no_lock_says_who_may_have_it(
    empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "_MIGRATION_LIMITS", ConnectionLimits(size=1, lock_seconds=0.1))
    async with connected(empty_database_url) as other, other.transaction():
        await other.execute("SELECT pg_advisory_xact_lock(%s)", (int.from_bytes(b"starling"),))

        with pytest.raises(DatabaseUnavailableError, match=r"lock for 0\.1 s.*Another `starling db upgrade`"):
            await upgrade(empty_database_url)


async def test_second_upgrade_changes_nothing(database_url: str) -> None:
    async with connected(database_url) as connection:
        before = await current_revision(connection)
        assert await upgrade(database_url) == before


async def test_a_database_without_schema_is_refused(empty_database_url: str) -> None:
    with pytest.raises(DatabaseUnsuitableError, match=r"no schema of Starling.*starling db upgrade"):
        await check(empty_database_url)


async def test_an_older_schema_is_refused(database_url: str) -> None:
    async with connected(database_url) as connection:
        await connection.execute("UPDATE alembic_version SET version_num = '0001'")

    with pytest.raises(DatabaseUnsuitableError, match=r"schema 0001.*starling db upgrade"):
        await check(database_url)


@pytest.mark.parametrize("use", [upgrade, check])
@pytest.mark.parametrize(
    ("note", "said"),
    [("NULL", ""), ("'compatible from 9999'", " It can be used from schema 9999 on."), ("'something else'", "")],
)
async def test_a_newer_schema_that_is_not_noted_as_compatible_is_refused(
    database_url: str, use: type, note: str, said: str
) -> None:
    await _pretend("9999", note, database_url)

    with pytest.raises(
        DatabaseUnsuitableError, match=rf"schema 9999.*doesn't know\.{said} It is older than the database"
    ):
        await use(database_url)


async def test_a_newer_schema_that_is_noted_as_compatible_is_used_as_it_is(database_url: str) -> None:
    await _pretend("9999", f"'compatible from {revisions()[-1]}'", database_url)

    await check(database_url)

    assert await upgrade(database_url) == "9999"


@pytest.mark.parametrize("restored_without_comments", [False, True])
async def test_upgrade_notes_which_versions_can_use_the_schema(
    database_url: str, restored_without_comments: bool
) -> None:
    if restored_without_comments:
        await _pretend(revisions()[-1], "NULL", database_url)
        await upgrade(database_url)

    async with connected(database_url) as connection:
        query = "SELECT obj_description('alembic_version'::regclass, 'pg_class')"
        row = await (await connection.execute(query)).fetchone()

    assert row == (f"compatible from {COMPATIBLE_FROM}",)


async def _pretend(revision: str, note: str, url: str) -> None:
    """Make a database look like one that a later version has upgraded."""
    async with connected(url) as connection:
        await connection.execute("UPDATE alembic_version SET version_num = %s", (revision,))
        await connection.execute(f"COMMENT ON TABLE alembic_version IS {note}".encode())


async def test_user_without_create_privilege_is_refused_with_the_owner_to_ask(empty_database_url: str) -> None:
    async with connected(empty_database_url) as connection:
        await connection.execute("CREATE ROLE visitor LOGIN PASSWORD 'visitor'")
    visitor = make_url(empty_database_url).set(username="visitor", password="visitor")

    with pytest.raises(DatabaseUnsuitableError, match=r"may not set it up.*administrator"):
        await upgrade(visitor.render_as_string(hide_password=False))

    async with connected(empty_database_url) as connection:
        await connection.execute("DROP ROLE visitor")


async def test_user_who_may_not_read_the_tables_is_refused_with_the_remedy(database_url: str) -> None:
    async with connected(database_url) as connection:
        await connection.execute("CREATE ROLE guest LOGIN PASSWORD 'guest'")
    guest = make_url(database_url).set(username="guest", password="guest").render_as_string(hide_password=False)

    for use in (check, upgrade):
        with pytest.raises(DatabaseUnsuitableError, match=r"may not use Starling's tables.*OWNER TO"):
            await use(guest)

    async with connected(database_url) as connection:
        await connection.execute("DROP ROLE guest")


async def test_role_that_owns_its_database_and_has_no_other_rights_suffices(
    empty_database_url: str, tmp_path: Path
) -> None:
    name = make_url(empty_database_url).database
    async with connected(empty_database_url) as connection:
        await connection.execute("CREATE ROLE modest LOGIN PASSWORD 'modest'")
        await connection.execute(f"ALTER DATABASE {name} OWNER TO modest".encode())
        await connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    url = make_url(empty_database_url).set(username="modest", password="modest").render_as_string(hide_password=False)

    await upgrade(url)
    async with running_api(url, tmp_path, {}) as api:
        events = await api.ask("Hello.")
        await api.get("/ready")
        pruned = await api.services.storage.retention.prune(PruneSelection(timedelta()), Actor.local("test"))

    async with connected(empty_database_url) as connection:
        await connection.execute("REASSIGN OWNED BY modest TO CURRENT_USER")
        await connection.execute("DROP ROLE modest")
    assert (events[-1].data["status"], pruned.runs) == ("succeeded", 1)


def test_file_names_start_with_their_revisions() -> None:
    files = sorted((migrations_folder() / "versions").glob("[0-9]*.py"))
    declared = [line for file in files for line in file.read_text().splitlines() if line.startswith("revision = ")]

    assert declared == [f'revision = "{number}"' for number in revisions()]


async def test_servers_of_the_former_version_came_from_the_host_and_their_tools_are_approved(
    empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _upgrade_to("0011", empty_database_url, monkeypatch)
    rows = [("cli", "api", '{"act": "h1", "more": "h2"}'), ("filed", "file", '{"read": "h3"}'), ("down", "file", "{}")]
    async with connected(empty_database_url) as connection:
        for name, source, tools in rows:
            await connection.execute(
                "INSERT INTO servers (tenant, name, config, config_hash, source, state, tools) "
                "VALUES ('default', %s, '{}', '', %s, 'ready', %s)",
                (name, source, tools),
            )

    await upgrade(empty_database_url)

    async with connected(empty_database_url) as connection:
        sources = await (await connection.execute("SELECT name, source FROM servers")).fetchall()
        query = "SELECT server, tool, approved_hash, offered_hash, state, by FROM tool_pins ORDER BY approved_hash"
        pins = await (await connection.execute(query)).fetchall()
    assert dict(sources) == {"cli": "host", "filed": "file", "down": "file"}
    assert pins == [
        ("cli", "act", "h1", "h1", "approved", "migration"),
        ("cli", "more", "h2", "h2", "approved", "migration"),
        ("filed", "read", "h3", "h3", "approved", "migration"),
    ]


async def test_skills_of_the_former_version_with_the_same_calls_become_one(
    empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _upgrade_to("0022", empty_database_url, monkeypatch)
    rows = [(1, None, "active", "s"), (2, None, "suspended", "s"), (3, 2, "active", "s"), (4, None, "retired", "s"),
            (5, None, "active", "other")]  # fmt: skip
    async with connected(empty_database_url) as connection:
        for key, main, state, shape in rows:
            await connection.execute(
                "INSERT INTO skills (tenant, id, merged_into, state, task, template, calls, outcome, tools, shape, "
                "agent_kind, agent, provenance, words) "
                "VALUES ('a', %s, %s, %s, '', '', '[]', '', '{}', %s, '', '', 'run', '')",
                (UUID(int=key), UUID(int=main) if main else None, state, shape),
            )

    await upgrade(empty_database_url)

    async with connected(empty_database_url) as connection:
        found = await (await connection.execute("SELECT id, merged_into FROM skills ORDER BY id")).fetchall()
    assert {key.int: main and main.int for key, main in found} == {1: None, 2: 1, 3: 1, 4: None, 5: None}


async def _upgrade_to(revision: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bring a new database to an earlier revision."""
    to_head = alembic.command.upgrade

    def to_revision(config: Config, _: str) -> None:
        to_head(config, revision)

    with monkeypatch.context() as patched:
        patched.setattr(alembic.command, "upgrade", to_revision)
        await upgrade(url)


async def test_the_embedded_server_is_new_enough(database_url: str) -> None:
    async with connected(database_url) as connection:
        await check_versions(connection)


@pytest.mark.parametrize("use", [upgrade, check])
async def test_postgresql_15_is_refused(old_server_url: str, use: type) -> None:
    with pytest.raises(DatabaseUnsuitableError, match=r"version 15\..* needs 16 or newer.*DATABASE_URL"):
        await use(old_server_url)


async def test_a_server_without_pgvector_is_refused(old_server_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "MINIMUM_POSTGRES", 15)
    async with connected(old_server_url) as connection:
        with pytest.raises(DatabaseUnsuitableError, match=r"no pgvector.*Install"):
            await check_versions(connection)


async def test_server_below_the_required_version_is_refused(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "MINIMUM_POSTGRES", 19)
    async with connected(database_url) as connection:
        with pytest.raises(DatabaseUnsuitableError, match="needs 19"):
            await check_versions(connection)


async def test_an_old_pgvector_is_refused(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "MINIMUM_PGVECTOR", (9, 0, 0))
    async with connected(database_url) as connection:
        with pytest.raises(DatabaseUnsuitableError, match=r"has pgvector .*needs 9\.0\.0.*ALTER EXTENSION"):
            await check_versions(connection)


async def test_an_old_extension_over_a_new_package_is_refused(empty_database_url: str) -> None:
    async with connected(empty_database_url) as connection:
        await connection.execute("CREATE EXTENSION vector")
        await connection.execute("UPDATE pg_extension SET extversion = '0.7.4' WHERE extname = 'vector'")

        with pytest.raises(DatabaseUnsuitableError, match=r"uses pgvector 0\.7\.4.*ALTER EXTENSION"):
            await check_versions(connection)
