"""Agents found by the built-in vectors, and what happens while an embedder fails."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from brain.registry.cards import GENERALIST, AgentCard, Roster
from brain.retrieval.agent_finder import AgentFinder
from brain.retrieval.search import AgentSearch
from starling.core.clock import SystemClock
from starling.core.embeddings import Vector
from starling.core.errors import LLMConnectionError
from starling.core.tool_calls import Effect
from starling.core.tools import ToolDefinition
from starling.infra.embeddings.static_vectors import StaticEmbedder


@dataclass
class SetClock(SystemClock):
    seconds: float = 0.0

    def monotonic(self) -> float:
        return self.seconds


@dataclass
class CountingEmbedder(StaticEmbedder):
    """The built-in embedder, with what it was asked; it fails while `away`."""

    away: bool = False
    asked: list[Sequence[str]] = field(default_factory=list[Sequence[str]])

    def __post_init__(self) -> None:
        super().__init__()

    async def embed_and_keep(self, tenant: str, texts: Sequence[str]) -> list[Vector]:
        del tenant
        return await self.embed(texts)

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        self.asked.append(texts)
        if self.away:
            raise LLMConnectionError("static", "it is away.")
        return await super().embed(texts)


def card(server: str, description: str, **tools: str) -> AgentCard:
    definitions = tuple(
        ToolDefinition(server, name, text, {"type": "object"}, None, Effect.READ, name) for name, text in tools.items()
    )
    return AgentCard(f"mcp_agent_{server}", "specialist", description, server, definitions)


CLOCK = card("clock", "Time and time zones", now="Get the current time", convert="Convert a time between zones")
WEATHER = card("weather", "Forecasts", rain="Probability of rain", wind="Speed of the wind")
GIT = card("git", "Repositories", log="List the commits", diff="Show the differences")
ROSTER = Roster({one.name: one for one in (CLOCK, WEATHER, GIT, GENERALIST)})
SEARCH = AgentSearch("default", ROSTER, ROSTER)


async def names(finder: AgentFinder, text: str, candidates: Roster = ROSTER, roster: Roster = ROSTER) -> list[str]:
    return [agent.name for agent in (await finder.rank(AgentSearch("default", roster, candidates), text, 2)).agents]


async def test_agents_are_found_by_meaning() -> None:
    finder = AgentFinder(CountingEmbedder(), SystemClock())

    assert (await names(finder, "Do I need an umbrella, will it be raining?"))[0] == WEATHER.name


async def test_without_an_embedder_words_count() -> None:
    ranking = await AgentFinder(None, SystemClock()).rank(SEARCH, "list commits", 1)

    assert ([agent.name for agent in ranking.agents], ranking.warning) == ([GIT.name], "")


async def test_only_candidates_and_their_tools_are_found() -> None:
    finder = AgentFinder(None, SystemClock())
    limited = Roster({CLOCK.name: replace(CLOCK, tools=CLOCK.tools[:1]), GENERALIST.name: GENERALIST})

    ranking = await finder.rank(AgentSearch("default", ROSTER, limited), "Convert the time of the rain", 5)

    assert {agent.name: agent.tool for agent in ranking.agents} == {CLOCK.name: "now", GENERALIST.name: ""}


async def test_tools_of_an_agent_are_ranked() -> None:
    finder = AgentFinder(CountingEmbedder(), SystemClock())

    assert await finder.rank_tools(SEARCH, WEATHER, "How windy is it?", 1) == ["wind"]
    assert await finder.rank_tools(SEARCH, replace(WEATHER, tools=WEATHER.tools[:1]), "wind", 5) == ["rain"]
    assert await finder.rank_tools(SEARCH, GENERALIST, "wind", 5) == []


async def test_index_is_built_once_and_a_new_roster_embeds_only_new_texts() -> None:
    embedder = CountingEmbedder()
    finder = AgentFinder(embedder, SystemClock())
    await names(finder, "rain")
    await names(finder, "wind")
    mail = card("mail", "Letters", send="Send a letter")
    later = Roster({**ROSTER.cards, mail.name: mail})

    found = await names(finder, "write a letter", later, later)

    assert found[0] == mail.name
    assert [len(texts) for texts in embedder.asked] == [10, 1, 1, 2, 1]


async def test_failing_embedder_is_reported_skipped_for_a_minute_and_asked_again() -> None:
    clock, embedder = SetClock(), CountingEmbedder(away=True)
    finder = AgentFinder(embedder, clock)

    ranking = await finder.rank(SEARCH, "list commits", 1)
    await names(finder, "again")
    asked_while_away = len(embedder.asked)
    embedder.away, clock.seconds = False, 61.0
    later = await finder.rank(SEARCH, "umbrella rain", 1)

    assert [agent.name for agent in ranking.agents] == [GIT.name]
    assert "it is away" in ranking.warning
    assert asked_while_away == 1
    assert (later.warning, "meaning_card" in later.agents[0].parts) == ("", True)
