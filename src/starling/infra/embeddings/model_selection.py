"""The embedding model that the settings name. Light: checked at each start, before anything is embedded."""

from typing import Final

from starling.core.errors import ConfigurationError
from starling.core.settings.schema import Settings
from starling.infra.llm.chat_model import Endpoint, ModelName
from starling.infra.llm.model_selection import check_key, endpoints, parse_model_name

STATIC: Final = "static"
OFF: Final = "off"


def check_embeddings(settings: Settings) -> None:
    """Raise ConfigurationError for an invalid embedding model in the settings. Makes no request."""
    if settings.embeddings in (STATIC, OFF):
        return
    name, endpoint = embedding_model(settings)
    if endpoint is None:  # an embedder of LangChain is built for that
        from starling.infra.embeddings.langchain_vectors import open_langchain_embedder

        open_langchain_embedder(name.provider, name.model)


def embedding_model(settings: Settings) -> tuple[ModelName, Endpoint | None]:
    """Return the model of a setting that is neither `static` nor `off`, and its endpoint. Raises ConfigurationError.

    Without an endpoint, LangChain has to know the provider.
    """
    try:
        name = parse_model_name(settings.embeddings)
    except ConfigurationError as error:
        raise ConfigurationError(
            f"STARLING_EMBEDDINGS is {settings.embeddings!r}: neither static, off nor of the form provider:model.",
            "Write for example static, openai:text-embedding-3-small or ollama:nomic-embed-text.",
        ) from error
    endpoint = endpoints(settings).get(name.provider)
    if endpoint:
        check_key(name, endpoint)
    return name, endpoint
