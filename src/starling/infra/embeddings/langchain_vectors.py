"""Embeddings of all other providers, through LangChain. Imported only if one is configured: the import is slow."""

from collections.abc import Sequence

from langchain.embeddings import init_embeddings
from langchain_core.embeddings import Embeddings

from starling.core.embeddings import Vector
from starling.core.errors import ConfigurationError, LLMConnectionError, LLMInvalidResponse
from starling.infra.embeddings.unit_vectors import unit_vector


def open_langchain_embedder(provider: str, model: str) -> "LangChainEmbedder":
    """Return the embedder of a provider that LangChain supports.

    Raises ConfigurationError if it doesn't, if the provider's package is missing or if the package needs a setting.
    """
    name = f"{provider}:{model}"
    try:
        built = init_embeddings(model, provider=provider)
    except Exception as error:  # each provider's package has errors of its own
        raise ConfigurationError(
            f"The embedding model {name} can't be set up: {error}", "Check STARLING_EMBEDDINGS."
        ) from error
    return LangChainEmbedder(name, built)


class LangChainEmbedder:
    """One embedding model behind LangChain's interface."""

    def __init__(self, name: str, model: Embeddings) -> None:
        self.name = name
        self.dimensions = 0
        self._model = model

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """Return the vector of each text. Raises ModelError."""
        try:
            found = await self._model.aembed_documents(list(texts))
        except Exception as error:  # each provider's package has errors of its own
            raise LLMConnectionError(self.name, f"its package failed: {type(error).__name__}: {error}.") from error
        try:
            vectors = [unit_vector(numbers) for numbers in found]
        except (TypeError, ValueError) as error:
            raise LLMInvalidResponse(self.name, f"its vectors can't be read: {error}.") from error
        if len(vectors) != len(texts):
            raise LLMInvalidResponse(self.name, f"{len(texts)} texts got {len(vectors)} vectors.")
        self.dimensions = len(vectors[0]) if vectors else self.dimensions
        return vectors

    async def close(self) -> None:
        """Do nothing: the provider's package keeps its connections to itself."""
