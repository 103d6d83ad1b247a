"""What agents are found with. Heavy: imported when something is searched for the first time."""

from brain.retrieval.agent_finder import PATIENCE_SECONDS, AgentFinder
from starling.core.clock import SystemClock
from starling.core.embeddings import Embedder
from starling.core.settings import Settings
from starling.infra.embeddings.cache import PostgresCachingEmbedder
from starling.infra.embeddings.factory import build_embedder
from starling.infra.postgres.embeddings import EmbeddingRepository
from starling.infra.postgres.engine import Engine


def build_agent_finder(settings: Settings, engine: Engine, patience: float = PATIENCE_SECONDS) -> AgentFinder:
    """Return the finder of agents with the embedder of the settings; see AgentFinder. Raises ConfigurationError."""

    def build(model: str) -> Embedder | None:
        return build_embedder(settings.model_copy(update={"embeddings": model}))

    embedder = build_embedder(settings)
    kept = PostgresCachingEmbedder(embedder, EmbeddingRepository(engine), build) if embedder else None
    return AgentFinder(kept, SystemClock(), patience)
