"""What agents are found with. Heavy: imported when something is searched for the first time."""

from brain.retrieval.agent_finder import AgentFinder
from starling.core.clock import SystemClock
from starling.core.settings import Settings
from starling.infra.embeddings.cache import PostgresCachingEmbedder
from starling.infra.embeddings.factory import build_embedder
from starling.infra.postgres.embeddings import EmbeddingRepository
from starling.infra.postgres.engine import Engine


def build_agent_finder(settings: Settings, engine: Engine) -> AgentFinder:
    """Return the finder of agents with the embedder of the settings. Raises ConfigurationError."""
    embedder = build_embedder(settings)
    kept = PostgresCachingEmbedder(embedder, EmbeddingRepository(engine)) if embedder else None
    return AgentFinder(kept, SystemClock())
