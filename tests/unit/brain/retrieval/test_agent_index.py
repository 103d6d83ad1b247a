"""Which agents a query finds, by words, characters and vectors."""

from array import array
from collections.abc import Mapping

import pytest

from brain.retrieval.agent_index import AgentIndex, AgentTexts, Query
from brain.retrieval.search import RankedAgent
from brain.retrieval.text_similarity import sentences
from starling.core.embeddings import Vector

AGENTS = (
    AgentTexts(
        "clock",
        "clock: Time and time zones.",
        {"now": "clock now: Get the current time.", "convert": "clock convert: Convert a time between zones."},
    ),
    AgentTexts(
        "forecast",
        "forecast: Weather of the next days.",
        {"rain": "forecast rain: Probability of rain.", "wind": "forecast wind: Speed of the wind."},
    ),
    AgentTexts(
        "git", "git: Commits of a repository.", {"log": "git log: List commits.", "diff": "git diff: Differences."}
    ),
    AgentTexts("writer", "writer: Writes and translates texts.", {}),
)
ALL: Mapping[str, set[str]] = {agent.name: set(agent.tools) for agent in AGENTS}


def index(vectors: Mapping[str, Vector] | None = None) -> AgentIndex:
    texts = [text for agent in AGENTS for text in (agent.card, *agent.tools.values())]
    return AgentIndex(AGENTS, {text: Query.of(text) for text in texts}, vectors or {})


def found(text: str, candidates: Mapping[str, set[str]] = ALL) -> list[RankedAgent]:
    return index().rank(Query.of(text), candidates, 3)


def vector(*values: float) -> Vector:
    return array("f", values)


def test_agent_with_the_words_of_the_query_comes_first_with_its_best_tool() -> None:
    best = found("Will there be rain?")[0]

    assert (best.name, best.tool) == ("forecast", "rain")


def test_word_forms_and_parts_of_words_are_found() -> None:
    assert found("List the committed changes")[0].name == "git"
    assert found("What is today's windspeed?")[0].tool == "wind"


def test_score_is_the_sum_of_its_parts() -> None:
    best = found("Convert a time")[0]

    assert best.tool == "convert"
    assert abs(best.score - sum(best.parts.values())) < 1e-3
    assert set(best.parts) == {"words_card", "words_tool", "characters_card", "characters_tool"}


def test_only_candidates_are_ranked() -> None:
    assert {agent.name for agent in found("Will there be rain?", {"clock": {"now"}, "git": set()})} == {"clock", "git"}


def test_tool_that_is_no_candidate_does_not_count() -> None:
    ranked = {agent.name: agent for agent in found("Probability of rain", {"forecast": {"wind"}, "clock": {"now"}})}

    assert ranked["forecast"].tool == "wind"


def test_agent_without_tools_is_found_by_its_card() -> None:
    best = found("Translate this text")[0]

    assert (best.name, best.tool) == ("writer", "")


def test_vectors_find_what_shares_no_word_with_the_query() -> None:
    near, far = vector(1, 0), vector(0, 1)
    texts = {text: far for agent in AGENTS for text in (agent.card, *agent.tools.values())}
    texts |= {AGENTS[1].card: near, AGENTS[1].tools["rain"]: near}

    best = index(texts).rank(Query.of("umbrella?", [vector(1, 0)]), ALL, 1)[0]

    assert (best.name, best.tool) == ("forecast", "rain")
    assert best.parts["meaning_card"] > 0


def test_agent_that_fits_one_sentence_of_several_is_found() -> None:
    texts = {text: vector(-1, 0) for agent in AGENTS for text in (agent.card, *agent.tools.values())}
    texts[AGENTS[0].card], texts[AGENTS[1].card] = vector(1, 0), vector(0.8, 0.6)

    best = index(texts).rank(Query.of("?", [vector(0, -1), vector(1, 0), vector(0, -1)]), ALL, 1)[0]

    assert best.name == AGENTS[0].name


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        pytest.param("Is it late? Call v1.2 of it.", ["Is it late?", "Call v1.2 of it."], id="ends with a space after"),
        pytest.param("one\n\ntwo", ["one", "two"], id="lines"),
        pytest.param("今天下雨吗？告诉我。", ["今天下雨吗？", "告诉我。"], id="ends without a space"),
        pytest.param("Well! ... Go", ["Well!", "Go"], id="no word"),
        pytest.param("?", ["?"], id="no sentence"),
        pytest.param("a. " * 20, [*["a."] * 7, "a. " * 13], id="the last of many"),
    ],
)
def test_text_is_compared_by_its_sentences(text: str, parts: list[str]) -> None:
    assert sentences(text) == parts


def test_incomplete_vectors_are_not_used() -> None:
    best = index({AGENTS[0].card: vector(1, 0)}).rank(Query.of("rain", [vector(1, 0)]), ALL, 1)[0]

    assert "meaning_card" not in best.parts


def test_no_candidate_and_no_agent_give_an_empty_list() -> None:
    assert found("rain", {}) == []
    assert found("rain", {"unknown": set()}) == []
    assert AgentIndex((), {}, {}).rank(Query.of("rain"), ALL, 3) == []


def test_query_without_a_known_word_ranks_all_alike() -> None:
    assert {agent.score for agent in found("§ ???")} == {0.0}
