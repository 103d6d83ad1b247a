"""What agents and skills are found with. Heavy: imported when something is searched for the first time."""

from dataclasses import dataclass

from brain.retrieval.agent_finder import PATIENCE_SECONDS, AgentFinder
from brain.skills.memory import SkillMemory
from brain.skills.repository import SkillRepository
from brain.skills.upkeep import SkillUpkeep
from starling.core.clock import SystemClock
from starling.core.embeddings import Embedder
from starling.core.secrets.redaction import Redaction
from starling.core.settings.schema import Settings, environment
from starling.core.tracing import Tracer
from starling.infra.embeddings.cache import PostgresCachingEmbedder
from starling.infra.embeddings.factory import build_embedder
from starling.infra.postgres.embeddings import EmbeddingRepository
from starling.infra.postgres.engine import Engine


@dataclass(frozen=True, slots=True)
class Retrieval:
    """The finder of agents, and the embedder that it shares with the memory of skills."""

    settings: Settings
    engine: Engine
    embedder: Embedder | None
    agent_finder: AgentFinder

    def memory(self, tracer: Tracer) -> SkillMemory:
        """Return the memory of skills."""
        redact = Redaction.of(self.settings, environment())  # which configurations of servers refer to
        return SkillMemory(SkillRepository(self.engine), self.embedder, redact, tracer, SystemClock())

    def skill_upkeep(self, direct_url: str) -> SkillUpkeep | None:
        """Return what keeps the vectors of skills; None without embeddings."""
        return SkillUpkeep(direct_url, self.embedder) if self.embedder else None


def build_retrieval(settings: Settings, engine: Engine, patience: float = PATIENCE_SECONDS) -> Retrieval:
    """Return what the embedder of the settings is used for; see AgentFinder. Raises ConfigurationError."""

    def build(model: str) -> Embedder | None:
        return build_embedder(settings.model_copy(update={"embeddings": model}))

    embedder = build_embedder(settings)
    kept = PostgresCachingEmbedder(embedder, EmbeddingRepository(engine), build) if embedder else None
    return Retrieval(settings, engine, embedder, AgentFinder(kept, SystemClock(), patience))
