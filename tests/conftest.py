"""Fixtures for all tests: a real Postgres, and a database of its own for each test."""

import asyncio
import gc
import os
import threading
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import psycopg
import pytest
from hypothesis import HealthCheck, is_hypothesis_test
from hypothesis import settings as hypothesis_settings
from psycopg import Connection
from sqlalchemy import make_url
from sqlalchemy.ext.asyncio import AsyncEngine

from starling.infra.postgres.embedded.server import EmbeddedPostgres
from starling.infra.postgres.engine import open_engine
from starling.infra.postgres.schema import upgrade
from tests.support.command_server import share_command_server
from tests.support.open_folder import new_open_folder

_LONGEST = ("tests/chaos/", "tests/e2e/", "tests/integration/", "")
_TEMPLATE = "starling_template"
_TRACING_THREADS = ("end-tracing", "OtelBatchSpanRecordProcessor")

# How long Hypothesis takes to generate data depends on what else the machine does, so it fails no test.
for _name, _examples in (("usual", 30), ("soak", 300)):
    hypothesis_settings.register_profile(
        _name, max_examples=_examples, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
hypothesis_settings.load_profile("usual")


def pytest_configure(config: pytest.Config) -> None:
    """Have the worker processes share a command server, and soak tests make more examples."""
    if not hasattr(config, "workerinput"):
        share_command_server()
    if config.option.markexpr == "soak":
        hypothesis_settings.load_profile("soak")
    gc.disable()  # until all is imported and collected, of which nothing is garbage


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Two workers more than there are processors: many tests wait for processes that start, or for timeouts."""
    return (os.cpu_count() or 1) + 2


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Make captured logs sendable: xdist's workers end at half of a surrogate pair."""
    report = yield
    report.sections = [(name, text.encode(errors="replace").decode()) for name, text in report.sections]
    return report


def pytest_itemcollected(item: pytest.Item) -> None:
    """Have `make soak` run the tests of properties, too: with more examples."""
    if item.config.option.markexpr == "soak" and is_hypothesis_test(getattr(item, "obj", None)):
        item.add_marker("soak")


@pytest.hookimpl(trylast=True)  # after tests were deselected
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Have several worker processes begin with the long tests and end with the short ones; files stay whole."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: next(place for place, kind in enumerate(_LONGEST) if item.nodeid.startswith(kind)))


def pytest_collection_finish() -> None:
    """Exclude what was imported and collected from garbage collection: it would be looked through again and again."""
    gc.enable()
    gc.freeze()


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


@dataclass(frozen=True, slots=True)
class DatabaseServer:
    """Creates and drops databases, over one connection: a new one for each would cost as much as the database."""

    url: str
    connection: Connection
    numbers: Iterator[int]

    @contextmanager
    def database(self, how: str = "") -> Generator[str]:
        """Create a database; yield its address; drop it."""
        name = f"test_{next(self.numbers)}"
        self.connection.execute(f"CREATE DATABASE {name} {how}".encode())
        yield _on_database(self.url, name)
        self.connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@pytest.fixture(scope="session")
def database_server(postgres_server: EmbeddedPostgres) -> Generator[DatabaseServer]:
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        yield DatabaseServer(postgres_server.url, connection, count(1))


@pytest.fixture(scope="session")
def database_copy(database_server: DatabaseServer) -> str:
    """What creates a copy of a migrated database."""
    database_server.connection.execute(f"CREATE DATABASE {_TEMPLATE}")
    asyncio.run(upgrade(_on_database(database_server.url, _TEMPLATE)))
    return f"TEMPLATE {_TEMPLATE} STRATEGY FILE_COPY"


@pytest.fixture
def database_url(database_server: DatabaseServer, database_copy: str) -> Generator[str]:
    """The address of a migrated database that this test alone uses."""
    with database_server.database(database_copy) as url:
        yield url


@pytest.fixture(scope="module")
def module_database_url(database_server: DatabaseServer, database_copy: str) -> Generator[str]:
    """The address of a migrated database that the tests of one module share."""
    with database_server.database(database_copy) as url:
        yield url


@pytest.fixture
def empty_database_url(database_server: DatabaseServer) -> Generator[str]:
    """The address of an empty database that this test alone uses."""
    with database_server.database() as url:
        yield url


@pytest.fixture
def restored_database_url(database_server: DatabaseServer) -> Generator[str]:
    """The address of a second empty database of this test, to restore a dump to."""
    with database_server.database() as url:
        yield url


@pytest.fixture
async def engine(database_url: str) -> AsyncGenerator[AsyncEngine]:
    """An engine on the test's own database."""
    engine = open_engine(database_url)
    yield engine
    await engine.dispose()


def _on_database(url: str, name: str) -> str:
    return make_url(url).set(database=name).render_as_string(hide_password=False)
