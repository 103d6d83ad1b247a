"""Finds the agents of a roster that fit a text. Indexes are built when they are first needed, in a thread."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final

from brain.registry.cards import AgentCard, Roster
from brain.registry.manifest import specialist_name
from brain.retrieval.agent_index import AgentIndex, AgentTexts, Query
from brain.retrieval.search import AgentSearch, Ranking
from brain.retrieval.text_similarity import sentences
from starling.core.clock import Clock
from starling.core.embeddings import CachingEmbedder, Vector
from starling.core.errors import StarlingError
from starling.core.principal import SHARED

_RETRY_SECONDS: Final = 60.0
_QUERY_SECONDS: Final = 10.0
_PART: Final = 512  # texts that are embedded and kept together, so that an interrupted embedding goes on where it was
_log = logging.getLogger(__name__)

type TextsByTenant = Mapping[str, Sequence[str]]


@dataclass(slots=True)
class ModelVectors:
    """Asks an embedder. One that failed is not asked again for a minute; `failure` says why until it answers."""

    embedder: CachingEmbedder
    clock: Clock
    failure: str = ""
    _vectors: dict[str, Vector] = field(default_factory=dict[str, Vector])
    _retry_at: float = 0.0

    @property
    def name(self) -> str:
        return self.embedder.name

    @property
    def vectors(self) -> Mapping[str, Vector]:
        """Vectors by text, of the texts that were read or embedded."""
        return self._vectors

    @property
    def may_ask(self) -> bool:
        return self.clock.monotonic() >= self._retry_at

    def missing(self, texts: TextsByTenant) -> dict[str, list[str]]:
        """Return those texts that have no vector here."""
        wanted = {
            tenant: [text for text in dict.fromkeys(texts[tenant]) if text not in self._vectors] for tenant in texts
        }
        return {tenant: missing for tenant, missing in wanted.items() if missing}

    async def read(self, texts: TextsByTenant) -> None:
        """Read the kept vectors of texts that have none here."""
        for tenant, missing in self.missing(texts).items():
            self._vectors |= await self.embedder.kept(tenant, missing)

    async def make(self, texts: TextsByTenant) -> None:
        """Embed and keep the texts that have no vector here."""
        for tenant, missing in self.missing(texts).items():
            for start in range(0, len(missing), _PART):
                part = missing[start : start + _PART]
                try:
                    vectors = await self.embedder.embed_and_keep(tenant, part)
                except StarlingError as error:
                    self._fail(str(error))
                    return
                self._vectors |= zip(part, vectors, strict=True)
        self.failure = ""

    async def query(self, text: str) -> Sequence[Vector]:
        """Return the vectors of a text's sentences; none if the embedder fails or takes longer than 10 seconds."""
        if not self.may_ask:
            return ()
        try:
            async with asyncio.timeout(_QUERY_SECONDS):
                vectors = await self.embedder.embed(sentences(text))
        except TimeoutError:
            self._fail(f"{self.name} made no vector within {_QUERY_SECONDS:g} seconds.")
            return ()
        except StarlingError as error:
            self._fail(str(error))
            return ()
        self.failure = ""
        return vectors

    def forget_others(self, texts: Set[str]) -> None:
        """Drop the vectors of all other texts."""
        self._vectors = {text: vector for text, vector in self._vectors.items() if text in texts}

    def _fail(self, failure: str) -> None:
        if failure != self.failure:
            _log.warning("No vectors: %s", failure)
        self.failure = failure
        self._retry_at = self.clock.monotonic() + _RETRY_SECONDS


_INDEXES_KEPT: Final = 8
_OF_TENANT: Final = ("custom", "team", "member")  # kinds of agents
PATIENCE_SECONDS: Final = 5.0


@dataclass(slots=True)
class _Indexed:
    """An index, and the model whose vectors it has."""

    roster: Roster
    index: AgentIndex
    model: ModelVectors | None


class AgentFinder:
    """Ranks agents and tools. Without an embedder, or while it fails, only words and characters count.

    Vectors of a roster that aren't kept yet are made in the background. The search that begins it waits up to
    `patience` seconds; until they are all there, searches use a former model's vectors, if all of them are kept and
    its embedder can still be asked for the query's.
    """

    def __init__(self, embedder: CachingEmbedder | None, clock: Clock, patience: float = PATIENCE_SECONDS) -> None:
        self._clock = clock
        self._patience = patience
        self._current = ModelVectors(embedder, clock) if embedder else None
        self._former: dict[str, ModelVectors] = {}
        self._indexes: OrderedDict[int, _Indexed] = OrderedDict()
        self._features: dict[str, Query] = {}
        self._building = asyncio.Lock()
        self._embedding: asyncio.Task[None] | None = None

    async def rank(self, search: AgentSearch, text: str, limit: int) -> Ranking:
        """Return the candidates that fit `text` best."""
        indexed = await self._indexed(search)
        query = await _query(indexed, text)
        names = {card.name: {tool.name for tool in card.tools} for card in search.candidates.cards.values()}
        ranked = await asyncio.to_thread(indexed.index.rank, query, names, limit)
        if self._current is None or (indexed.model is self._current and query.vectors):
            return Ranking(ranked)
        used = f"with the vectors of {indexed.model.name}" if indexed.model and query.vectors else "by words only"
        why = self._current.failure or f"the vectors of {self._current.name} are being made."
        return Ranking(ranked, f"Agents are found {used}: {why}")

    async def rank_tools(self, search: AgentSearch, card: AgentCard, text: str, limit: int) -> list[str]:
        """Return the names of those tools of an agent that fit `text` best."""
        indexed = await self._indexed(search)
        query = await _query(indexed, text)
        tools = {tool.name for tool in card.tools}
        # those of a team's member are indexed as its specialist's
        name = specialist_name(card.server) if card.kind == "member" and card.server else card.name
        return await asyncio.to_thread(indexed.index.rank_tools, query, name, tools, limit)

    async def close(self) -> None:
        """Stop making vectors and close connections to embedders."""
        if self._embedding:
            self._embedding.cancel()
            await asyncio.gather(self._embedding, return_exceptions=True)
        for model in (self._current, *self._former.values()):
            if model:
                await model.embedder.close()

    async def _indexed(self, search: AgentSearch) -> _Indexed:
        known = self._indexes.get(id(search.roster))
        if known is None or self._may_improve(known):
            async with self._building:
                known = self._indexes.get(id(search.roster))
                if known is None or self._may_improve(known):
                    model = await self._complete_model(_texts_by_tenant(search))
                    if known is None or known.model is not model:
                        index = await asyncio.to_thread(self._assembled, search.roster, model)
                        known = _Indexed(search.roster, index, model)
                    self._forget_old()
        self._indexes[id(search.roster)] = known
        self._indexes.move_to_end(id(search.roster))
        return known

    def _may_improve(self, known: _Indexed) -> bool:
        """Return whether an index could have the vectors of the configured model now."""
        if self._current is None or known.model is self._current:
            return False
        return self._current.may_ask and (self._embedding is None or self._embedding.done())

    async def _complete_model(self, texts: TextsByTenant) -> ModelVectors | None:
        """Return a model that has vectors of all texts: the configured one, else a former one, else None."""
        current = self._current
        if current is None:
            return None
        await current.read(texts)
        if current.missing(texts):
            await self._begin_embedding(current, texts)
        if not current.missing(texts):
            return current
        embedder = await current.embedder.former(texts)
        if embedder is None:
            return None
        if embedder.name in self._former:
            await embedder.close()
        former = self._former.setdefault(embedder.name, ModelVectors(embedder, self._clock))
        await former.read(texts)
        return None if former.missing(texts) else former

    async def _begin_embedding(self, model: ModelVectors, texts: TextsByTenant) -> None:
        """Make missing vectors in the background, if nothing is made already, and wait a little for them.

        The task belongs to no search: the one that began it may end before it. `close` awaits it.
        """
        if not model.may_ask or (self._embedding and not self._embedding.done()):
            return
        self._embedding = asyncio.get_running_loop().create_task(model.make(texts), name="embed-cards")
        await asyncio.wait({self._embedding}, timeout=self._patience)
        if self._embedding.done():
            self._embedding.result()
        else:
            _log.warning("Vectors of %s are being made; until then, agents are found without them.", model.name)

    def _assembled(self, roster: Roster, model: ModelVectors | None) -> AgentIndex:
        agents = [AgentTexts(card.name, _card_text(card), _tool_texts(card)) for card in roster.cards.values()]
        texts = dict.fromkeys(text for agent in agents for text in (agent.card, *agent.tools.values()))
        self._features |= {text: Query.of(text) for text in texts if text not in self._features}
        return AgentIndex(agents, self._features, model.vectors if model else {})

    def _forget_old(self) -> None:
        while len(self._indexes) >= _INDEXES_KEPT:  # one more is added
            self._indexes.popitem(last=False)
        if len(self._features) > 4 * max(1, sum(len(_texts(known.roster)) for known in self._indexes.values())):
            kept = {text for known in self._indexes.values() for text in _texts(known.roster)}
            self._features = {text: features for text, features in self._features.items() if text in kept}
            for model in (self._current, *self._former.values()):
                if model:
                    model.forget_others(kept)


async def _query(indexed: _Indexed, text: str) -> Query:
    return Query.of(text, await indexed.model.query(text) if indexed.model else ())


def _texts_by_tenant(search: AgentSearch) -> TextsByTenant:
    """Return all texts of a roster by who keeps their vectors: a tenant those of its own agents and teams."""
    texts: dict[str, list[str]] = {SHARED: [], search.tenant: []}
    for card in search.roster.cards.values():
        texts[search.tenant if card.kind in _OF_TENANT else SHARED] += _texts_of(card)
    return {tenant: wanted for tenant, wanted in texts.items() if wanted}


def _card_text(card: AgentCard) -> str:
    tools = "\n".join(f"{tool.name}: {tool.description}" for tool in card.tools)
    return f"{card.server or card.name} {card.description}\n{tools}"


def _tool_texts(card: AgentCard) -> Mapping[str, str]:
    return {tool.name: f"{card.server or card.name} {tool.name}: {tool.description}" for tool in card.tools}


def _texts_of(card: AgentCard) -> list[str]:
    return [_card_text(card), *_tool_texts(card).values()]


def _texts(roster: Roster) -> list[str]:
    return [text for card in roster.cards.values() for text in _texts_of(card)]
