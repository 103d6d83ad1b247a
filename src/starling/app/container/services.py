"""Everything over Postgres that the API and a worker need: the services of `admin`, and those that change runs."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from brain.registry.repository import AgentRepository, EpochRepository, StarRepository
from brain.state import GRAPH_VERSION
from mcp_gateway.configuration.stdio_over_http import StdioRules
from mcp_gateway.gateway import open_gateway
from mcp_gateway.registration.repository import ServerRepository
from starling.app.container import deferred
from starling.app.container.admin import AdminServices, build_admin, build_prompts
from starling.app.container.database import Database
from starling.app.container.deferred import Deferred, connect
from starling.app.container.private_files import private_files
from starling.app.registry.service import RegistryService
from starling.app.runs.acceptance import RunAcceptance
from starling.app.runs.cancellation import RunCancellation
from starling.app.runs.interrupts import InterruptService
from starling.app.telemetry.metrics import Metrics, MetricsExporter
from starling.core.settings.schema import Limits, Settings, environment, secret_variables
from starling.infra.postgres.engine import ConnectionLimits, Engine, open_engine
from starling.infra.postgres.notifications import NotificationHub, open_hub
from starling.infra.postgres.runs.acceptance import RunRepository
from starling.infra.postgres.runs.broadcast import Broadcast, NoticeSender
from starling.infra.postgres.runs.interrupts import InterruptRepository
from starling.infra.postgres.runs.leases import Leases
from starling.infra.postgres.runs.queue_depth import backlog
from starling.infra.postgres.runs.reader import RunReader
from starling.infra.postgres.runs.termination import TerminationRepository
from starling.infra.postgres.schema import check, upgrade
from starling.infra.queue.run_queue import RunQueue, open_queue

if TYPE_CHECKING:
    from starling.app.teams.builds import BuildService

_STREAM_CONNECTIONS = 4  # reserved for event streams


@dataclass(frozen=True, slots=True)
class Services(AdminServices):
    """What routes, workers and commands that change runs or servers call."""

    engine: Engine
    url: str
    direct_url: str  # past any transaction pooler
    hub: NotificationHub
    broadcast: Broadcast
    queue: RunQueue
    runs: RunRepository
    leases: Leases
    interrupts: InterruptRepository
    acceptance: RunAcceptance
    answering: InterruptService
    cancellation: RunCancellation
    registry: RegistryService
    metrics_exporter: MetricsExporter

    @property
    def builds(self) -> "BuildService":
        return self.catalogs.get().builds(self.acceptance)


@asynccontextmanager
async def open_services(settings: Settings, database: Database, *, migrate: bool = False) -> AsyncGenerator[Services]:
    """Check the schema, or migrate it, then connect to the database.

    Raises DatabaseUnavailableError, DatabaseUnsuitableError.
    """
    await (upgrade(database.direct_url) if migrate else check(database.direct_url))
    async with AsyncExitStack() as stack:
        limits = ConnectionLimits(size=_connections(settings.limits), behind_pooler=database.behind_pooler)
        engine = open_engine(database.url, limits)
        stack.push_async_callback(engine.dispose)
        streams = open_engine(database.url, replace(limits, size=_STREAM_CONNECTIONS))
        stack.push_async_callback(streams.dispose)
        hub = await stack.enter_async_context(open_hub(database.direct_url))
        notices = NoticeSender(engine)
        stack.push_async_callback(notices.close)
        broadcast = Broadcast(hub, notices)
        stack.enter_context(broadcast.subscribed(hub))
        queue = await stack.enter_async_context(open_queue(database.direct_url, hub))
        reader = RunReader(engine, broadcast, streams=streams)
        stack.push_async_callback(reader.close)
        metrics = Metrics()
        broadcast.observers.append(metrics.written)
        caps = {"cap": settings.limits.runs_per_tenant, "backlog": settings.limits.queued_runs_per_tenant}
        runs = RunRepository(engine, queue.defer, **caps, local=queue)
        interrupts = InterruptRepository(engine, runs)
        terminator = Deferred(lambda: deferred.execution().build_terminator(engine, broadcast, reader, runs))
        cancellation = RunCancellation(TerminationRepository(engine), terminator)
        acceptance = RunAcceptance(runs, reader, interrupts, cancellation, settings.limits)
        admin = build_admin(engine, reader, settings)
        stack.push_async_callback(admin.retrieval.close)
        yield Services(
            agent_ranker=admin.agent_ranker,
            artifacts=admin.artifacts,
            catalogs=admin.catalogs,
            documents=admin.documents,
            epochs=admin.epochs,
            feedback=admin.feedback,
            keys=admin.keys,
            ledger=admin.ledger,
            listing=admin.listing,
            prompts=admin.prompts,
            reader=reader,
            retention=admin.retention,
            retrieval=admin.retrieval,
            rosters=admin.rosters,
            server_documents=admin.server_documents,
            servers=admin.servers,
            switch_targets=admin.switch_targets,
            switches=admin.switches,
            engine=engine,
            url=database.url,
            direct_url=database.direct_url,
            hub=hub,
            broadcast=broadcast,
            queue=queue,
            runs=runs,
            leases=Leases(engine, queue.defer, runs.admit, graph_version=GRAPH_VERSION),
            interrupts=interrupts,
            acceptance=acceptance,
            answering=InterruptService(interrupts),
            cancellation=cancellation,
            registry=build_registry(engine, settings),
            metrics_exporter=MetricsExporter(
                metrics, partial(backlog, engine), admin.epochs.active_number, admin.servers.breakers.by_server
            ),
        )


def build_registry(engine: Engine, settings: Settings) -> RegistryService:
    """Return what changes servers and epochs; it starts servers with the environment of this process."""
    return RegistryService(
        epochs=EpochRepository(engine),
        agents=AgentRepository(engine),
        stars=StarRepository(engine),
        prompts=build_prompts(engine, settings),
        servers=partial(ServerRepository, engine),
        gateway=partial(
            open_gateway,
            connect=connect,
            limits=settings.limits,
            environment=environment(),
            private=private_files(settings),
        ),
        stdio_rules=StdioRules(settings.stdio_over_http, secret_variables()),
    )


def _connections(limits: Limits) -> int:
    """Return the size of the pool: flushes are short, so a connection serves several runs."""
    return min(24, max(8, limits.runs_per_worker // 3))
