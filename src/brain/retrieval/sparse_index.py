"""TF-IDF over a changing set of texts, without a vocabulary: features are counted in hashed buckets."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

_BUCKETS: Final = 1 << 20
_SHIFT: Final = np.uint64(64 - 20)

type Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class FeatureCounts:
    """The features of one text: buckets, and 1 + log of how often each occurs."""

    buckets: NDArray[np.uint32]
    weights: Floats

    @classmethod
    def of(cls, features: Iterable[str]) -> "FeatureCounts":
        counted = Counter(crc32(feature.encode()) % _BUCKETS for feature in features)
        buckets = np.fromiter(counted.keys(), np.uint32, len(counted))
        return cls(buckets, 1 + np.log(np.fromiter(counted.values(), np.float32, len(counted))))

    @classmethod
    def of_hashes(cls, hashes: NDArray[np.uint64]) -> "FeatureCounts":
        """Return the counts of features that are given as hashes of 64 bits, whose highest bits select the bucket."""
        buckets, counts = np.unique((hashes >> _SHIFT).astype(np.uint32), return_counts=True)
        return cls(buckets, 1 + np.log(counts.astype(np.float32)))


class SparseIndex:
    """Cosine similarities of a query with each of `texts`, by TF-IDF with smoothed frequencies."""

    def __init__(self, texts: Sequence[FeatureCounts]) -> None:
        self._size = len(texts)
        buckets = np.concatenate([text.buckets for text in texts]) if texts else np.zeros(0, np.uint32)
        self._present, at, frequencies = np.unique(buckets, return_inverse=True, return_counts=True)
        self._idf = (np.log((1 + self._size) / (1 + frequencies)) + 1).astype(np.float32)
        owners = np.repeat(np.arange(self._size, dtype=np.int32), [len(text.buckets) for text in texts])
        weights = np.concatenate([text.weights for text in texts]) if texts else np.zeros(0, np.float32)
        weights = weights * self._idf[at]
        lengths = np.sqrt(np.bincount(owners, weights**2, minlength=self._size)).astype(np.float32)
        order = np.argsort(at, kind="stable")
        self._owners = owners[order]
        self._weights = (weights / np.maximum(lengths[owners], 1e-9))[order].astype(np.float32)
        self._starts = np.concatenate([[0], np.cumsum(frequencies)])

    def similarities(self, query: FeatureCounts) -> Floats:
        """Return the similarity of each text, in order, from 0 to 1."""
        if not len(self._present):
            return np.zeros(self._size, np.float32)
        at = np.minimum(np.searchsorted(self._present, query.buckets), len(self._present) - 1)
        known = self._present[at] == query.buckets
        terms, weights = at[known], query.weights[known] * self._idf[at[known]]
        weights = weights / max(float(np.linalg.norm(weights)), 1e-9)
        counts = self._starts[terms + 1] - self._starts[terms]
        # the entries of all terms, one after the other: each term's start, and on from there
        entries = np.arange(int(counts.sum())) + np.repeat(self._starts[terms] - np.cumsum(counts) + counts, counts)
        scores = self._weights[entries] * np.repeat(weights, counts)
        return np.bincount(self._owners[entries], scores, minlength=self._size).astype(np.float32)
