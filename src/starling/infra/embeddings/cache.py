"""An embedder that keeps vectors in Postgres."""

import asyncio
import logging
from array import array
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from starling.core.embeddings import CachingEmbedder, Embedder, Vector
from starling.core.errors import ConfigurationError, DatabaseUnavailableError
from starling.core.json import digest
from starling.infra.postgres.embeddings import EmbeddingRepository

_log = logging.getLogger(__name__)


class PostgresCachingEmbedder(CachingEmbedder):
    """Embeds only texts whose vectors aren't stored. While Postgres is away, all texts are embedded and none stored.

    `build` returns the embedder of another model's name, None for a name without vectors. Raises ConfigurationError.
    """

    def __init__(
        self, embedder: Embedder, repository: EmbeddingRepository, build: Callable[[str], Embedder | None]
    ) -> None:
        self._embedder = embedder
        self._repository = repository
        self._build = build

    @property
    def name(self) -> str:
        return self._embedder.name

    @property
    def dimensions(self) -> int:
        return self._embedder.dimensions

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        return await self._embedder.embed(texts)

    async def close(self) -> None:
        await self._embedder.close()

    async def kept(self, tenant: str, texts: Sequence[str]) -> Mapping[str, Vector]:
        hashes = {text: digest(text) for text in texts}
        found: Mapping[str, bytes] = {}
        with _logged("stored vectors can't be read: %s"):
            found = await self._repository.get(tenant, self.name, list(hashes.values()))
        vectors = {key: np.frombuffer(data, dtype="<f2").astype(np.float32).tobytes() for key, data in found.items()}
        return {text: array("f", vectors[key]) for text, key in hashes.items() if key in vectors}

    async def embed_and_keep(self, tenant: str, texts: Sequence[str]) -> list[Vector]:
        known = dict(await self.kept(tenant, texts))
        missing = [text for text in dict.fromkeys(texts) if text not in known]
        if missing:
            made = dict(zip(missing, await self._embedder.embed(missing), strict=True))
            with _logged("vectors can't be stored: %s"):
                halves = {text: np.asarray(vector, dtype=np.float32).astype("<f2") for text, vector in made.items()}
                packed = {digest(text): vector.tobytes() for text, vector in halves.items()}
                await self._repository.put(tenant, self.name, packed)
            known |= made
        return [known[text] for text in texts]

    async def former(self, texts: Mapping[str, Sequence[str]]) -> CachingEmbedder | None:
        """Return the embedder of the newest other model that has vectors of all texts and can still be built."""
        keys = [(tenant, digest(text)) for tenant, wanted in texts.items() for text in wanted]
        models: Sequence[str] = ()
        with _logged("stored vectors can't be read: %s"):
            models = await self._repository.other_models(self.name, keys)
        for model in models:
            try:
                embedder = await asyncio.to_thread(self._build, model)
            except ConfigurationError as error:
                _log.info("vectors of %s are stored, but it can't be used any more: %s", model, error)
                continue
            if embedder is not None:
                return PostgresCachingEmbedder(embedder, self._repository, self._build)
        return None


@contextmanager
def _logged(text: str) -> Generator[None]:
    """Do without Postgres while it is away; the engine reports that."""
    try:
        yield
    except DatabaseUnavailableError as error:
        _log.info(text, error)
