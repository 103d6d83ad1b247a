"""Builds the embedder that the settings name."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from starling.core.embeddings import Embedder
from starling.core.settings import Settings
from starling.infra.llm.model_selection import check_key, endpoints, parse_model_name
from starling.infra.llm.openai_endpoint import open_session

STATIC, OFF = "static", "off"


@asynccontextmanager
async def open_embedder(settings: Settings) -> AsyncGenerator[Embedder | None]:
    """Yield the embedder of the setting `embeddings`, None if it is `off`. Raises ConfigurationError.

    No request is made, and the built-in vectors are loaded by the first text.
    """
    if settings.embeddings == OFF:
        yield None
        return
    if settings.embeddings == STATIC:
        from starling.infra.embeddings.static_vectors import StaticEmbedder  # noqa: PLC0415 - numpy is heavy

        yield StaticEmbedder()
        return
    name = parse_model_name(settings.embeddings)
    endpoint = endpoints(settings).get(name.provider)
    if endpoint is None:
        from starling.infra.embeddings.langchain_vectors import open_langchain_embedder  # noqa: PLC0415 - heavy

        yield open_langchain_embedder(name.provider, name.model)
        return
    from starling.infra.embeddings.openai_vectors import EndpointEmbedder  # noqa: PLC0415 - numpy is heavy

    check_key(name, endpoint)
    async with open_session(trust_env=True) as session:
        yield EndpointEmbedder(str(name), name.model, endpoint, session)
