"""Postgres goes away in the middle of runs, and comes back."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from starling.app.worker import working
from starling.core.errors import DatabaseUnavailableError
from starling.infra.postgres.embedded import EmbeddedPostgres
from starling.infra.postgres.schema import upgrade
from tests.support.model_script import Answer
from tests.support.model_server import ModelServer
from tests.support.platform import ModelSays, Platform, decision, open_platform, task, verdict


@dataclass(frozen=True, slots=True)
class Outage:
    """A platform with a worker, and the Postgres that it stands on."""

    postgres: EmbeddedPostgres
    platform: Platform
    model: ModelServer


@asynccontextmanager
async def standing(folder: Path) -> AsyncGenerator[Outage]:
    """Give a platform whose run waits at the model, and its Postgres to play with."""
    says = ModelSays()
    says.supervisor(decision(task("t1", "generalist")))
    says.agent("t1", Answer("The answer.", hold="outage"))
    says.reviewer(verdict("APPROVED", "fits"))
    with EmbeddedPostgres(folder, durable=False) as postgres:
        await upgrade(postgres.url)
        async with (
            ModelServer(says) as model,
            open_platform(postgres.url, model, {}, folder, lease_seconds=2) as platform,
            working(platform.workshop.worker),
        ):
            yield Outage(postgres, platform, model)


@pytest.fixture
async def outage(open_folder: Path) -> AsyncGenerator[Outage]:
    async with standing(open_folder) as outage:
        yield outage


async def test_a_run_goes_on_after_an_outage_and_asks_nothing_again(outage: Outage) -> None:
    key = await outage.platform.accept("hello")
    await outage.model.received(2)

    outage.postgres.stop()
    outage.model.release("outage")
    with pytest.raises(DatabaseUnavailableError):
        await outage.platform.accept("nobody takes this down")
    outage.postgres.start()
    told = await outage.platform.told(key)

    assert told.status == "succeeded"
    assert told.reply == "The answer."
    assert sum("supervisor" in str(body["messages"][0]["content"])[:40] for body in outage.model.bodies) == 1


async def test_requests_are_taken_and_worked_on_after_an_outage(outage: Outage) -> None:
    outage.model.release("outage")
    outage.postgres.stop()
    outage.postgres.start()

    told = await outage.platform.told(await outage.platform.accept("hello"))

    assert told.status == "succeeded"


async def test_the_platform_stops_while_postgres_is_away(open_folder: Path) -> None:
    async with asyncio.timeout(30):
        async with standing(open_folder) as outage:
            await outage.platform.accept("hello")
            await outage.model.received(2)
            outage.postgres.stop()
