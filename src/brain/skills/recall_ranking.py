"""Ranks recalled skills and decides whether the best one fits at all. Pure: candidates come from the repository."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from brain.retrieval.text_similarity import FeatureCounts, SparseIndex, plain_words
from brain.skills.skill import SkillExample

_BEST_EXAMPLES: Final = 3  # of a skill, whose mean similarity counts
_GRAMS: Final = (3, 4, 5)  # characters
_FACTOR: Final = np.uint64(0x9E37_79B9_7F4A_7C15)  # odd, with well mixed bits: 2^64 divided by the golden ratio
_MOST: Final = 3
_NEARLY: Final = 0.05  # of similarity: less than what a word more or less changes
_SPARSE_WEIGHT: Final = 0.75  # of characters beside vectors; with 1, false reuse is as rare only at a lower recall


@dataclass(frozen=True, slots=True)
class _Calibration:
    """What a fitting skill must reach; `unrelated` stands for the next skill where the store has none that scores more.

    The more skills a store has, the more similar is the best one to a text without a skill; the mean of one or two
    tasks varies more than that of three, and the best three of ten are more similar than three. Fitted so that some
    5 % of texts without a skill are given one, on one half of the intents of CLINC150 (docs/decisions/0088).
    """

    unrelated: float
    same: float
    few: float
    many: float
    base: float = 0.0
    skills: float = 0.0
    growth: float = 0.0

    def cut(self, skills: int, tasks: int) -> float:
        """Return the certainty that is needed among some skills, for one with some tasks."""
        size = math.log(skills)
        by_tasks = self.few / min(tasks, _BEST_EXAMPLES) + self.many * math.log(tasks)
        return self.base + self.skills * size + by_tasks * (1 + self.growth * size)


_WITH_VECTORS: Final = _Calibration(unrelated=0.35, same=0.7, few=0.65, many=0.18, base=-0.22, skills=0.11)
_WITHOUT_VECTORS: Final = _Calibration(unrelated=0.25, same=0.4, few=0.26, many=0.04, growth=0.58)


@dataclass(frozen=True, slots=True)
class RankedSkill:
    """A skill that fits: `similarity` is the mean of its best examples; 0 to 1, or to 1.75 with vectors.

    It is the sum of its parts: that of characters, weighted, and that of vectors.
    """

    skill_id: str
    similarity: float
    characters: float = 0.0
    meaning: float = 0.0
    tasks: int = 1  # that it was compared by


def fitting(skills: Sequence[RankedSkill], stored: int, *, with_vectors: bool) -> list[RankedSkill]:
    """Return at most three of ranked skills that fit, best first; none if the best one doesn't stand out.

    `stored`: how many skills they are the best of. `with_vectors`: the text has a vector, which the examples were
    compared with. The best skill stands out if its similarity plus its distance to the next one reaches a cut. The
    others returned are at least half as similar.
    """
    if certainty(skills, with_vectors=with_vectors) < cut(skills, stored, with_vectors=with_vectors):
        return []
    return [skill for skill in skills[:_MOST] if skill.similarity >= skills[0].similarity / 2]


def is_same_task(skill: RankedSkill, *, with_vectors: bool) -> bool:
    """Whether a skill whose calls are the same as those of a new one solves the same task."""
    return skill.similarity >= _calibration(with_vectors=with_vectors).same


def ranked(tenant: str, text: str, examples: Sequence[SkillExample], *, with_vectors: bool) -> list[RankedSkill]:
    """Return all skills that have examples, best first, whether they fit or not.

    What is known of texts is kept for each tenant, so that the time doesn't tell whether another one has a text.

    Of those that are nearly as similar as the best one, the skill with the most successes is first: a copy of a trusted
    skill with another constant doesn't come before it.
    """
    scores = _index(tenant, tuple(example.text for example in examples)).similarities(_counts(tenant, text))
    weight = _SPARSE_WEIGHT if with_vectors else 1.0
    by_skill: dict[str, list[tuple[float, float]]] = {}
    for example, score in zip(examples, scores, strict=True):
        by_skill.setdefault(example.skill_id, []).append((weight * float(score), example.cosine or 0.0))
    found = [RankedSkill(skill_id, *_means_of_best(parts), len(parts)) for skill_id, parts in by_skill.items()]
    successes = {example.skill_id: example.successes for example in examples}
    nearly = max((skill.similarity for skill in found), default=0.0) - _NEARLY

    def order(skill: RankedSkill) -> tuple[float, float, str]:
        trust = successes[skill.skill_id] if skill.similarity >= nearly else -1
        return -trust, -skill.similarity, skill.skill_id

    return sorted(found, key=order)


def cut(skills: Sequence[RankedSkill], stored: int, *, with_vectors: bool) -> float:
    """Return the certainty from which on ranked skills fit, which are the best of `stored`. Infinity for none."""
    return _calibration(with_vectors=with_vectors).cut(stored, skills[0].tasks) if skills else math.inf


def certainty(skills: Sequence[RankedSkill], *, with_vectors: bool) -> float:
    """Return how much the best of ranked skills stands out: what is compared with the cut. Minus infinity for none."""
    if not skills:
        return -math.inf
    best = skills[0].similarity
    unrelated = _calibration(with_vectors=with_vectors).unrelated
    return best + (best - max(skills[1].similarity if len(skills) > 1 else 0.0, unrelated))


def _calibration(*, with_vectors: bool) -> _Calibration:
    return _WITH_VECTORS if with_vectors else _WITHOUT_VECTORS


def _means_of_best(parts: list[tuple[float, float]]) -> tuple[float, float, float]:
    """Return the mean similarity of the best examples, and those of its parts."""
    best = sorted(parts, key=sum, reverse=True)[:_BEST_EXAMPLES]
    characters, meaning = (sum(values) / len(best) for values in zip(*best, strict=True))
    return sum(map(sum, best)) / len(best), characters, meaning


@lru_cache(maxsize=64)  # tasks of one kind are compared with the same examples
def _index(tenant: str, texts: tuple[str, ...]) -> SparseIndex:
    return SparseIndex([_counts(tenant, text) for text in texts])


@lru_cache(maxsize=4096)  # some 4 MB: examples of skills come again
def _counts(tenant: str, text: str) -> FeatureCounts:
    """Count sequences of characters over the whole text, with its frequent words: these tell requests apart."""
    del tenant  # only the cache tells tenants apart
    line = f" {' '.join(plain_words(text))} "
    codes = np.frombuffer(line.encode("utf-32-le", "surrogatepass"), np.uint32).astype(np.uint64)
    return FeatureCounts.of_hashes(np.concatenate([_hashes(codes, length) for length in _GRAMS]))


def _hashes(codes: NDArray[np.uint64], length: int) -> NDArray[np.uint64]:
    """Return a hash of each sequence of `length` characters: their polynomial, modulo 2^64."""
    count = max(0, len(codes) - length + 1)
    hashes = np.full(count, length, np.uint64)
    for start in range(length):
        hashes = hashes * _FACTOR + codes[start : start + count]
    return hashes * _FACTOR
