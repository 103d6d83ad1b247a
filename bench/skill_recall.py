"""Whether an utterance recalls the skill that it is a paraphrase of, and whether one without a skill recalls none."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from bench.embedders import minilm_embedder, static_embedder
from bench.figures import Figure
from bench.harness import BenchSetup
from bench.labelled_texts import Utterance, clinc
from brain.skills.recall_ranking import certainty, fitting, ranked
from brain.skills.skill import SkillExample
from starling.core.embeddings import Embedder, Vector

_FALSE_REUSE: Final = 0.05


def _names(suffix: str) -> tuple[str, str]:
    return f"skills.clinc.recall_at_1{suffix}", f"skills.clinc.recall_at_5pct_false{suffix}"


NAMES: Final = (*_names(""), *_names("_off"))
MINILM_NAMES: Final = _names("_minilm")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an utterance recalled: whether a skill fits at all, whether the best is right, how clearly it fits."""

    has_skill: bool
    is_right: bool
    certainty: float
    is_recalled: bool  # at the cut in use


async def measure(setup: BenchSetup) -> list[Figure]:
    """Measure recall by characters only and with the built-in vectors."""
    setup.say("Recall of skills")
    return [*await _figures("", static_embedder()), *await _figures("_off", None)]


async def measure_minilm(setup: BenchSetup) -> list[Figure]:
    """Measure recall with MiniLM."""
    setup.say("Recall of skills with MiniLM")
    async with minilm_embedder() as embedder:
        return await _figures("_minilm", embedder)


async def _figures(suffix: str, embedder: Embedder | None) -> list[Figure]:
    stored, asked = clinc()
    vectors = await _vectors(embedder, [utterance.text for utterance in (*stored, *asked)])
    known = vectors[: len(stored)]
    outcomes = [
        _outcome(utterance, _examples(stored, known, vector), with_vectors=vector is not None)
        for utterance, vector in zip(asked, vectors[len(stored) :], strict=True)
    ]
    skills = len({utterance.skill for utterance in stored})
    right = [outcome for outcome in outcomes if outcome.is_right]
    fitting = sum(outcome.has_skill for outcome in outcomes)
    at_cut = sum(outcome.is_recalled for outcome in right) / fitting
    false = [outcome.is_recalled for outcome in outcomes if not outcome.has_skill]
    first, at_rate = _names(suffix)
    against = f"at the cut in use, which has {sum(false) / len(false):.1%} false reuse"
    return [
        Figure(first, len(right) / fitting, "", 1 / skills, "a skill picked at random"),
        Figure(at_rate, recall_at_false_reuse(outcomes, _FALSE_REUSE), "", at_cut, against),
    ]


async def _vectors(embedder: Embedder | None, texts: Sequence[str]) -> Sequence[Vector | None]:
    return await embedder.embed(texts) if embedder else [None] * len(texts)


def _examples(stored: Sequence[Utterance], known: Sequence[Vector | None], vector: Vector | None) -> list[SkillExample]:
    """Return the stored utterances, compared with a vector as the database does it."""
    cosines: Sequence[float | None] = [None] * len(stored)
    if vector is not None:
        cosines = (np.asarray(known, np.float32) @ np.asarray(vector, np.float32)).tolist()
    return [
        SkillExample(utterance.skill or "", utterance.text, cosine)
        for utterance, cosine in zip(stored, cosines, strict=True)
    ]


def _outcome(utterance: Utterance, examples: Sequence[SkillExample], *, with_vectors: bool) -> Outcome:
    skills = ranked("", utterance.text, examples, with_vectors=with_vectors)
    return Outcome(
        utterance.skill is not None,
        skills[0].skill_id == utterance.skill,
        certainty(skills, with_vectors=with_vectors),
        bool(fitting(skills, with_vectors=with_vectors)),
    )


def recall_at_false_reuse(outcomes: Sequence[Outcome], share: float) -> float:
    """Return the share of right recalls at the lowest cut at which not more than `share` of the others recall one."""
    others = sorted((outcome.certainty for outcome in outcomes if not outcome.has_skill), reverse=True)
    allowed = int(share * len(others))
    below = others[allowed] if allowed < len(others) else float("-inf")
    fitting = [outcome for outcome in outcomes if outcome.has_skill]
    return sum(outcome.is_right and outcome.certainty > below for outcome in fitting) / len(fitting)
