"""A database whose clock is stepped back, with libfaketime."""

from collections.abc import Generator
from pathlib import Path

import pytest
from psycopg import AsyncConnection

from starling.infra.postgres.embedded import postmaster
from starling.infra.postgres.embedded.server import EmbeddedPostgres
from starling.infra.postgres.engine import open_engine
from starling.infra.postgres.schema import upgrade
from tests.support.admission_harness import AdmissionHarness
from tests.support.run_factories import claimed
from tests.support.wrong_clock import WrongClock


@pytest.fixture
def clock(open_folder: Path) -> WrongClock:
    """The clock of the database."""
    clock = WrongClock(open_folder)
    clock.set_ahead(0)
    return clock


@pytest.fixture
def clocked_url(open_folder: Path, clock: WrongClock, monkeypatch: pytest.MonkeyPatch) -> Generator[str]:
    """The address of a database of its own, whose clock `clock` sets."""
    faked = dict(clock.variables)
    monkeypatch.setattr(postmaster, "_ENVIRONMENT", postmaster._ENVIRONMENT | faked)  # pyright: ignore[reportPrivateUsage]
    with EmbeddedPostgres(open_folder, durable=False) as server:
        yield server.url


@pytest.mark.soak
async def test_run_of_a_dead_worker_is_taken_over_though_the_clock_was_stepped_back_an_hour(
    clocked_url: str, clock: WrongClock
) -> None:
    await upgrade(clocked_url)
    engine = open_engine(clocked_url)
    admission = AdmissionHarness(engine)
    clock.set_ahead(3_600)
    key = await admission.accept()
    first = await claimed(admission.leases, key)  # for 60 s
    admission.queued.clear()

    clock.set_ahead(0)
    far = await _seconds_left(clocked_url)
    await admission.leases.sweep(grace_seconds=60, lease_seconds=60)
    shortened = await _seconds_left(clocked_url)
    clock.set_ahead(61)
    await admission.leases.sweep(grace_seconds=60, lease_seconds=60)
    second = await claimed(admission.leases, key)
    await engine.dispose()

    assert 3_600 < far < 3_661
    assert shortened <= 60
    assert (admission.queued, first.run.fence, second.run.fence) == ([key], 1, 2)


async def _seconds_left(url: str) -> float:
    """Return how long the lease of the only run lasts by the database's clock."""
    async with await AsyncConnection.connect(url, autocommit=True) as connection:
        found = await connection.execute("SELECT extract(epoch FROM lease_until - now())::float FROM runs")
        row = await found.fetchone()
    assert row is not None
    return float(row[0])
