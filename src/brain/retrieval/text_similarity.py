"""What texts are compared by, and how similar they are: features of words and characters, and TF-IDF over them."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

_WORD: Final = re.compile(r"[^\W_]+")
_CAMEL: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
_GRAM: Final = 4  # characters; the edge of a word counts as one
_ENDINGS: Final = (("ies", "y"), ("sses", "ss"), ("ing", ""), ("ed", ""), ("es", ""), ("s", ""))
_STEM_CHARS: Final = 3
_SENTENCE_END: Final = re.compile(r"(?<=[.?!])\s+|(?<=[。！？])|\n+")
_MOST_SENTENCES: Final = 8
# frequent English words, and those that every request has
_STOP_TEXT: Final = """
    a about above after again all also am an and any are as at be because been before being below between both but
    by can could did do does doing down during each few find for from further get give had has have having he help her
    here hers him his how i if in into is it its itself just know let like me more most my need no nor not of off on
    once only or other our out over own please provide same she should show so some such tell than that the their them
    then there these they this those through to too under until up us use using ve very want was we were what when
    where which while who whom why will with would you your yours"""
_STOP_WORDS: Final = frozenset(_STOP_TEXT.split())
_BUCKETS: Final = 1 << 20
_TEXT_SHIFT, _BUCKET_SHIFT = np.uint64(16), np.uint64(16 + 27)
_TEXT_MASK: Final = np.uint64((1 << 16 + 27) - (1 << 16))

type Floats = NDArray[np.float32]


def sentences(text: str) -> list[str]:
    """Return the sentences of a text, the whole text if it has none; what follows the seventh counts as one."""
    parts = _SENTENCE_END.split(text, maxsplit=_MOST_SENTENCES - 1)
    return [part for part in parts if _WORD.search(part)] or [text]


def plain_words(text: str) -> list[str]:
    """Return the words of a text in lower case; `camelCase` is two words."""
    return [word.lower() for word in _WORD.findall(_CAMEL.sub(" ", text))]


def content_words(text: str) -> list[str]:
    """Return the words of a text without stop words."""
    return [word for word in plain_words(text) if word not in _STOP_WORDS]


def stem(word: str) -> str:
    """Return a word without its ending: `orders` and `ordered` are one."""
    for ending, instead in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _STEM_CHARS and not word.endswith("ss"):
            return word[: -len(ending)] + instead
    return word


@dataclass(frozen=True, slots=True)
class FeatureCounts:
    """The features of one text: buckets, and 1 + log of how often each occurs."""

    buckets: NDArray[np.uint32]
    weights: Floats

    @classmethod
    def of(cls, features: Iterable[str]) -> "FeatureCounts":
        counted = Counter(crc32(feature.encode("utf-8", "surrogatepass")) % _BUCKETS for feature in features)
        buckets = np.fromiter(counted.keys(), np.uint32, len(counted))
        return cls(buckets, 1 + np.log(np.fromiter(counted.values(), np.float32, len(counted))))


def word_counts(words: Sequence[str]) -> FeatureCounts:
    """Count the stem of each word, and each pair of neighbouring stems."""
    stems = list(map(stem, words))
    return FeatureCounts.of([*stems, *(f"{first} {second}" for first, second in pairwise(stems))])


def character_counts(texts: Iterable[str]) -> FeatureCounts:
    """Count each sequence of four characters of each word or text."""
    edged = [f" {text} " for text in texts if text]
    starts = ((text, start) for text in edged for start in range(max(1, len(text) - _GRAM + 1)))
    return FeatureCounts.of(text[start : start + _GRAM] for text, start in starts)


@dataclass(frozen=True, slots=True)
class Postings:
    """The features of texts: for each bucket the texts that have it, with its weight in each.

    A text's weights have the length 1 and depend on no other text, so texts can be added. How rare a feature is, is
    counted by each query among the texts that it asks for: nothing is learned of others. There is no vocabulary.
    """

    size: int
    entries: NDArray[np.uint64]  # ascending; from the highest bit: bucket (21 bits), text (27), weight as a half float

    @classmethod
    def of(cls, counts: Sequence[FeatureCounts], first: int = 0) -> "Postings":
        """Return the postings of texts, numbered in order from the first one on."""
        weights = np.concatenate([one.weights / max(float(np.linalg.norm(one.weights)), 1e-9) for one in counts])
        numbers = np.arange(first, first + len(counts), dtype=np.uint64) << _TEXT_SHIFT
        entries = np.concatenate([one.buckets for one in counts]).astype(np.uint64) << _BUCKET_SHIFT
        entries |= np.repeat(numbers, [len(one.buckets) for one in counts])
        entries |= weights.astype(np.float16).view(np.uint16)
        entries.sort()
        return cls(len(counts), entries)

    @classmethod
    def joined(cls, parts: Sequence["Postings"]) -> "Postings":
        """Return the postings of the texts of all parts, each numbered on from the one before."""
        entries = np.concatenate([part.entries for part in parts])
        entries.sort(kind="stable")  # which merges what is sorted: the former entries are most of them
        return cls(sum(part.size for part in parts), entries)

    def similarities(self, query: FeatureCounts, among: NDArray[np.bool_], power: int) -> Floats:
        """Return for each text its cosine with the query, by TF-IDF among some texts; 0 for others.

        Only the query has the inverse document frequency, to a power: with 2 as if the texts had it, too.
        """
        buckets = np.stack([query.buckets, query.buckets + 1]).astype(np.uint64)
        starts, ends = np.searchsorted(self.entries, buckets << _BUCKET_SHIFT)
        entries, of = self.entries[ranges(starts, ends - starts)], np.repeat(np.arange(len(starts)), ends - starts)
        texts = ((entries & _TEXT_MASK) >> _TEXT_SHIFT).astype(np.intp)
        inside = among[texts]
        entries, of, texts = entries[inside], of[inside], texts[inside]
        frequencies = np.bincount(of, minlength=len(starts))
        weights = query.weights * (np.log((1 + among.sum()) / (1 + frequencies)) + 1) ** power
        length = max(float(np.linalg.norm(weights[frequencies > 0])), 1e-9)  # what no text has, tells none apart
        scores = entries.astype(np.uint16).view(np.float16) * (weights / length)[of]
        return np.bincount(texts, scores, minlength=self.size).astype(np.float32)


def ranges(starts: NDArray[np.integer], counts: NDArray[np.integer]) -> NDArray[np.intp]:
    """Return the numbers from each start on, as many as its count, one range after the other."""
    return np.arange(int(counts.sum())) + np.repeat(starts - np.cumsum(counts) + counts, counts)
