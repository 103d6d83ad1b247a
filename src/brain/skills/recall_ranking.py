"""Ranks recalled skills and decides whether the best one fits at all. Pure: candidates come from the repository."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from brain.retrieval.text_similarity import FeatureCounts, Postings, character_counts, plain_words
from brain.skills.skill import SkillExample

_BEST_EXAMPLES: Final = 3  # of a skill, whose mean similarity counts
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
_WITHOUT_VECTORS: Final = _Calibration(unrelated=0.25, same=0.43, few=0.29, many=0.045, growth=0.58)


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
    nearest: str = ""  # of these


@dataclass(frozen=True, slots=True)
class Ranking:
    """All skills that have examples, best first; those that fit; and whether the best one solves the same task.

    None fits if the best one doesn't stand out: its `certainty`, its similarity plus its distance to the next one, has
    to reach `cut`. At most three fit, which are at least half as similar as the best one.
    """

    skills: Sequence[RankedSkill] = ()
    certainty: float = -math.inf
    cut: float = math.inf
    fitting: Sequence[RankedSkill] = ()
    is_same_task: bool = False


def ranked(tenant: str, text: str, examples: Sequence[SkillExample], stored: int = 1) -> Ranking:
    """Compare a text with examples, the best of those of `stored` skills.

    What is known of texts is kept for each tenant, so that the time doesn't tell whether another one has a text.

    Of those that are nearly as similar as the best one, the skill with the most successes is first: a copy of a trusted
    skill with another constant doesn't come before it.
    """
    if not examples:
        return Ranking()
    with_vectors = any(example.cosine is not None for example in examples)  # those of another model don't count
    weight, calibration = (_SPARSE_WEIGHT, _WITH_VECTORS) if with_vectors else (1.0, _WITHOUT_VECTORS)
    stored_texts = Postings.of([_counts(tenant, example.text) for example in examples])
    scores = stored_texts.similarities(_counts(tenant, text), np.ones(len(examples), np.bool_), power=1)
    by_skill: dict[str, list[tuple[float, float, str]]] = {}
    for example, score in zip(examples, scores, strict=True):
        by_skill.setdefault(example.skill_id, []).append((weight * float(score), example.cosine or 0.0, example.text))
    found = [_of_best(skill_id, tasks) for skill_id, tasks in by_skill.items()]
    successes = {example.skill_id: example.successes for example in examples}
    nearly = max(skill.similarity for skill in found) - _NEARLY

    def order(skill: RankedSkill) -> tuple[float, float, str]:
        trust = successes[skill.skill_id] if skill.similarity >= nearly else -1
        return -trust, -skill.similarity, skill.skill_id

    skills = sorted(found, key=order)
    best, cut = skills[0], calibration.cut(stored, skills[0].tasks)
    certainty = 2 * best.similarity - max(calibration.unrelated, *(skill.similarity for skill in skills[1:2]), 0.0)
    like = [skill for skill in skills[:_MOST] if skill.similarity >= best.similarity / 2]
    fitting = like if certainty >= cut else ()
    return Ranking(skills, certainty, cut, fitting, is_same_task=best.similarity >= calibration.same)


def _of_best(skill_id: str, tasks: list[tuple[float, float, str]]) -> RankedSkill:
    """Return a skill with the means of its best tasks, each given with the parts of its similarity."""
    best = sorted(tasks, key=lambda task: task[0] + task[1], reverse=True)[:_BEST_EXAMPLES]
    characters, meaning = sum(task[0] for task in best) / len(best), sum(task[1] for task in best) / len(best)
    return RankedSkill(skill_id, characters + meaning, characters, meaning, len(tasks), best[0][2])


@lru_cache(maxsize=4096)  # some 8 MB: examples of skills come again
def _counts(tenant: str, text: str) -> FeatureCounts:
    """Count sequences of characters over the whole text, with its frequent words: these tell requests apart."""
    del tenant  # only the cache tells tenants apart
    return character_counts([" ".join(plain_words(text))])
