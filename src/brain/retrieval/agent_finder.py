"""Finds the agents of a roster that fit a text. Indexes are built when they are first needed, in a thread."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from brain.registry.cards import AgentCard, Roster
from brain.retrieval.agent_index import AgentIndex, AgentTexts, Query
from brain.retrieval.search import AgentSearch, Ranking
from starling.core.clock import Clock
from starling.core.embeddings import CachingEmbedder, Vector
from starling.core.errors import StarlingError
from starling.core.principal import SHARED

_INDEXES_KEPT: Final = 8
_RETRY_SECONDS: Final = 60.0  # after the embedder failed
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Indexed:
    roster: Roster
    index: AgentIndex
    complete: bool  # whether it has vectors, or needs none


@dataclass(slots=True)
class AgentFinder:
    """Ranks agents and tools. Without an embedder, or while it fails, only words and characters count."""

    embedder: CachingEmbedder | None
    clock: Clock
    _indexes: OrderedDict[int, _Indexed] = field(default_factory=OrderedDict[int, _Indexed])
    _features: dict[str, Query] = field(default_factory=dict[str, Query])
    _vectors: dict[str, Vector] = field(default_factory=dict[str, Vector])
    _building: asyncio.Lock = field(default_factory=asyncio.Lock)
    _failure: str = ""
    _retry_at: float = 0.0

    async def rank(self, search: AgentSearch, text: str, limit: int) -> Ranking:
        """Return the candidates that fit `text` best."""
        index, query = await self._index(search), await self._query(text)
        names = {card.name: {tool.name for tool in card.tools} for card in search.candidates.cards.values()}
        return Ranking(await asyncio.to_thread(index.rank, query, names, limit), self._failure)

    async def rank_tools(self, search: AgentSearch, card: AgentCard, text: str, limit: int) -> list[str]:
        """Return the names of those tools of an agent that fit `text` best."""
        index, query = await self._index(search), await self._query(text)
        return await asyncio.to_thread(index.rank_tools, query, card.name, {tool.name for tool in card.tools}, limit)

    async def close(self) -> None:
        """Close connections to the embedder."""
        if self.embedder:
            await self.embedder.close()

    async def _query(self, text: str) -> Query:
        vectors = await self._embedded([text])
        return Query.of(text, vectors[0] if vectors else None)

    async def _index(self, search: AgentSearch) -> AgentIndex:
        roster = search.roster
        async with self._building:
            known = self._indexes.get(id(roster))
            if known is None or (not known.complete and self._may_embed):
                known = self._indexes[id(roster)] = await self._built(search)
                self._forget_old()
            self._indexes.move_to_end(id(roster))
            return known.index

    async def _built(self, search: AgentSearch) -> _Indexed:
        roster = search.roster
        agents = [AgentTexts(card.name, _card_text(card), _tool_texts(card)) for card in roster.cards.values()]
        texts = list(dict.fromkeys(text for agent in agents for text in (agent.card, *agent.tools.values())))
        complete = self.embedder is None or await self._add_vectors(search)
        return _Indexed(roster, await asyncio.to_thread(self._assembled, agents, texts), complete)

    async def _add_vectors(self, search: AgentSearch) -> bool:
        """Return whether all texts of a roster have vectors now."""
        texts: dict[str, list[str]] = {SHARED: [], search.tenant: []}
        for card in search.roster.cards.values():
            texts[search.tenant if card.kind == "custom" else SHARED] += _texts_of(card)
        for owner, wanted in texts.items():
            missing = [text for text in dict.fromkeys(wanted) if text not in self._vectors]
            vectors = await self._embedded(missing, owner) if missing else []
            if vectors is None:
                return False
            self._vectors |= zip(missing, vectors, strict=True)
        return True

    def _assembled(self, agents: Sequence[AgentTexts], texts: Sequence[str]) -> AgentIndex:
        self._features |= {text: Query.of(text) for text in texts if text not in self._features}
        return AgentIndex(agents, self._features, self._vectors)

    def _forget_old(self) -> None:
        while len(self._indexes) > _INDEXES_KEPT:
            self._indexes.popitem(last=False)
        if len(self._features) > 4 * max(1, sum(len(_texts(known.roster)) for known in self._indexes.values())):
            kept = {text for known in self._indexes.values() for text in _texts(known.roster)}
            self._features = {text: features for text, features in self._features.items() if text in kept}
            self._vectors = {text: vector for text, vector in self._vectors.items() if text in kept}

    @property
    def _may_embed(self) -> bool:
        return self.embedder is not None and self.clock.monotonic() >= self._retry_at

    async def _embedded(self, texts: Sequence[str], owner: str | None = None) -> list[Vector] | None:
        """Return the vectors, kept for `owner`; None without an embedder or for a minute after it failed."""
        if self.embedder is None or not self._may_embed:
            return None
        try:
            vectors = await (self.embedder.embed_and_keep(owner, texts) if owner else self.embedder.embed(texts))
        except StarlingError as error:
            self._failure = f"Agents are found by words only: {error}"
            self._retry_at = self.clock.monotonic() + _RETRY_SECONDS
            _log.warning("%s", self._failure)
            return None
        self._failure = ""
        return vectors


def _card_text(card: AgentCard) -> str:
    tools = "\n".join(f"{tool.name}: {tool.description}" for tool in card.tools)
    return f"{card.server or card.name} {card.description}\n{tools}"


def _tool_texts(card: AgentCard) -> Mapping[str, str]:
    return {tool.name: f"{card.server or card.name} {tool.name}: {tool.description}" for tool in card.tools}


def _texts_of(card: AgentCard) -> list[str]:
    return [_card_text(card), *_tool_texts(card).values()]


def _texts(roster: Roster) -> list[str]:
    return [text for card in roster.cards.values() for text in _texts_of(card)]
