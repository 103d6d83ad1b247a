"""Builds the embedder that the settings name. Heavy: it imports numpy, and LangChain where a provider needs it."""

from urllib.request import getproxies

from starling.core.embeddings import Embedder
from starling.core.settings.schema import Settings
from starling.infra.embeddings.model_selection import OFF, STATIC, embedding_model
from starling.infra.embeddings.openai_vectors import EndpointEmbedder
from starling.infra.embeddings.static_vectors import StaticEmbedder
from starling.infra.llm.openai_endpoint import open_session


def build_embedder(settings: Settings) -> Embedder | None:
    """Return the embedder of the setting `embeddings`, None if it is `off`. Raises ConfigurationError.

    No request is made, and the built-in vectors are loaded by the first text.
    """
    if settings.embeddings == OFF:
        return None
    if settings.embeddings == STATIC:
        return StaticEmbedder()
    name, endpoint = embedding_model(settings)
    if endpoint is None:
        from starling.infra.embeddings.langchain_vectors import open_langchain_embedder

        return open_langchain_embedder(name.provider, name.model)
    return EndpointEmbedder(str(name), name.model, endpoint, lambda: open_session(trust_env=bool(getproxies())))
