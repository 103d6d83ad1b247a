"""Scores of searches with and without vectors on one scale."""

import pytest

from brain.retrieval.search import RankedAgent


@pytest.mark.parametrize(
    ("parts", "score"),
    [
        pytest.param({"words_card": 1.0, "meaning_card": 2.0}, 3.0, id="with vectors"),
        pytest.param({"words_card": 3.0}, 6.0, id="words only"),
    ],
)
def test_scores_without_vectors_count_twice(parts: dict[str, float], score: float) -> None:
    assert RankedAgent("time", 3.0, parts, "now").comparable_score == score
