"""Fixtures for all tests: a real Postgres, and a database of its own for each test."""

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Generator, Iterator
from itertools import count
from pathlib import Path

import psycopg
import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from sqlalchemy import make_url
from sqlalchemy.ext.asyncio import AsyncEngine

from starling.infra.postgres.embedded.server import EmbeddedPostgres
from starling.infra.postgres.engine import open_engine
from starling.infra.postgres.schema import upgrade
from tests.support.open_folder import new_open_folder

_TEMPLATE = "starling_template"
_TRACING_THREADS = ("end-tracing", "OtelBatchSpanRecordProcessor")

# How long Hypothesis takes to generate data depends on what else the machine does, so it fails no test.
hypothesis_settings.register_profile("starling", deadline=None, suppress_health_check=[HealthCheck.too_slow])
hypothesis_settings.load_profile("starling")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One worker more than there are processors: many tests wait for processes that start, or for timeouts."""
    return (os.cpu_count() or 1) + 1


@pytest.fixture(autouse=True)
def tracing_threads_end_with_the_test() -> Generator[None]:
    """Join the threads that export traces: their use of random numbers would disturb Hypothesis in a later test."""
    yield
    for thread in threading.enumerate():
        if thread.name in _TRACING_THREADS:
            thread.join(30)


@pytest.fixture
def open_folder() -> Generator[Path]:
    """A new folder with a short path that every user may enter, as the embedded Postgres needs under root."""
    with new_open_folder() as folder:
        yield folder


@pytest.fixture(scope="session")
def postgres_server() -> Generator[EmbeddedPostgres]:
    """The Postgres server of this test process; it starts with the first test that needs it."""
    with new_open_folder() as folder, EmbeddedPostgres(folder, durable=False) as server:
        yield server


@pytest.fixture(scope="session")
def template_database(postgres_server: EmbeddedPostgres) -> str:
    """The name of a migrated database that test databases are copied from."""
    _execute(postgres_server.url, f"CREATE DATABASE {_TEMPLATE}")
    asyncio.run(upgrade(_on_database(postgres_server.url, _TEMPLATE)))
    return _TEMPLATE


@pytest.fixture(scope="session")
def database_names() -> Iterator[str]:
    return (f"test_{number}" for number in count(1))


@pytest.fixture
def database_url(
    postgres_server: EmbeddedPostgres, template_database: str, database_names: Iterator[str]
) -> Generator[str]:
    """The address of a migrated database that this test alone uses."""
    yield from _database(postgres_server.url, next(database_names), f"TEMPLATE {template_database} STRATEGY FILE_COPY")


@pytest.fixture(scope="module")
def module_database_url(
    postgres_server: EmbeddedPostgres, template_database: str, database_names: Iterator[str]
) -> Generator[str]:
    """The address of a migrated database that the tests of one module share."""
    yield from _database(postgres_server.url, next(database_names), f"TEMPLATE {template_database} STRATEGY FILE_COPY")


@pytest.fixture
def empty_database_url(postgres_server: EmbeddedPostgres, database_names: Iterator[str]) -> Generator[str]:
    """The address of an empty database that this test alone uses."""
    yield from _database(postgres_server.url, next(database_names), "")


@pytest.fixture
async def engine(database_url: str) -> AsyncGenerator[AsyncEngine]:
    """An engine on the test's own database."""
    engine = open_engine(database_url)
    yield engine
    await engine.dispose()


def _database(server: str, name: str, how: str) -> Generator[str]:
    _execute(server, f"CREATE DATABASE {name} {how}")
    yield _on_database(server, name)
    _execute(server, f"DROP DATABASE {name} WITH (FORCE)")


def _execute(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())


def _on_database(url: str, name: str) -> str:
    return make_url(url).set(database=name).render_as_string(hide_password=False)
