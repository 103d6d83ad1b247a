"""The composition root: the only module that knows every concrete class."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial

from brain.conversation.repository import ConversationRepository
from brain.executor import Brain, Collaborators
from brain.governance import TableGovernance
from brain.lifecycle.cancellation import ActiveRuns
from brain.lifecycle.finalization import RunFinalizer
from brain.registry.custom_agents.repository import AgentRepository
from brain.registry.custom_agents.service import CustomAgents
from brain.registry.repository import EpochRepository
from brain.registry.service import Registry
from brain.state import GRAPH_VERSION
from mcp_gateway.config import read_config
from mcp_gateway.gateway import Gateway, open_gateway
from mcp_gateway.repository import ServerRepository
from starling.app.access.keys import KeyService
from starling.app.access.kill_switches import KillSwitchCache
from starling.app.registry.agents import AgentService
from starling.app.registry.epoch_follower import EpochFollower
from starling.app.registry.epoch_publisher import EpochPublisher
from starling.app.registry.file_watcher import watching
from starling.app.registry.service import RegistryService
from starling.app.runs.acceptance import RunAcceptance
from starling.app.runs.cancellation import CancellationListener, RunCancellation
from starling.app.runs.interrupts import InterruptService
from starling.app.runtime.database import Database
from starling.app.runtime.outbox_relay import relay_outbox
from starling.app.telemetry.instrumentation import MeasuredModels, MeasuredRuns, MeasuredTools
from starling.app.telemetry.metrics import Metrics, MetricsExporter
from starling.app.worker.heartbeat import Heartbeat
from starling.app.worker.worker import Work, Worker
from starling.core.artifacts import ArtifactStore
from starling.core.clock import SystemClock
from starling.core.settings import Limits, Settings, environment
from starling.core.tools import ServerListing
from starling.infra.llm.client import FallbackModelClient
from starling.infra.llm.factory import open_models
from starling.infra.postgres.artifacts import PostgresArtifacts, Quota
from starling.infra.postgres.audit import Actor
from starling.infra.postgres.engine import ConnectionLimits, Engine, open_engine
from starling.infra.postgres.keys import KeyRepository
from starling.infra.postgres.kill_switches import SwitchRepository
from starling.infra.postgres.notifications import NotificationHub, open_hub
from starling.infra.postgres.runs.acceptance import RunRepository
from starling.infra.postgres.runs.broadcast import Broadcast
from starling.infra.postgres.runs.interrupts import InterruptRepository
from starling.infra.postgres.runs.lease_renewal import Renewals
from starling.infra.postgres.runs.leases import Leases
from starling.infra.postgres.runs.queue_depth import backlog
from starling.infra.postgres.runs.reader import RunReader
from starling.infra.postgres.schema import check, upgrade
from starling.infra.queue.run_queue import RunQueue, open_queue
from starling.infra.tracing.factory import open_tracer

_FOR_STREAMS = 4  # connections, which requests and runs can't take from them


@dataclass(frozen=True, slots=True)
class Services:
    """Everything over Postgres that both the API and a worker need."""

    engine: Engine
    hub: NotificationHub
    broadcast: Broadcast
    queue: RunQueue
    runs: RunRepository
    leases: Leases
    interrupts: InterruptRepository
    answering: InterruptService
    reader: RunReader
    servers: ServerRepository
    epochs: EpochRepository
    registry: RegistryService
    rosters: Registry
    agents: AgentService
    acceptance: RunAcceptance
    metrics_exporter: MetricsExporter
    direct_url: str  # past any transaction pooler
    keys: KeyService
    cancellation: RunCancellation
    switches: SwitchRepository
    artifacts: ArtifactStore


@dataclass(frozen=True, slots=True)
class WorkerRuntime:
    """What a worker works with."""

    gateway: Gateway
    registry: Registry
    epoch_follower: EpochFollower
    brain: Brain
    worker: Worker
    models: FallbackModelClient
    listings: tuple[ServerListing, ...]
    epoch: int


@asynccontextmanager
async def open_services(settings: Settings, database: Database, *, migrate: bool = False) -> AsyncGenerator[Services]:
    """Check or bring up to date what Postgres and its schema are, then connect to it."""
    await (upgrade(database.direct_url) if migrate else check(database.direct_url))
    async with AsyncExitStack() as stack:
        limits = ConnectionLimits(size=_connections(settings.limits), behind_pooler=database.behind_pooler)
        engine, streams = (open_engine(database.url, each) for each in (limits, replace(limits, size=_FOR_STREAMS)))
        stack.push_async_callback(engine.dispose)
        stack.push_async_callback(streams.dispose)
        hub = await stack.enter_async_context(open_hub(database.direct_url))
        broadcast = Broadcast(hub)
        stack.enter_context(broadcast.following(hub))
        queue = await stack.enter_async_context(open_queue(database.direct_url, hub))
        metrics = Metrics()
        broadcast.observers.append(metrics.written)
        runs = RunRepository(engine, queue.defer, cap=settings.limits.runs_per_tenant, local=queue)
        reader = RunReader(engine, broadcast, streams=streams)
        stack.push_async_callback(reader.close)
        epochs = EpochRepository(engine)
        cancellation = RunCancellation.over(engine, broadcast, runs)
        interrupts = InterruptRepository(engine, runs)
        answering = InterruptService(interrupts)
        rosters = Registry(epochs, CustomAgents(AgentRepository(engine)))
        yield Services(
            engine=engine,
            hub=hub,
            broadcast=broadcast,
            queue=queue,
            runs=runs,
            leases=Leases(engine, queue.defer, runs.admit),
            interrupts=interrupts,
            answering=answering,
            reader=reader,
            servers=ServerRepository(engine),
            epochs=epochs,
            registry=RegistryService(engine, epochs, settings.limits),
            rosters=rosters,
            agents=AgentService.over(engine, rosters, settings),
            acceptance=RunAcceptance(
                runs, reader, settings.limits, GRAPH_VERSION, cancellation.cancel_superseded, answering.answer_instead
            ),
            metrics_exporter=MetricsExporter.of(metrics, partial(backlog, engine), epochs.active_number),
            direct_url=database.direct_url,
            keys=KeyService(KeyRepository(engine), SystemClock()),
            cancellation=cancellation,
            switches=SwitchRepository(engine),
            artifacts=PostgresArtifacts(engine, _quota(settings.limits)),
        )


@asynccontextmanager
async def open_worker_runtime(settings: Settings, services: Services) -> AsyncGenerator[WorkerRuntime]:
    """Register the configured servers, publish the epoch that they make, and build what executes runs."""
    async with AsyncExitStack() as stack:
        models = await stack.enter_async_context(open_models(settings))
        publisher = EpochPublisher(services.epochs, Actor.local("start"), "registry.start")
        servers = ServerRepository(services.engine, publisher)
        board = KillSwitchCache(services.switches)
        await stack.enter_async_context(board.listening(services.hub))
        opening = open_gateway(servers, settings.limits, environment(), board, services.artifacts)
        gateway = await stack.enter_async_context(opening)
        registry = services.rosters
        watch = watching(settings, services.registry)
        listings = await _register(settings, gateway)
        epoch = publisher.activation.epoch.number
        epoch_follower = EpochFollower(gateway, registry, services.epochs, epoch, SystemClock())
        await stack.enter_async_context(epoch_follower.listening(services.hub))
        await stack.enter_async_context(watch)
        await stack.enter_async_context(relay_outbox(settings, services.engine))
        metrics = services.metrics_exporter.metrics
        metrics.sessions.set_function(lambda: gateway.open_sessions)
        metrics.known_epoch.set_function(lambda: epoch_follower.epoch)
        metrics.known_since.set_function(lambda: epoch_follower.since)
        lives = ActiveRuns()
        cancelling = CancellationListener(services.cancellation.repository, lives)
        await stack.enter_async_context(cancelling.listening(services.hub))
        brain = Brain(
            Collaborators(
                engine=services.engine,
                broadcast=services.broadcast,
                ending=RunFinalizer(services.runs, SystemClock()),
                reader=services.reader,
                conversations=ConversationRepository(services.engine),
                interrupts=services.interrupts,
                registry=registry,
                governance=TableGovernance(settings.limits),
                models=MeasuredModels(models, metrics),
                gateway=MeasuredTools(gateway, metrics),
                clock=SystemClock(),
                limits=settings.limits,
                tracer=await stack.enter_async_context(open_tracer(settings)),
                halts=board,
                lives=lives,
                artifacts=services.artifacts,
            )
        )
        execute = MeasuredRuns(epoch_follower.before(brain.execute), metrics)
        work = Work(execute, brain.park, brain.drain, sweeps=[services.interrupts.expire])
        worker = Worker(services.queue, services.leases, _heartbeat(settings, services, lives), work, settings.limits)
        yield WorkerRuntime(gateway, registry, epoch_follower, brain, worker, models, listings, epoch)


def _heartbeat(settings: Settings, services: Services, lives: ActiveRuns) -> Heartbeat:
    seconds = settings.limits.lease_seconds
    return Heartbeat(Renewals(services.direct_url, lease_seconds=seconds), seconds, lives.cancel)


async def _register(settings: Settings, gateway: Gateway) -> tuple[ServerListing, ...]:
    """Read the file where there is one. Servers that answer late make an epoch of their own when they do."""
    if settings.mcp_config is None:
        return await gateway.republish()

    async def late() -> None:
        await gateway.refresh()

    return await gateway.sync(read_config(settings.mcp_config), late)


def _quota(limits: Limits) -> Quota:
    return Quota(limits.artifact_bytes, limits.tenant_artifact_bytes)


def _connections(limits: Limits) -> int:
    """Flushes are short: a connection serves several runs."""
    return min(24, max(8, limits.runs_per_worker // 3))
