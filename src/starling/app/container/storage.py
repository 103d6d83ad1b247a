"""Opens what a process keeps open of Postgres. Light: a platform is ready with this alone."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial

from brain.registry.prompt_versions import PromptSelection
from brain.registry.repository import AgentRepository, EpochRepository, PromptRepository, StarRepository
from brain.registry.service import Registry
from mcp_gateway.registration.repository import ServerRepository
from starling.app.access.keys import KeyService
from starling.app.container.database import Database
from starling.app.runs.retention import RetentionService
from starling.app.storage import Storage
from starling.app.telemetry.metrics import Metrics, MetricsExporter
from starling.core.background_tasks import in_background
from starling.core.clock import SystemClock
from starling.core.settings.schema import Limits, Settings
from starling.infra.postgres.artifacts import PostgresArtifacts, Quota
from starling.infra.postgres.availability import WriteCheck
from starling.infra.postgres.engine import ConnectionLimits, open_engine
from starling.infra.postgres.keys import KeyRepository
from starling.infra.postgres.kill_switches import SwitchRepository
from starling.infra.postgres.notifications import open_hub
from starling.infra.postgres.retention import Retention
from starling.infra.postgres.runs.broadcast import Broadcast, NoticeSender
from starling.infra.postgres.runs.leases import backlog
from starling.infra.postgres.runs.thread_changes import ThreadChanges
from starling.infra.postgres.schema import check, upgrade
from starling.infra.prompts.factory import PromptFolder, remote_prompts


@asynccontextmanager
async def open_storage(
    settings: Settings, database: Database, *, migrate: bool = False, statement_seconds: float | None = None
) -> AsyncGenerator[Storage]:
    """Check the schema, or migrate it, then connect; `statement_seconds` is how long one statement may take.

    Raises DatabaseUnavailableError, DatabaseUnsuitableError.
    """
    await (upgrade(database.direct_url) if migrate else check(database.direct_url))
    limits = connection_limits(settings.limits, database.url, database.direct_url)
    if statement_seconds is not None:
        limits = replace(limits, statement_seconds=statement_seconds)
    async with AsyncExitStack() as stack:
        engine = open_engine(database.url, limits)
        stack.push_async_callback(engine.dispose)
        writes = WriteCheck(engine)
        await stack.enter_async_context(in_background(writes.watch(), "check-writes-while-idle"))
        hub = await stack.enter_async_context(open_hub(database.direct_url, writes.outage))
        notices = NoticeSender(engine)
        stack.push_async_callback(notices.close)
        broadcast = Broadcast(hub, notices)
        stack.enter_context(broadcast.subscribed(hub))
        metrics = Metrics()
        broadcast.observers.append(metrics.written)
        epochs, servers, prompts = EpochRepository(engine), ServerRepository(engine), PromptRepository(engine)
        agents, stars = AgentRepository(engine), StarRepository(engine)
        quota = Quota(settings.limits.artifact_bytes, settings.limits.tenant_artifact_bytes)
        yield Storage(
            url=database.url,
            direct_url=database.direct_url,
            engine=engine,
            hub=hub,
            broadcast=broadcast,
            writes=writes,
            artifacts=PostgresArtifacts(engine, quota),
            epochs=epochs,
            keys=KeyService(KeyRepository(engine), SystemClock()),
            metrics=MetricsExporter(
                metrics, writes.check, partial(backlog, engine), epochs.active_number, servers.breakers.by_server
            ),
            prompts=PromptSelection(PromptFolder(settings.prompts_dir), remote_prompts(settings), prompts, epochs),
            retention=RetentionService(engine, Retention(engine), ThreadChanges(engine)),
            rosters=Registry(epochs, agents, stars, prompts),
            servers=servers,
            switches=SwitchRepository(engine),
        )


def connection_limits(limits: Limits, url: str, direct_url: str) -> ConnectionLimits:
    """Return the limits of the pool: flushes are short, so a connection serves several runs."""
    return ConnectionLimits(size=min(24, max(8, limits.runs_per_worker // 3)), behind_pooler=url != direct_url)
