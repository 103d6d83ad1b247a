"""Audit events reach the context service, also after it was down."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from pydantic import SecretStr
from sqlalchemy import cast, func, select
from sqlalchemy.dialects.postgresql import INTERVAL
from sqlalchemy.ext.asyncio import AsyncEngine

from starling.app.access.keys import KeySpec
from starling.app.container.database import Database
from starling.app.container.services import open_services
from starling.app.runs.acceptance import RunRequest
from starling.app.services import Services
from starling.core.principal import DEFAULT_TENANT, HOST_ADMIN, Scope
from starling.core.settings.schema import Settings
from starling.infra.postgres.audit import Actor, Outbox
from starling.infra.postgres.kill_switches import Target
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.tables.access import audit_events
from tests.support import http_server
from tests.support.gateway_harness import free_port
from tests.support.otlp_collector import Collector
from tests.support.platform import CALLER
from tests.support.worker_runtime import open_worker_runtime, running_worker

TOKEN = "token-of-the-context-service"
SHAPE = {"correlation_id", "event_type", "source", "payload"}


class FakeContextService:
    """Keeps what it is told, each event once; answers with `status`."""

    def __init__(self, last: str = "run_completed") -> None:
        self.last = last  # the type of event that completes what is told
        self.stream: dict[str, dict[str, Any]] = {}
        self.asked = asyncio.Event()
        self.complete = asyncio.Event()
        self.status = 200
        self.count = 0  # of requests
        self.tokens: set[str | None] = set()  # that it was sent
        self.traces: set[str | None] = set()

    async def events(self, request: web.Request) -> web.Response:
        self.asked.set()
        self.count += 1
        self.tokens.add(request.headers.get("Authorization"))
        self.traces.add(request.headers.get("traceparent"))
        if self.status == 200:
            self.stream[request.headers["Idempotency-Key"]] = await request.json()
            if self.last in [event["event_type"] for event in self.stream.values()]:
                self.complete.set()
        return web.Response(status=self.status)

    @asynccontextmanager
    async def serving(self, port: int) -> AsyncGenerator[None]:
        app = web.Application()
        app.router.add_post("/base/events", self.events)
        runner = web.AppRunner(app)
        listening = await http_server.start(runner, port)
        try:
            yield
        finally:
            await http_server.stop(runner, listening)


@asynccontextmanager
async def platform(database_url: str, folder: Path, port: int, **given: Any) -> AsyncGenerator[Services]:
    file = folder / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {}}))
    settings = Settings(
        database_url=SecretStr(database_url),
        mcp_config=file,
        model=("offline:rules",),
        context_service_url=f"http://127.0.0.1:{port}/base",
        **given,
    )
    async with (
        open_services(settings, Database(database_url, database_url)) as services,
        open_worker_runtime(settings, services) as worker_runtime,
        running_worker(worker_runtime.worker),
    ):
        yield services


async def asked(services: Services) -> RunKey:
    request = RunRequest(input="Hello", thread_id="t", correlation_id="corr-1")
    accepted = await services.runs.acceptance.accept(CALLER, request)
    async for _ in accepted.events:
        pass
    return accepted.key


def shown(event: Mapping[str, Any]) -> tuple[str, str, str, str]:
    return event["correlation_id"], event["event_type"], event["source"], event["payload"]["run_id"]


async def test_events_of_a_run_name_its_first_segment_if_runs_are_traced(database_url: str, tmp_path: Path) -> None:
    service, port = FakeContextService(), free_port()
    async with Collector() as collector:
        traced = platform(database_url, tmp_path, port, otlp_endpoint=collector.url)
        async with service.serving(port), traced as services, asyncio.timeout(60):
            await asked(services)
            await service.complete.wait()

    segment = collector.one("run.segment")
    assert service.traces - {None} == {f"00-{segment.trace_id}-{segment.id}-01"}  # other events have none


@pytest.mark.parametrize(
    ("given", "sent"), [({"context_service_token": SecretStr(TOKEN)}, f"Bearer {TOKEN}"), ({}, None)]
)
async def test_context_service_is_sent_its_token_and_no_log_shows_it(
    database_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, given: dict[str, Any], sent: str | None
) -> None:
    caplog.set_level(logging.DEBUG)
    service, port = FakeContextService(), free_port()
    async with platform(database_url, tmp_path, port, **given) as services, service.serving(port):
        await asked(services)
        async with asyncio.timeout(60):
            await service.complete.wait()

    assert service.tokens == {sent}
    assert TOKEN not in caplog.text


async def test_runs_continue_while_the_context_service_is_down_and_events_are_delivered_later(
    database_url: str, tmp_path: Path
) -> None:
    service, port = FakeContextService(), free_port()
    async with platform(database_url, tmp_path, port) as services:
        key = await asked(services)
        async with service.serving(port), asyncio.timeout(60):
            service.status = 503
            await service.asked.wait()
            service.status = 200
            await service.complete.wait()
        record = await services.runs.documents.row(key)

    of_run = [event for event in service.stream.values() if event["event_type"].startswith("run_")]
    assert [shown(event) for event in of_run] == [
        ("corr-1", "run_started", "starling", key.id),
        ("corr-1", "run_completed", "starling", key.id),
    ]
    started, completed = (event["payload"] for event in of_run)
    assert all(event.keys() == SHAPE for event in service.stream.values())
    assert started == {
        "tenant": DEFAULT_TENANT,
        "run_id": key.id,
        "thread_id": "t",
        "trace_id": record.trace_id,
        "epoch": 1,
        "status": "queued",
    }
    assert completed["status"] == "succeeded"
    assert completed["usage"]["model_calls"] >= 1


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_event_that_the_context_service_refuses_for_good_is_logged_and_not_sent_again(
    status: int, database_url: str, engine: AsyncEngine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    service, port = FakeContextService(), free_port()
    service.status = status
    async with platform(database_url, tmp_path, port) as services, service.serving(port), asyncio.timeout(60):
        await asked(services)
        while not await _all_settled(engine):  # noqa: ASYNC110 - a row of the database
            await asyncio.sleep(0.02)

    refused = [record.message for record in caplog.records if "refused audit event" in record.message]
    assert all(message.endswith(f"with HTTP {status}") for message in refused)
    assert len(refused) == len(set(refused)) == service.count >= 2


async def _all_settled(engine: AsyncEngine) -> bool:
    async with engine.connect() as connection:
        rows = (await connection.execute(select(audit_events.c.event_type, audit_events.c.delivered_at))).all()
    return "run_completed" in {row.event_type for row in rows} and all(row.delivered_at for row in rows)


async def test_changes_of_keys_switches_and_registry_are_delivered(database_url: str, tmp_path: Path) -> None:
    service, port = FakeContextService(last="switch.on"), free_port()
    actor, target = Actor.local("test"), Target("server", "time")
    async with platform(database_url, tmp_path, port) as services, service.serving(port), asyncio.timeout(60):
        row, key = await services.storage.keys.create(HOST_ADMIN, KeySpec("ci", "shop", frozenset([Scope.RUN])), actor)
        await services.storage.keys.revoke(HOST_ADMIN, row.id, actor)
        await services.storage.switches.off(target, "It lies.", actor)
        await services.storage.switches.on(target, actor)
        await service.complete.wait()

    stream = [event for event in service.stream.values() if event["payload"]["origin"] == "test"]
    assert [event["event_type"] for event in stream] == ["key.create", "key.revoke", "switch.off", "switch.on"]
    assert {event["source"] for event in stream} == {"starling"}
    assert all(event.keys() == SHAPE for event in stream)
    assert stream[1]["payload"] == {
        "tenant": "*",
        "actor": "local",
        "origin": "test",
        "action": "key.revoke",
        "target": row.id,
        "detail": {"tenant": "shop"},
    }
    assert key not in json.dumps(stream)
    assert any(event["event_type"] == "registry.start" for event in service.stream.values())


async def test_claimed_events_are_not_given_to_another_relay_until_they_are_released(
    engine: AsyncEngine, database_url: str, tmp_path: Path
) -> None:
    async with platform(database_url, tmp_path, free_port()) as services:
        await asked(services)
    one, other = Outbox(engine), Outbox(engine)
    async with engine.begin() as connection:  # whatever the platform held when it ended
        await connection.execute(audit_events.delete().where(audit_events.c.event_type.not_like("run_%")))
        await connection.execute(audit_events.update().values(due_at=audit_events.c.created_at))

    taken = await one.take(10, lease_seconds=60)
    meanwhile = await other.take(10, lease_seconds=60)
    await one.settle(taken[:1], taken[1:])
    afterwards = await other.take(10, lease_seconds=60)

    assert ([event.event_type for event in taken], meanwhile) == (["run_started", "run_completed"], [])
    assert [event.event_type for event in afterwards] == ["run_completed"]
    async with engine.connect() as connection:
        delivered = (await connection.execute(select(audit_events.c.delivered_at))).scalars().all()
    assert [moment is None for moment in delivered].count(False) == 1


async def test_events_are_delivered_for_seven_days(engine: AsyncEngine, database_url: str, tmp_path: Path) -> None:
    async with platform(database_url, tmp_path, free_port()) as services:
        await asked(services)
    taken: list[list[str]] = []
    for age in ("6 days 23 hours", "7 days 1 hour"):
        async with engine.begin() as connection:
            values = {"created_at": func.now() - cast(age, INTERVAL), "due_at": func.now()}
            await connection.execute(audit_events.update().values(values))
        taken.append([event.event_type for event in await Outbox(engine).take(100, lease_seconds=60)])

    assert ("run_completed" in taken[0], taken[1]) == (True, [])
