"""What a worker process runs with: models, the gateway to MCP servers, the brain and the worker."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass

from brain.lifecycle.active_runs import ActiveRuns
from brain.registry.prompt_versions import PromptChoice
from brain.registry.service import Registry
from mcp_gateway.configuration.servers import read_config
from mcp_gateway.gateway import Gateway, open_gateway
from mcp_gateway.registration.repository import CACHE_CHANNEL, ServerRepository
from starling.app.access.kill_switches import KillSwitchCache
from starling.app.access.local_token import read_token
from starling.app.container.database import Database
from starling.app.container.deferred import DeferredBrain, connect, execution, file_watcher, isolated_run
from starling.app.container.private_files import private_files
from starling.app.container.services import Services
from starling.app.registry.epoch_follower import EpochFollower
from starling.app.registry.epoch_publisher import EpochPublisher
from starling.app.registry.service import RegistryService
from starling.app.runs.cancellation import CancellationListener
from starling.app.telemetry.instrumentation import MeasuredRuns
from starling.app.telemetry.outbox_relay import relay_outbox
from starling.app.telemetry.score_relay import relay_scores
from starling.app.worker.heartbeat import Heartbeat
from starling.app.worker.isolation import IsolatedRuns
from starling.app.worker.session_warming import warm_recent_servers
from starling.app.worker.worker import RunHandlers, Worker
from starling.core.background_tasks import in_background
from starling.core.clock import SystemClock
from starling.core.secrets.known import settings_secrets
from starling.core.settings.schema import Settings, environment
from starling.core.tools import ServerListing
from starling.core.tracing import Tracer
from starling.infra.llm.client import FallbackModelClient
from starling.infra.llm.factory import open_models
from starling.infra.postgres.audit import Actor
from starling.infra.postgres.runs.acceptance import Claim
from starling.infra.postgres.runs.lease_renewal import LeaseRenewer
from starling.infra.postgres.runs.recent_calls import RecentCalls
from starling.infra.postgres.runs.unsent_scores import UnsentScoreRepository
from starling.infra.tracing.factory import open_tracer

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WorkerRuntime:
    """The opened parts of a worker process."""

    gateway: Gateway
    registry: Registry
    epoch_follower: EpochFollower
    brain: DeferredBrain
    worker: Worker
    models: FallbackModelClient
    listings: tuple[ServerListing, ...]
    epoch: int
    halts: KillSwitchCache
    recent_calls: RecentCalls
    start_finished: asyncio.Event

    async def finish_start(self) -> None:
        """Import what runs need, open the sessions of the servers that were called last, let background work begin."""
        await self.gateway.connections()
        await warm_recent_servers(self.recent_calls, self.gateway, self.halts)
        await self.brain.load()
        self.start_finished.set()


@dataclass(frozen=True, slots=True)
class RunParts:
    """What the brain is built of."""

    settings: Settings
    services: Services
    models: FallbackModelClient
    gateway: Gateway
    tracer: Tracer
    halts: KillSwitchCache
    active_runs: ActiveRuns


@asynccontextmanager
async def open_run_parts(settings: Settings, services: Services, servers: ServerRepository) -> AsyncGenerator[RunParts]:
    """Open models, servers, kill switches, cancellation and traces."""
    async with AsyncExitStack() as stack:
        models = await stack.enter_async_context(open_models(settings))
        board = KillSwitchCache(services.switches)
        await stack.enter_async_context(board.listening(services.hub))
        observer = EpochPublisher(services.epochs, Actor.local("session"), "server.observe")
        opening = open_gateway(
            servers,
            connect,
            settings.limits,
            environment(),
            board,
            services.artifacts,
            settings.approval,
            _secrets(settings, services),
            ServerRepository(services.engine, observer),
            private_files(settings),
        )
        gateway = await stack.enter_async_context(opening)
        stack.enter_context(services.hub.subscribed(CACHE_CHANNEL, gateway.forget_result, gateway.forget_results))
        active = ActiveRuns()
        cancelling = CancellationListener(services.cancellation.repository, active)
        await stack.enter_async_context(cancelling.listening(services.hub))
        tracer = await stack.enter_async_context(open_tracer(settings))
        yield RunParts(settings, services, models, gateway, tracer, board, active)


@asynccontextmanager
async def open_worker_runtime(settings: Settings, services: Services) -> AsyncGenerator[WorkerRuntime]:
    """Register the configured servers, publish the epoch that they make, and build what executes runs."""
    async with AsyncExitStack() as stack:
        publisher = EpochPublisher(services.epochs, Actor.local("start"), "registry.start")
        publisher.prompts = await _local_prompts(services)
        servers = ServerRepository(services.engine, publisher)
        parts = await stack.enter_async_context(open_run_parts(settings, services, servers))
        gateway, active = parts.gateway, parts.active_runs
        registry = services.rosters
        watch = _watch(settings, services.registry)
        listings = await _register(settings, gateway)
        publisher.prompts = None  # epochs that it makes later are of servers alone
        epoch = publisher.activation.epoch.number
        epoch_follower = EpochFollower(gateway, registry, services.epochs, epoch, SystemClock())
        await stack.enter_async_context(epoch_follower.listening(services.hub))
        await stack.enter_async_context(watch)
        await stack.enter_async_context(relay_outbox(settings, services.engine))
        unsent_scores = UnsentScoreRepository(services.engine)
        await stack.enter_async_context(relay_scores(settings, unsent_scores, services.hub))
        metrics = services.metrics_exporter.metrics
        metrics.sessions.set_function(lambda: gateway.open_sessions)
        metrics.known_epoch.set_function(lambda: epoch_follower.epoch)
        metrics.known_since.set_function(lambda: epoch_follower.since)
        brain = DeferredBrain(lambda: execution().build_brain(parts))
        execute = MeasuredRuns(epoch_follower.before(brain.execute), metrics)
        isolated = _isolated(settings, services)

        def drain() -> None:
            brain.drain()
            isolated.drain()

        work = RunHandlers(execute, isolated.execute, brain.park, drain, sweeps=[services.interrupts.expire])
        worker = Worker(services.queue, services.leases, _heartbeat(settings, services, active), work, settings.limits)
        start_finished = asyncio.Event()
        if settings.skills:
            upkeep = _keep_skills(services, start_finished)
            await stack.enter_async_context(in_background(upkeep, "skill-upkeep"))
        yield WorkerRuntime(
            gateway,
            registry,
            epoch_follower,
            brain,
            worker,
            parts.models,
            listings,
            epoch,
            parts.halts,
            RecentCalls(services.engine),
            start_finished,
        )


async def _local_prompts(services: Services) -> PromptChoice:
    choice = await services.prompts.at_start()
    for fault in choice.faults.values():
        _log.warning("a prompt keeps its text: %s", fault)
    return choice


async def _keep_skills(services: Services, start_finished: asyncio.Event) -> None:
    """Look after the vectors of skills once the start is over."""
    await start_finished.wait()
    retrieval = await asyncio.to_thread(services.retrieval.get)
    if upkeep := retrieval.skill_upkeep(services.direct_url):
        await upkeep.repeat()


def _isolated(settings: Settings, services: Services) -> IsolatedRuns:
    def work_of(claim: Claim) -> bytes:
        return isolated_run().IsolatedWork.pickled(settings, Database(services.url, services.direct_url), claim)

    return IsolatedRuns(services.leases, work_of, services.metrics_exporter.metrics.take_over)


def _heartbeat(settings: Settings, services: Services, active: ActiveRuns) -> Heartbeat:
    seconds = settings.limits.lease_seconds
    return Heartbeat(LeaseRenewer(services.direct_url, lease_seconds=seconds), seconds, active.cancel)


def _watch(settings: Settings, registry: RegistryService) -> AbstractAsyncContextManager[None]:
    """Return what reloads the file at each change, if `watch_mcp_config` is set. Its content now is taken as loaded."""
    if settings.mcp_config is None or not settings.watch_mcp_config:
        return nullcontext()
    return file_watcher().FileWatcher(settings.mcp_config, registry).following()


async def _register(settings: Settings, gateway: Gateway) -> tuple[ServerListing, ...]:
    """Read the file where there is one. Servers that answer late make an epoch of their own when they do."""
    if settings.mcp_config is None:
        return await gateway.republish()

    async def late() -> None:
        await gateway.refresh()

    return await gateway.sync(read_config(settings.mcp_config), late)


def _secrets(settings: Settings, services: Services) -> dict[str, str]:
    """Return what results of tools must not show: the secrets of the settings, the database's and the local token."""
    found = {"database_url": services.direct_url, "token": read_token(settings.data_dir)}
    return {**found, **settings_secrets(settings)}
