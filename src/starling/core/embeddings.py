"""Vectors of texts, and the `Embedder` port."""

from array import array
from collections.abc import Mapping, Sequence
from typing import Protocol

type Vector = array[float]
"""One vector: type code `f`, length 1, or all zeros for a text without words and for one that the provider refuses."""


class Embedder(Protocol):
    """Turns texts into vectors that are near each other where the texts mean the same."""

    @property
    def name(self) -> str:
        """The `provider:model` that made the vectors; vectors of different names are never compared."""
        ...

    @property
    def dimensions(self) -> int:
        """The length of each vector; 0 until the first text was embedded, where the provider decides it."""
        ...

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """Return the vector of each text, in order. Raises ModelError or ConfigurationError."""
        ...

    async def close(self) -> None:
        """Close connections."""
        ...


class CachingEmbedder(Embedder, Protocol):
    """An embedder that can keep vectors of texts that come again, such as those of tools."""

    async def kept(self, tenant: str, texts: Sequence[str]) -> Mapping[str, Vector]:
        """Return the tenant's kept vectors by text, of those texts that have one. Makes none."""
        ...

    async def embed_and_keep(self, tenant: str, texts: Sequence[str]) -> list[Vector]:
        """Return the vector of each text, from the tenant's kept ones where it is known. Raises what `embed` raises."""
        ...

    async def former(self, texts: Mapping[str, Sequence[str]]) -> "CachingEmbedder | None":
        """Return an embedder of another model that keeps vectors of all these texts, by tenant; None without one."""
        ...
