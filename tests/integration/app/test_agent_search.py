"""Searches for agents while the configured embedding model changes, is slow, or can't be asked."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from brain.registry.cards import GENERALIST, AgentCard, Roster
from brain.retrieval.search import AgentSearch, Ranking
from starling.app.container.services import build_retrieval
from starling.core.settings.schema import ProviderSettings, Settings
from starling.infra.postgres.engine import Engine, open_engine
from tests.support.embedding_server import EmbeddingServer

_AGENTS = [AgentCard("painter", "specialist", "Paints pictures"), AgentCard("cook", "specialist", "Prepares meals")]
ROSTER = Roster({card.name: card for card in (*_AGENTS, GENERALIST)})
SEARCH = AgentSearch("default", ROSTER, ROSTER)


@pytest.fixture
async def engine(database_url: str) -> AsyncGenerator[Engine]:
    engine = open_engine(database_url)
    yield engine
    await engine.dispose()


def settings(model: str, url: str) -> Settings:
    return Settings(embeddings=model, providers={"local": ProviderSettings(base_url=url)})


def uses_vectors(ranking: Ranking) -> bool:
    return "meaning_card" in ranking.agents[0].parts


async def test_vectors_of_a_changed_model_are_made_in_the_background_while_the_old_ones_serve(engine: Engine) -> None:
    server = EmbeddingServer(may_answer=(released := asyncio.Event()))
    async with server.running() as url:
        before = build_retrieval(settings("static", url), engine).agents
        await before.rank(SEARCH, "a portrait", 1)
        finder = build_retrieval(settings("local:small", url), engine, patience=0.05).agents

        during = await finder.rank(SEARCH, "a portrait", 1)
        asked_during = [len(body["input"]) for body in server.asked]
        released.set()
        await asyncio.gather(*(task for task in asyncio.all_tasks() if task.get_name() == "embed-cards"))
        after = await finder.rank(SEARCH, "a portrait", 1)
        for each in (before, finder):
            await each.close()

    assert uses_vectors(during)
    assert "with the vectors of static: the vectors of local:small are being made" in during.warning
    assert asked_during == [3]  # the cards; the query is embedded by the model whose vectors it is compared with
    assert (uses_vectors(after), after.warning) == (True, "")
    assert [len(body["input"]) for body in server.asked] == [3, 1]


async def test_model_that_is_away_degrades_to_words_and_its_stored_vectors_serve_once_it_is_back(
    engine: Engine,
) -> None:
    async with (server := EmbeddingServer()).running() as url:
        finder = build_retrieval(settings("local:small", url), engine).agents
        await finder.rank(SEARCH, "a portrait", 1)
        server.answer = lambda _: (503, {"error": {"message": "out of memory"}})
        away = await finder.rank(SEARCH, "pictures", 1)
        restarted = build_retrieval(settings("local:small", url), engine).agents
        server.answer = None
        back = await restarted.rank(SEARCH, "pictures", 1)
        for each in (finder, restarted):
            await each.close()

    assert (uses_vectors(away), away.agents[0].name) == (False, "painter")
    assert "by words only" in away.warning
    assert "out of memory" in away.warning
    assert (uses_vectors(back), back.warning) == (True, "")
    assert [len(body["input"]) for body in server.asked] == [3, 1, 1, 1]
