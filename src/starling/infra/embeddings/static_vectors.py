"""The built-in embedder: static token vectors of the package `wordllama`, pooled here. No key, no network.

Only the two data files of the package are used; its own code imports an HTTP client and a hub client. A token weighs
the logarithm of its number: the tokenizer numbers frequent pieces first, so that rare words count more, as in SIF and
Model2Vec. ADR 0042 has what this gains.
"""

import asyncio
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load
from tokenizers import Tokenizer

from starling.core.embeddings import Vector
from starling.core.errors import ConfigurationError
from starling.infra.embeddings.unit_vectors import unit_vector

_WEIGHTS: Final = Path("weights") / "l2_supercat_256.safetensors"
_TOKENIZER: Final = Path("tokenizers") / "l2_supercat_tokenizer_config.json"
_BATCH: Final = 256
_SHORT_CHARS: Final = 500


class StaticEmbedder:
    """Pools token vectors. The files are loaded by the first call, in a thread."""

    name = "static"
    dimensions = 256

    def __init__(self) -> None:
        self._loaded = False

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """Return the vector of each text. Raises ConfigurationError if the package's files are missing."""
        if self._loaded and len(texts) == 1 and len(texts[0]) <= _SHORT_CHARS:
            return self._embed(texts)  # takes less than handing it to a thread
        return await asyncio.to_thread(self._embed, texts)

    async def close(self) -> None:
        """Do nothing: there are no connections."""

    def _embed(self, texts: Sequence[str]) -> list[Vector]:
        model = _token_vectors()
        self._loaded = True
        return [
            vector for start in range(0, len(texts), _BATCH) for vector in model.embed(texts[start : start + _BATCH])
        ]


@cache
def _token_vectors() -> "_TokenVectors":
    """Return what the files hold; read once, because it takes 80 ms of processor time and 17 MB."""
    return _TokenVectors(_package_folder())


class _TokenVectors:
    def __init__(self, folder: Path) -> None:
        self._tokenizer: Tokenizer = Tokenizer.from_file(str(folder / _TOKENIZER))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._tokenizer.model._resize_cache(0)  # noqa: SLF001  # 10,000 whole texts, some 100 MB; there is no public way
        (vectors,) = load((folder / _WEIGHTS).read_bytes()).values()
        self._vectors: NDArray[np.float16] = vectors
        self._weights = np.log1p(np.arange(len(self._vectors), dtype=np.float32))

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        return [self._pooled(encoded.ids) for encoded in self._tokenizer.encode_batch(texts, add_special_tokens=False)]

    def _pooled(self, tokens: Sequence[int]) -> Vector:
        if not tokens:
            return unit_vector([0.0] * self._vectors.shape[1])
        return unit_vector(self._weights[tokens] @ self._vectors[tokens].astype(np.float32))


def _package_folder() -> Path:
    spec = find_spec("wordllama")
    if spec is None or spec.origin is None or not (Path(spec.origin).parent / _WEIGHTS).exists():
        raise ConfigurationError(
            "The built-in embeddings are missing: the package 'wordllama' has no weights. "
            "Install Starling again, or set STARLING_EMBEDDINGS to another model or to off."
        )
    return Path(spec.origin).parent
