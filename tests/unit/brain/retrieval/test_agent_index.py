"""Which agents a query finds, by words, characters and vectors."""

from array import array
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from brain.registry.cards import AgentCard, with_members
from brain.retrieval.agent_index import AgentIndex, Candidates, CardTexts, CardVectors
from brain.retrieval.search import RankedAgent
from brain.retrieval.text_similarity import sentences
from starling.core.embeddings import Vector
from starling.core.tool_calls import Effect
from starling.core.tools import ToolDefinition

AGENTS = (
    CardTexts("*", "clock", "Time and time zones.", (("now", "Get the current time."), ("convert", "Convert a time."))),
    CardTexts(
        "*", "forecast", "Weather of the next days.", (("rain", "Probability of rain."), ("wind", "Speed of the wind."))
    ),
    CardTexts("*", "git", "Commits of a repository.", (("log", "List commits."), ("diff", "Differences."))),
    CardTexts("*", "writer", "Writes and translates texts.", ()),
)
ALL: Mapping[str, set[str]] = {agent.server: {name for name, _ in agent.tools} for agent in AGENTS}
INDEX = AgentIndex().extended(AGENTS, 0.0)


def candidates(allowed: Mapping[str, set[str]] = ALL, index: AgentIndex = INDEX) -> Candidates:
    texts = [agent for name in allowed for agent in index.rows if agent.server == name]
    tools = [tool in allowed[agent.server] for agent in texts for tool in ("", *(name for name, _ in agent.tools))]
    rows = np.array([index.rows[agent] for agent in texts], np.intp)
    return Candidates({agent.server: agent for agent in texts}, rows, np.array(tools, np.bool_))


def found(text: str, allowed: Mapping[str, set[str]] = ALL, index: AgentIndex = INDEX) -> list[RankedAgent]:
    return index.rank(text, (), candidates(allowed, index), 3)


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
    assert set(best.parts) == {
        "words_card", "words_tool", "characters_card", "characters_tool", "names_card", "server_card",
    }  # fmt: skip


def test_only_candidates_are_ranked() -> None:
    assert {agent.name for agent in found("Will there be rain?", {"clock": {"now"}, "git": set()})} == {"clock", "git"}


def test_tool_that_is_no_candidate_does_not_count() -> None:
    ranked = {agent.name: agent for agent in found("Probability of rain", {"forecast": {"wind"}, "clock": {"now"}})}

    assert ranked["forecast"].tool == "wind"


def test_agent_without_tools_is_found_by_its_card() -> None:
    best = found("Translate this text")[0]

    assert (best.name, best.tool) == ("writer", "")


def with_vectors(query: list[Vector], near: Mapping[tuple[str, str], Vector], other: Vector) -> RankedAgent:
    """The best agent, where the texts of `near`, by server and tool, have these vectors."""
    known = {
        agent: CardVectors.of(
            [near.get((agent.server, name), other) for name in ("", *(name for name, _ in agent.tools))]
        )
        for agent in AGENTS
    }
    return INDEX.rank("umbrella?", query, replace(candidates(), vectors=known), 1)[0]


def test_card_of_a_team_says_what_its_members_are_for_in_place_of_their_tools() -> None:
    level = ToolDefinition("sea", "level", "Measure.", {}, None, Effect.READ, "")
    member = AgentCard("mate", "member", "Mate: Watch the tide.", "sea", (level,))

    texts = CardTexts.of(with_members(AgentCard("crew", "team", "Sails."), {"mate": member}), "home")

    assert texts.all() == ["crew Sails.\nMate: Watch the tide.", "crew level: Measure."]


def test_vectors_find_what_shares_no_word_with_the_query() -> None:
    near = {("forecast", ""): vector(1, 0), ("forecast", "rain"): vector(1, 0)}

    best = with_vectors([vector(1, 0)], near, vector(0, 1))

    assert (best.name, best.tool) == ("forecast", "rain")
    assert best.parts["meaning_card"] > 0


def test_agent_that_fits_one_sentence_of_several_is_found() -> None:
    near = {("clock", ""): vector(1, 0), ("forecast", ""): vector(0.8, 0.6)}

    assert with_vectors([vector(0, -1), vector(1, 0), vector(0, -1)], near, vector(-1, 0)).name == "clock"


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


def test_no_candidate_gives_an_empty_list() -> None:
    assert found("rain", {}) == []


def test_scores_do_not_depend_on_cards_that_are_no_candidates() -> None:
    secret = CardTexts("other", "secret", "Rain, rain, rain and commits.", (("rain", "Probability of rain."),))

    assert found("Will there be rain?", ALL, INDEX.extended([secret], 0.0)) == found("Will there be rain?")


def test_cards_that_no_search_had_for_an_hour_are_left_out_once_they_are_the_most() -> None:
    allowed = {"writer": ALL["writer"]}
    later = INDEX.extended(AGENTS[3:], 4_000.0)
    index = INDEX.extended([*AGENTS[3:], AGENTS[0]._replace(server="watch")], 4_000.0)

    assert (list(later.rows), [agent.server for agent in index.rows]) == ([AGENTS[3]], ["writer", "watch"])
    assert found("texts", allowed, later) == found("texts", allowed)


def test_query_without_a_known_word_ranks_all_alike() -> None:
    assert {agent.score for agent in found("§ ???")} == {0.0}
