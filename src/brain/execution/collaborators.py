"""What runs are executed with."""

from dataclasses import dataclass, field

from brain.conversation.repository import ConversationRepository
from brain.governance import Governance
from brain.lifecycle.active_runs import ActiveRuns
from brain.lifecycle.finalization import RunFinalizer
from brain.registry.service import Registry
from brain.retrieval.search import AgentRanker
from brain.skills.memory import SkillMemory
from starling.core.artifacts import DISABLED_ARTIFACT_STORE, ArtifactStore
from starling.core.clock import Clock
from starling.core.llm import ModelClient
from starling.core.settings.schema import Limits
from starling.core.teams.building import TeamBuilder
from starling.core.tools import NO_HALTS, Halts, ToolGateway
from starling.core.tracing import NOOP_TRACER, Tracer
from starling.infra.postgres.engine import Engine
from starling.infra.postgres.runs.broadcast import Broadcast
from starling.infra.postgres.runs.interrupts import InterruptRepository
from starling.infra.postgres.runs.reader import RunReader


@dataclass(frozen=True, slots=True)
class Collaborators:
    """What every run is executed with; the same for all runs of a process."""

    engine: Engine
    broadcast: Broadcast
    finalizer: RunFinalizer
    reader: RunReader
    conversations: ConversationRepository
    interrupts: InterruptRepository
    registry: Registry
    governance: Governance
    models: ModelClient
    gateway: ToolGateway
    agent_ranker: AgentRanker
    clock: Clock
    limits: Limits
    tracer: Tracer = NOOP_TRACER
    halts: Halts = NO_HALTS
    active_runs: ActiveRuns = field(default_factory=ActiveRuns)
    artifacts: ArtifactStore = DISABLED_ARTIFACT_STORE
    memory: SkillMemory | None = None  # None where skills are switched off
    builder: TeamBuilder | None = None  # None where no teams can be built
