"""Agents found by the built-in vectors, and what happens while an embedder fails."""

import asyncio
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest

from brain.registry.cards import GENERALIST, AgentCard, AgentKind, Roster
from brain.retrieval import agent_finder as model_vectors
from brain.retrieval.agent_finder import AgentFinder
from brain.retrieval.agent_index import CardTexts
from brain.retrieval.search import AgentSearch, Ranking
from starling.core.clock import SystemClock
from starling.core.embeddings import CachingEmbedder, Vector
from starling.core.errors import LLMConnectionError
from starling.core.principal import SHARED
from starling.core.tool_calls import Effect
from starling.core.tools import ToolDefinition
from starling.infra.embeddings.static_vectors import StaticEmbedder
from tests.support.set_clock import SetClock


def _set(event: asyncio.Event) -> asyncio.Event:
    event.set()
    return event


@dataclass
class CountingEmbedder(StaticEmbedder):
    """The built-in embedder, with what it was asked; it fails while `away`, keeps no vector until `may_answer`."""

    name: str = "static"
    away: bool = False
    fails_after: int | None = None  # calls
    answers_queries: asyncio.Event = field(default_factory=lambda: _set(asyncio.Event()))
    may_answer: asyncio.Event = field(default_factory=lambda: _set(asyncio.Event()))
    previous: "CountingEmbedder | None" = None
    asked: list[Sequence[str]] = field(default_factory=list[Sequence[str]])
    by_tenant: dict[str, dict[str, Vector]] = field(default_factory=dict[str, dict[str, Vector]])

    def __post_init__(self) -> None:
        super().__init__()

    async def kept(self, tenant: str, texts: Sequence[str]) -> Mapping[str, Vector]:
        known = self.by_tenant.get(tenant, {})
        return {text: known[text] for text in texts if text in known}

    async def embed_and_keep(self, tenant: str, texts: Sequence[str]) -> list[Vector]:
        await self.may_answer.wait()
        made = dict(zip(texts, await self.embed(texts), strict=True))
        self.by_tenant.setdefault(tenant, {}).update(made)
        return list(made.values())

    async def former(self, texts: Mapping[str, Sequence[str]]) -> CachingEmbedder | None:
        return self.previous

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        self.asked.append(texts)
        if len(texts) == 1:
            await self.answers_queries.wait()
        if self.away or (self.fails_after is not None and len(self.asked) > self.fails_after):
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


async def test_only_a_new_card_is_indexed_and_in_another_thread_than_that_of_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    indexed: list[tuple[str, int]] = []
    texts = CardTexts.all

    def noted(one: CardTexts) -> list[str]:
        indexed.append((one.server, threading.get_ident()))
        return texts(one)

    monkeypatch.setattr(CardTexts, "all", noted)  # features are counted of them
    finder = AgentFinder(None, SystemClock())
    await names(finder, "rain")
    first = [server for server, _ in indexed]
    mail = card("mail", "Letters", send="Send a letter")
    later = Roster({**ROSTER.cards, mail.name: mail})

    await names(finder, "write a letter", later, later)

    assert sorted(first) == sorted(one.server or one.name for one in ROSTER.cards.values())
    assert [server for server, _ in indexed[len(first) :]] == ["mail"]
    assert threading.get_ident() not in {thread for _, thread in indexed}


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


async def test_search_does_not_wait_for_vectors_that_take_long_and_uses_them_once_they_are_made() -> None:
    embedder = CountingEmbedder("slow:model", may_answer=asyncio.Event())
    finder = AgentFinder(embedder, SystemClock(), patience=0.01)

    early = await finder.rank(SEARCH, "list commits", 1)
    again = await finder.rank(SEARCH, "list commits", 1)
    embedder.may_answer.set()
    later = await _after_embedding(finder, "umbrella rain")

    assert "by words only: the vectors of slow:model are being made" in early.warning
    assert again.warning == early.warning
    assert [agent.name for agent in early.agents] == [GIT.name]
    assert (later.warning, "meaning_card" in later.agents[0].parts) == ("", True)
    assert [len(texts) for texts in embedder.asked] == [10, 1]


async def test_former_model_that_lacks_a_text_is_not_used() -> None:
    former = CountingEmbedder("former:model")
    small = Roster({CLOCK.name: CLOCK})
    await AgentFinder(former, SystemClock()).rank(AgentSearch("default", small, small), "anything", 1)
    finder = AgentFinder(CountingEmbedder("new:model", away=True, previous=former), SystemClock())

    ranking = await finder.rank(SEARCH, "list commits", 1)

    assert "by words only" in ranking.warning
    assert "meaning_card" not in ranking.agents[0].parts


async def test_query_whose_vector_takes_too_long_is_answered_by_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_vectors, "_QUERY_SECONDS", 0.01)
    embedder = CountingEmbedder("slow:model")
    finder = AgentFinder(embedder, SystemClock())
    await finder.rank(SEARCH, "anything", 1)
    embedder.answers_queries = asyncio.Event()

    ranking = await finder.rank(SEARCH, "list commits", 1)

    assert [agent.name for agent in ranking.agents] == [GIT.name]
    assert ranking.warning == "Agents are found by words only: slow:model made no vector within 0.01 seconds."


async def test_embedding_that_failed_goes_on_with_the_texts_that_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_vectors, "_PART", 2)
    clock, embedder = SetClock(), CountingEmbedder(fails_after=1)
    finder = AgentFinder(embedder, clock)

    early = await finder.rank(SEARCH, "rain", 1)
    embedder.fails_after, clock.seconds = None, 61.0
    later = await finder.rank(SEARCH, "rain", 1)

    assert ("it is away" in early.warning, later.warning) == (True, "")
    assert [len(texts) for texts in embedder.asked] == [4, 6, 6, 1]  # whole cards


async def test_cards_that_no_search_needed_for_an_hour_are_dropped_once_they_are_the_most() -> None:
    clock, embedder = SetClock(), CountingEmbedder()
    finder = AgentFinder(embedder, clock)
    await names(finder, "rain")
    clock.seconds = 4_000.0
    mail = Roster({"mail": card("mail", "Letters", send="Send a letter")})

    await names(finder, "write", mail, mail)
    embedder.by_tenant.clear()
    found = await names(finder, "rain")

    assert found[0] == WEATHER.name
    assert [len(texts) for texts in embedder.asked] == [10, 1, 2, 1, 10, 1]


async def test_candidates_that_were_unused_for_an_hour_are_found_beside_a_new_one() -> None:
    clock = SetClock()
    finder = AgentFinder(None, clock)
    await names(finder, "rain")
    clock.seconds = 4_000.0
    roster = Roster({**ROSTER.cards, "mail": card("mail", "Letters", send="Send a letter")})

    ranking = await finder.rank(AgentSearch("default", roster, roster), "rain", 9)

    assert {agent.name for agent in ranking.agents} == set(roster.cards)


async def test_closing_stops_the_embedding_in_the_background() -> None:
    embedder = CountingEmbedder("slow:model", may_answer=asyncio.Event())
    finder = AgentFinder(embedder, SystemClock(), patience=0)
    await finder.rank(SEARCH, "list commits", 1)

    await finder.close()

    assert embedder.asked == []
    assert {task.get_name() for task in asyncio.all_tasks()}.isdisjoint({"embed-cards"})


@pytest.mark.parametrize("kind", ["custom", "team"])
async def test_vectors_of_a_tenants_own_agents_are_kept_for_that_tenant(kind: AgentKind) -> None:
    embedder = CountingEmbedder()
    own = replace(card("own", "Invoices of one tenant", pay="Pay an invoice"), kind=kind)
    roster = Roster({CLOCK.name: CLOCK, own.name: own})

    await AgentFinder(embedder, SystemClock()).rank(AgentSearch("a", roster, roster), "pay", 1)

    assert {tenant: len(kept) for tenant, kept in embedder.by_tenant.items()} == {SHARED: 3, "a": 2}
    assert all("own" in text for text in embedder.by_tenant["a"])


async def _after_embedding(finder: AgentFinder, text: str) -> Ranking:
    """Return a ranking that is asked for once the embedding in the background has ended."""
    await asyncio.gather(*(task for task in asyncio.all_tasks() if task.get_name() == "embed-cards"))
    return await finder.rank(SEARCH, text, 1)
