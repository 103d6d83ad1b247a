"""What executes and ends runs. Heavy: imported once the platform is ready, or for the first run that ends earlier."""

from typing import TYPE_CHECKING

from architect.building import Builder
from architect.design.designer import Designer
from brain.conversation.repository import ConversationRepository
from brain.execution.collaborators import Collaborators
from brain.execution.run_executor import Brain
from brain.governance import TableGovernance
from brain.lifecycle.finalization import RunFinalizer
from brain.lifecycle.termination import RunTerminator
from starling.app.telemetry.instrumentation import MeasuredModels, MeasuredTools
from starling.core.clock import SystemClock
from starling.infra.postgres.engine import Engine
from starling.infra.postgres.runs.acceptance import RunRepository
from starling.infra.postgres.runs.broadcast import Broadcast
from starling.infra.postgres.runs.reader import RunReader
from starling.infra.tracing.destination import langfuse_of

if TYPE_CHECKING:
    from starling.app.container.worker_runtime import RunParts


def build_terminator(engine: Engine, broadcast: Broadcast, reader: RunReader, runs: RunRepository) -> RunTerminator:
    """Return what ends runs that no worker executes; a worker of another process may send their status to Langfuse."""
    return RunTerminator(engine, broadcast, reader, RunFinalizer(runs, SystemClock(), sends_status=True))


def build_brain(parts: "RunParts") -> Brain:
    """Return what executes runs."""
    services, limits, metrics = parts.services, parts.settings.limits, parts.services.metrics_exporter.metrics
    return Brain(
        Collaborators(
            engine=services.engine,
            broadcast=services.broadcast,
            finalizer=RunFinalizer(services.runs, SystemClock(), langfuse_of(parts.settings) is not None),
            reader=services.reader,
            conversations=ConversationRepository(services.engine),
            interrupts=services.interrupts,
            registry=services.rosters,
            governance=TableGovernance(limits),
            models=MeasuredModels(parts.models, metrics),
            gateway=MeasuredTools(parts.gateway, metrics),
            agent_ranker=services.agent_ranker,
            clock=SystemClock(),
            limits=limits,
            tracer=parts.tracer,
            halts=parts.halts,
            active_runs=parts.active_runs,
            artifacts=services.artifacts,
            memory=services.retrieval.get().memory(parts.tracer) if parts.settings.skills else None,
            builder=Builder(services.team_store, Designer()),
        )
    )
