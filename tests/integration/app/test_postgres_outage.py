"""Postgres goes away during runs and comes back."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from starling.infra.postgres.embedded.server import EmbeddedPostgres
from starling.infra.postgres.schema import upgrade
from tests.support.model_script import Answer
from tests.support.model_server import ModelServer
from tests.support.platform import Platform, ScriptedModel, decision, open_platform, task, verdict
from tests.support.postgres_faults import frozen, terminate_backends
from tests.support.soak import rounds
from tests.support.worker_runtime import running_worker

_LEASE = 3.0
_MANY = 20


@dataclass(frozen=True, slots=True)
class Outage:
    """A platform with a worker, and the Postgres that it stands on."""

    postgres: EmbeddedPostgres
    platform: Platform
    model: ModelServer


def decisions(model: ModelServer) -> int:
    """How often the supervisor was asked."""
    return sum("You supervise agents" in str(body["messages"][0]["content"])[:40] for body in model.bodies)


@asynccontextmanager
async def standing(folder: Path) -> AsyncGenerator[Outage]:
    """Give a platform whose run waits at the model, and its Postgres to play with."""
    script = ScriptedModel()
    script.supervisor(decision(task("t1", "generalist")))
    script.agent("t1", Answer("The answer.", hold="outage"))
    script.reviewer(verdict("APPROVED", "fits"))
    with EmbeddedPostgres(folder, durable=False) as postgres:
        await upgrade(postgres.url)
        async with (
            ModelServer(script) as model,
            open_platform(postgres.url, model, {}, folder, lease_seconds=_LEASE) as platform,
            running_worker(platform.worker_runtime.worker),
        ):
            yield Outage(postgres, platform, model)


@pytest.fixture
async def outage(open_folder: Path) -> AsyncGenerator[Outage]:
    async with standing(open_folder) as outage:
        yield outage


@rounds(2, soak=60, name="seconds")
async def test_twenty_running_runs_continue_after_an_outage(outage: Outage, seconds: int) -> None:
    keys = [await outage.platform.accept("hello", thread=f"thread {number}") for number in range(_MANY)]
    await outage.model.received(2 * _MANY)

    outage.postgres.stop()
    await asyncio.sleep(seconds)  # the outage itself: nothing happens that could be waited for
    outage.model.release("outage")
    outage.postgres.start()
    streams = [await outage.platform.stream(key) for key in keys]

    assert [run.status for run in streams] == ["succeeded"] * _MANY
    assert decisions(outage.model) == _MANY


@rounds(2, soak=30, name="seconds")
async def test_runs_continue_after_postgres_was_stopped_for_a_while(outage: Outage, seconds: int) -> None:
    keys = [await outage.platform.accept("hello", thread=f"thread {number}") for number in range(5)]
    await outage.model.received(2 * len(keys))

    with frozen(outage.postgres.pid):
        outage.model.release("outage")
        await asyncio.sleep(seconds)
    streams = [await outage.platform.stream(key) for key in keys]

    assert [run.status for run in streams] == ["succeeded"] * len(keys)
    assert decisions(outage.model) == len(keys)


async def test_runs_continue_after_all_connections_were_terminated(outage: Outage) -> None:
    keys = [await outage.platform.accept("hello", thread=f"thread {number}") for number in range(5)]
    await outage.model.received(2 * len(keys))

    await terminate_backends(outage.postgres.url)
    outage.model.release("outage")
    streams = [await outage.platform.stream(key) for key in keys]

    assert [run.status for run in streams] == ["succeeded"] * len(keys)
    assert decisions(outage.model) == len(keys)


async def test_platform_stops_while_postgres_is_unavailable(open_folder: Path) -> None:
    async with asyncio.timeout(120):
        async with standing(open_folder) as outage:
            await outage.platform.accept("hello")
            await outage.model.received(2)
            outage.postgres.stop()
