"""Postgres goes away during runs and comes back."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from starling.app.worker import worker
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


@asynccontextmanager
async def stopped(postgres: EmbeddedPostgres) -> AsyncGenerator[None]:
    postgres.stop()
    yield
    postgres.start()


@asynccontextmanager
async def suspended(postgres: EmbeddedPostgres) -> AsyncGenerator[None]:
    with frozen(postgres.pid):
        yield


@asynccontextmanager
async def without_its_sessions(postgres: EmbeddedPostgres) -> AsyncGenerator[None]:
    await terminate_backends(postgres.url)
    yield


@rounds(1, soak=60, name="seconds")
@pytest.mark.parametrize("interrupted", [stopped, suspended, without_its_sessions])
async def test_twenty_running_runs_continue_after_an_outage(
    outage: Outage, interrupted: Callable[[EmbeddedPostgres], AbstractAsyncContextManager[None]], seconds: int
) -> None:
    keys = [await outage.platform.accept("hello", thread=f"thread {number}") for number in range(_MANY)]
    await outage.model.received(2 * _MANY)

    async with interrupted(outage.postgres):
        outage.model.release("outage")
        await asyncio.sleep(seconds)  # the outage itself: nothing happens that could be waited for
    streams = [await outage.platform.stream(key) for key in keys]

    assert [run.status for run in streams] == ["succeeded"] * _MANY
    assert decisions(outage.model) == _MANY


async def test_platform_stops_while_postgres_is_unavailable(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_STOP_SECONDS", 0.5)
    async with asyncio.timeout(120):
        async with standing(open_folder) as outage:
            await outage.platform.accept("hello")
            await outage.model.received(2)
            outage.postgres.stop()
