"""The vectors of one embedding model: of texts that come again, which are kept, and of queries."""

import asyncio
import logging
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final

from brain.retrieval.text_features import sentences
from starling.core.clock import Clock
from starling.core.embeddings import CachingEmbedder, Vector
from starling.core.errors import StarlingError

_RETRY_SECONDS: Final = 60.0
_QUERY_SECONDS: Final = 10.0
_PART: Final = 512  # texts that are embedded and kept together, so that an interrupted embedding goes on where it was
_log = logging.getLogger(__name__)

type TextsByTenant = Mapping[str, Sequence[str]]


@dataclass(slots=True)
class ModelVectors:
    """Asks an embedder. One that failed is not asked again for a minute; `failure` says why until it answers."""

    embedder: CachingEmbedder
    clock: Clock
    failure: str = ""
    _vectors: dict[str, Vector] = field(default_factory=dict[str, Vector])
    _retry_at: float = 0.0

    @property
    def name(self) -> str:
        return self.embedder.name

    @property
    def vectors(self) -> Mapping[str, Vector]:
        """Vectors by text, of the texts that were read or embedded."""
        return self._vectors

    @property
    def may_ask(self) -> bool:
        return self.clock.monotonic() >= self._retry_at

    def missing(self, texts: TextsByTenant) -> dict[str, list[str]]:
        """Return those texts that have no vector here."""
        wanted = {
            tenant: [text for text in dict.fromkeys(texts[tenant]) if text not in self._vectors] for tenant in texts
        }
        return {tenant: missing for tenant, missing in wanted.items() if missing}

    async def read(self, texts: TextsByTenant) -> None:
        """Read the kept vectors of texts that have none here."""
        for tenant, missing in self.missing(texts).items():
            self._vectors |= await self.embedder.kept(tenant, missing)

    async def make(self, texts: TextsByTenant) -> None:
        """Embed and keep the texts that have no vector here."""
        for tenant, missing in self.missing(texts).items():
            for start in range(0, len(missing), _PART):
                part = missing[start : start + _PART]
                try:
                    vectors = await self.embedder.embed_and_keep(tenant, part)
                except StarlingError as error:
                    self._fail(str(error))
                    return
                self._vectors |= zip(part, vectors, strict=True)
        self.failure = ""

    async def query(self, text: str) -> Sequence[Vector]:
        """Return the vectors of a text's sentences; none if the embedder fails or takes longer than 10 seconds."""
        if not self.may_ask:
            return ()
        try:
            async with asyncio.timeout(_QUERY_SECONDS):
                vectors = await self.embedder.embed(sentences(text))
        except TimeoutError:
            self._fail(f"{self.name} made no vector within {_QUERY_SECONDS:g} seconds.")
            return ()
        except StarlingError as error:
            self._fail(str(error))
            return ()
        self.failure = ""
        return vectors

    def forget_others(self, texts: Set[str]) -> None:
        """Drop the vectors of all other texts."""
        self._vectors = {text: vector for text, vector in self._vectors.items() if text in texts}

    def _fail(self, failure: str) -> None:
        if failure != self.failure:
            _log.warning("No vectors: %s", failure)
        self.failure = failure
        self._retry_at = self.clock.monotonic() + _RETRY_SECONDS
