"""Ranks recalled skills and decides whether the best one fits at all. Pure: candidates come from the repository."""

import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from brain.retrieval.sparse_index import FeatureCounts, SparseIndex
from brain.retrieval.text_features import plain_words
from starling.core.embeddings import Vector

_BEST_EXAMPLES: Final = 3  # of a skill, whose mean similarity counts
_GRAMS: Final = (3, 4, 5)  # characters
_MOST: Final = 3
_SPARSE_WEIGHT: Final = 0.75  # of characters beside vectors; with 1, false reuse is as rare only at a lower recall


@dataclass(frozen=True, slots=True)
class _Calibration:
    """What a fitting skill must reach; `unrelated` stands for the next skill where the store has none that scores more.

    Chosen so that some 5 % of texts without a skill are given one, on the development half of CLINC150.
    """

    unrelated: float
    cut: float


_WITH_VECTORS: Final = _Calibration(unrelated=0.35, cut=0.8)
_WITHOUT_VECTORS: Final = _Calibration(unrelated=0.25, cut=0.4)


@dataclass(frozen=True, slots=True)
class SkillExample:
    """The text of a task that a skill solved."""

    skill_id: str
    text: str
    vector: Vector | None = None


@dataclass(frozen=True, slots=True)
class RecalledSkill:
    """A skill that fits: `similarity` is the mean of its best examples; 0 to 1, or to 1.75 with vectors."""

    skill_id: str
    similarity: float


def recall(text: str, vector: Vector | None, examples: Sequence[SkillExample]) -> list[RecalledSkill]:
    """Return at most three skills that fit `text`, best first; none if the best one doesn't stand out.

    The best skill stands out if its similarity plus its distance to the next one reaches a cut. The others returned
    have at least half of the cut.
    """
    return fitting(ranked(text, vector, examples), vector)


def fitting(skills: Sequence[RecalledSkill], vector: Vector | None) -> list[RecalledSkill]:
    """Return those of ranked skills that `recall` returns; `vector` is that of the text that they were ranked by."""
    cut = _calibration(vector).cut
    if certainty(skills, vector) < cut:
        return []
    return [
        RecalledSkill(skill.skill_id, round(skill.similarity, 4))
        for skill in skills[:_MOST]
        if skill.similarity >= cut / 2
    ]


def ranked(text: str, vector: Vector | None, examples: Sequence[SkillExample]) -> list[RecalledSkill]:
    """Return all skills that have examples, best first, whether they fit or not."""
    found = sorted(_similarities(text, vector, examples).items(), key=lambda item: (-item[1], item[0]))
    return [RecalledSkill(skill_id, score) for skill_id, score in found]


def certainty(skills: Sequence[RecalledSkill], vector: Vector | None) -> float:
    """Return how much the best of ranked skills stands out: what is compared with the cut. Minus infinity for none."""
    if not skills:
        return -math.inf
    best = skills[0].similarity
    following = max(skills[1].similarity if len(skills) > 1 else 0.0, _calibration(vector).unrelated)
    return best + (best - following)


def _calibration(vector: Vector | None) -> _Calibration:
    return _WITHOUT_VECTORS if vector is None else _WITH_VECTORS


def _similarities(text: str, vector: Vector | None, examples: Sequence[SkillExample]) -> Mapping[str, float]:
    scores = SparseIndex([_counts(example.text) for example in examples]).similarities(_counts(text))
    if vector is not None:
        own = np.asarray(vector, dtype=np.float32)
        scores = _SPARSE_WEIGHT * scores + np.array(
            [_cosine(own, example.vector) for example in examples], dtype=np.float32
        )
    by_skill: dict[str, list[float]] = {}
    for example, score in zip(examples, scores, strict=True):
        by_skill.setdefault(example.skill_id, []).append(float(score))
    return {skill_id: _mean_of_best(found) for skill_id, found in by_skill.items()}


def _cosine(one: np.ndarray[tuple[int], np.dtype[np.float32]], other: array[float] | None) -> float:
    return 0.0 if other is None else float(one @ np.asarray(other, dtype=np.float32))


def _mean_of_best(scores: list[float]) -> float:
    best = sorted(scores, reverse=True)[:_BEST_EXAMPLES]
    return sum(best) / len(best)


@lru_cache(maxsize=4096)  # some 4 MB: examples of skills come again
def _counts(text: str) -> FeatureCounts:
    return FeatureCounts.of(_features(text))


def _features(text: str) -> Iterator[str]:
    """Yield sequences of characters over the whole text, with its frequent words: these tell requests apart."""
    line = f" {' '.join(plain_words(text))} "
    for length in _GRAMS:
        for start in range(len(line) - length + 1):
            yield line[start : start + length]
