"""Opens what executes runs. Heavy: a platform imports this once it is ready."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial

from architect.building import Builder
from brain.execution.run_executor import Brain, Collaborators
from brain.governance import RequestGovernance
from brain.lifecycle.active_runs import ActiveRuns
from brain.lifecycle.finalization import RunFinalizer
from brain.skills.embedding_upkeep import SkillUpkeep
from starling.app.container.servers import Servers
from starling.app.services import Services
from starling.app.telemetry.instrumentation import MeasuredModels, MeasuredRuns, MeasuredTools
from starling.app.telemetry.outbox_relay import relay_outbox
from starling.app.telemetry.score_relay import relay_scores
from starling.app.worker.heartbeat import Heartbeat
from starling.app.worker.isolation import IsolatedRuns
from starling.app.worker.worker import RunHandlers, Worker
from starling.core.background_tasks import in_background
from starling.core.clock import SystemClock
from starling.core.settings.schema import Settings
from starling.infra.brainstem import ServiceGovernance, open_brainstem
from starling.infra.llm.factory import open_models
from starling.infra.postgres.runs.conversations import ConversationRepository
from starling.infra.postgres.runs.feedback import UnsentScoreRepository
from starling.infra.postgres.runs.leases import LeaseRenewer
from starling.infra.tracing.destination import langfuse_of


@dataclass(frozen=True, slots=True)
class Execution:
    """What executes runs, and the worker that claims them for it."""

    brain: Brain
    worker: Worker


@asynccontextmanager
async def open_brain(
    settings: Settings, services: Services, servers: Servers, active: ActiveRuns
) -> AsyncGenerator[Brain]:
    """Open models and traces; runs of this process that are cancelled are among the `active` ones."""
    storage, runs, limits, metrics = services.storage, services.runs, settings.limits, services.storage.metrics.metrics
    async with (
        open_models(settings) as models,
        in_background(runs.cancellation.listen(storage.hub, active), "follow-cancellations"),
        open_brainstem(settings) as brainstem,
    ):
        yield Brain(
            Collaborators(
                engine=storage.engine,
                broadcast=storage.broadcast,
                finalizer=RunFinalizer(runs.repository, runs.documents, langfuse_of(settings) is not None),
                reader=runs.reader,
                conversations=ConversationRepository(storage.engine),
                interrupts=runs.interrupts,
                registry=storage.rosters,
                governance=RequestGovernance(
                    limits, None if brainstem is None else partial(ServiceGovernance, service=brainstem)
                ),
                models=MeasuredModels(models, metrics),
                gateway=MeasuredTools(servers.gateway, metrics),
                agent_ranker=services.retrieval.agents,
                clock=SystemClock(),
                limits=limits,
                tracer=services.tracer,
                halts=servers.halts,
                active_runs=active,
                artifacts=storage.artifacts,
                memory=replace(services.retrieval.skills, tracer=services.tracer) if settings.skills else None,
                builder=Builder(services.team_store),
            )
        )


@asynccontextmanager
async def open_execution(
    settings: Settings, services: Services, servers: Servers, draining: asyncio.Event | None = None
) -> AsyncGenerator[Execution]:
    """Open what executes runs and what a worker does besides: it relays audit events and scores, and keeps vectors."""
    storage, runs, active = services.storage, services.runs, ActiveRuns()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(relay_outbox(settings, storage.engine))
        unsent_scores = UnsentScoreRepository(storage.engine)
        await stack.enter_async_context(relay_scores(settings, unsent_scores, storage.hub))
        brain = await stack.enter_async_context(open_brain(settings, services, servers, active))
        metrics = storage.metrics.metrics
        isolated = IsolatedRuns(runs.leases, settings, storage.url, storage.direct_url, metrics.take_over)

        def drain() -> None:
            brain.drain()
            isolated.drain()

        execute = MeasuredRuns(servers.epoch_follower.before(brain.execute), metrics)
        work = RunHandlers(execute, isolated.execute, brain.park, drain, sweeps=[runs.interrupts.expire])
        seconds = settings.limits.lease_seconds
        renewer = LeaseRenewer(storage.direct_url, lease_seconds=seconds)
        if settings.skills and services.retrieval.embedder is not None:
            upkeep = SkillUpkeep(storage.direct_url, services.retrieval.embedder, on_failure=storage.writes.failed)
            await stack.enter_async_context(in_background(upkeep.repeat(), "skill-upkeep"))
        heartbeat = Heartbeat(renewer, seconds, active.cancel, storage.writes.outage)
        yield Execution(brain, Worker(runs.queue, runs.leases, heartbeat, work, settings.limits, draining))
