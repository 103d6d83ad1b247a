"""The embedders that retrieval is measured with: none, the built-in one, and MiniLM behind an HTTP endpoint."""

import os
import subprocess
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

from bench.line_process import HERE, line_of, running
from starling.core.embeddings import CachingEmbedder, Embedder, Vector
from starling.core.settings.schema import ProviderSettings, Settings
from starling.infra.embeddings.factory import build_embedder

_ROOT: Final = HERE.parent
_ONE_THREAD: Final = {"OPENBLAS_NUM_THREADS": "1"}  # several cost more than they gain for matrices of this size


class MemoryCachingEmbedder(CachingEmbedder):
    """Keeps vectors in memory, or none: what Postgres takes to keep them is no part of these figures."""

    def __init__(self, embedder: Embedder, *, keeps: bool = True) -> None:
        self._embedder = embedder
        self._keeps = keeps
        self._kept: dict[str, Vector] = {}

    @property
    def name(self) -> str:
        return self._embedder.name

    @property
    def dimensions(self) -> int:
        return self._embedder.dimensions

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        return await self._embedder.embed(texts)

    async def kept(self, tenant: str, texts: Sequence[str]) -> Mapping[str, Vector]:
        del tenant
        return {text: self._kept[text] for text in texts if text in self._kept}

    async def embed_and_keep(self, tenant: str, texts: Sequence[str]) -> list[Vector]:
        del tenant
        if not self._keeps:
            return await self.embed(texts)
        missing = [text for text in dict.fromkeys(texts) if text not in self._kept]
        self._kept |= zip(missing, await self.embed(missing), strict=True)
        return [self._kept[text] for text in texts]

    async def former(self, texts: Mapping[str, Sequence[str]]) -> CachingEmbedder | None:
        del texts
        return None

    async def close(self) -> None:
        await self._embedder.close()


def static_embedder(*, keeps: bool = True) -> CachingEmbedder:
    """Return the built-in embedder."""
    return _kept(Settings(embeddings="static"), keeps=keeps)


@asynccontextmanager
async def minilm_embedder() -> AsyncGenerator[CachingEmbedder]:
    """Start MiniLM in its own environment, which is made if it is missing, and return the embedder of its endpoint."""
    subprocess.run([_ROOT / "scripts" / "bench-env", "minilm"], check=True)
    command = [str(_ROOT / ".tools" / "bench" / "minilm" / "bin" / "python"), "-m", "bench.minilm_server"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    async with running(command, environment | _ONE_THREAD) as server:
        provider = ProviderSettings(base_url=await line_of(server))
        embedder = _kept(Settings(embeddings="minilm:all-MiniLM-L6-v2", providers={"minilm": provider}))
        yield embedder
        await embedder.close()


def _kept(settings: Settings, *, keeps: bool = True) -> CachingEmbedder:
    embedder = build_embedder(settings)
    assert embedder is not None
    return MemoryCachingEmbedder(embedder, keeps=keeps)
