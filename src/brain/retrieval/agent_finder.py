"""Finds the agents of a roster that fit a text. One index serves all rosters; new cards are indexed in a thread."""

import asyncio
import logging
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import batched, groupby
from typing import Final

import numpy as np

from brain.registry.cards import AgentCard, Roster
from brain.registry.manifest import specialist_name
from brain.retrieval.agent_index import AgentIndex, Candidates, CardTexts, CardVectors
from brain.retrieval.search import AgentSearch, Ranking
from brain.retrieval.text_similarity import sentences
from starling.core.clock import Clock
from starling.core.embeddings import CachingEmbedder, Vector
from starling.core.errors import StarlingError

_RETRY_SECONDS: Final = 60.0
_QUERY_SECONDS: Final = 10.0
_PART: Final = 64  # cards that are embedded and kept together, so that an interrupted embedding goes on where it was
PATIENCE_SECONDS: Final = 5.0
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class ModelVectors:
    """Asks an embedder. One that failed is not asked again for a minute; `failure` says why until it answers."""

    embedder: CachingEmbedder
    clock: Clock
    failure: str = ""
    vectors: dict[CardTexts, CardVectors] = field(default_factory=dict[CardTexts, CardVectors])
    _retry_at: float = 0.0

    @property
    def may_ask(self) -> bool:
        return self.clock.monotonic() >= self._retry_at

    def has(self, cards: Iterable[CardTexts]) -> bool:
        """Return whether it has the vectors of all these cards."""
        return all(card in self.vectors for card in cards)

    async def read(self, cards: Iterable[CardTexts]) -> None:
        """Read the kept vectors of cards that have none here."""
        for part, texts in self._missing(cards):
            self._add(part, await self.embedder.kept(part[0].owner, texts))

    async def make(self, cards: Iterable[CardTexts]) -> None:
        """Embed and keep the texts of cards that have no vectors here."""
        with self._noting_failure():
            for part, texts in self._missing(cards):
                vectors = await self.embedder.embed_and_keep(part[0].owner, texts)
                self._add(part, dict(zip(texts, vectors, strict=True)))

    async def query(self, text: str) -> Sequence[Vector]:
        """Return the vectors of a text's sentences; none if the embedder fails or takes longer than 10 seconds."""
        vectors: Sequence[Vector] = ()
        if self.may_ask:
            with self._noting_failure():
                async with asyncio.timeout(_QUERY_SECONDS):
                    vectors = await self.embedder.embed(sentences(text))
        return vectors

    def _missing(self, cards: Iterable[CardTexts]) -> Iterator[tuple[Sequence[CardTexts], list[str]]]:
        """Yield the cards without vectors in parts of one owner, with their texts."""
        missing = sorted(card for card in cards if card not in self.vectors)
        for _, of_owner in groupby(missing, key=lambda card: card.owner):
            for part in batched(of_owner, _PART):
                yield part, [text for card in part for text in card.all()]

    def _add(self, cards: Iterable[CardTexts], vectors: Mapping[str, Vector]) -> None:
        for card in cards:
            if all(text in vectors for text in card.all()):
                self.vectors[card] = CardVectors.of([vectors[text] for text in card.all()])

    @contextmanager
    def _noting_failure(self) -> Generator[None]:
        try:
            yield
        except (TimeoutError, StarlingError) as error:
            failure = str(error) or f"{self.embedder.name} made no vector within {_QUERY_SECONDS:g} seconds."
            if failure != self.failure:
                _log.warning("No vectors: %s", failure)
            self.failure = failure
            self._retry_at = self.clock.monotonic() + _RETRY_SECONDS
        else:
            self.failure = ""


class AgentFinder:
    """Ranks agents and tools. Without an embedder, or while it fails, only words and characters count.

    Cards are indexed when they are candidates for the first time. Their vectors that aren't kept yet are made in the
    background. The search that begins it waits up to `patience` seconds; until they are all there, searches use a
    former model's vectors, if all of them are kept and its embedder can still be asked for the query's.
    """

    def __init__(self, embedder: CachingEmbedder | None, clock: Clock, patience: float = PATIENCE_SECONDS) -> None:
        self._clock = clock
        self._patience = patience
        self._models = {embedder.name: ModelVectors(embedder, clock)} if embedder else {}  # former ones are added
        self._current = next(iter(self._models.values()), None)
        self._index = AgentIndex()
        self._building = asyncio.Lock()
        self._embedding: asyncio.Task[None] | None = None

    async def rank(self, search: AgentSearch, text: str, limit: int) -> Ranking:
        """Return the candidates that fit `text` best."""
        index, found, model, vectors = await self._prepared(search, text)
        ranked = await asyncio.to_thread(index.rank, text, vectors, found, limit)
        if self._current is None or (model is self._current and vectors):
            return Ranking(ranked)
        used = f"with the vectors of {model.embedder.name}" if model and vectors else "by words only"
        why = self._current.failure or f"the vectors of {self._current.embedder.name} are being made."
        return Ranking(ranked, f"Agents are found {used}: {why}")

    async def rank_tools(self, search: AgentSearch, card: AgentCard, text: str, limit: int) -> list[str]:
        """Return the names of those tools of an agent that fit `text` best."""
        # those of a team's member are indexed as its specialist's
        name = specialist_name(card.server) if card.kind == "member" and card.server else card.name
        index, found, _, vectors = await self._prepared(replace(search, candidates=Roster({name: card})), text)
        return await asyncio.to_thread(index.rank_tools, text, vectors, found, limit)

    async def close(self) -> None:
        """Stop making vectors and close connections to embedders."""
        if self._embedding:
            self._embedding.cancel()
            await asyncio.gather(self._embedding, return_exceptions=True)
        for model in self._models.values():
            await model.embedder.close()

    async def _prepared(
        self, search: AgentSearch, text: str
    ) -> tuple[AgentIndex, Candidates, ModelVectors | None, Sequence[Vector]]:
        """Return an index of the candidates, a model that has the vectors of all of them, and those of the text."""
        index = self._index
        found, new = await asyncio.to_thread(_candidates, index, search)
        if new:
            async with self._building:
                index = await asyncio.to_thread(
                    self._index.extended, [*found.cards.values(), *new], self._clock.monotonic()
                )
                if len(index.rows) < len(self._index.rows):
                    for one in self._models.values():
                        one.vectors = {card: own for card, own in one.vectors.items() if card in index.rows}
                self._index = index
            found, _ = await asyncio.to_thread(_candidates, index, search)
        index.used_at[found.rows] = self._clock.monotonic()
        model = await self._model(found.cards.values())
        if model is None:
            return index, found, None, ()
        return index, replace(found, vectors=model.vectors), model, await model.query(text)

    async def _model(self, cards: Collection[CardTexts]) -> ModelVectors | None:
        """Return a model that has vectors of all cards: the configured one, else a former one, else None."""
        current = self._current
        if current and not current.has(cards) and self._may_embed(current):
            async with self._building:
                await current.read(cards)
                if not current.has(cards) and self._may_embed(current):
                    await self._begin_embedding(current, cards)
                if not any(model.has(cards) for model in self._models.values()):
                    await self._read_former(current, cards)
        return next((model for model in self._models.values() if model.has(cards)), None)

    def _may_embed(self, model: ModelVectors) -> bool:
        return model.may_ask and (self._embedding is None or self._embedding.done())

    async def _read_former(self, current: ModelVectors, cards: Collection[CardTexts]) -> None:
        """Read the kept vectors of a model that was configured before and has those of all cards, if there is one."""
        texts = dict[str, list[str]]()
        for card in cards:
            texts.setdefault(card.owner, []).extend(card.all())
        if (embedder := await current.embedder.former(texts)) is None:
            return
        if embedder.name in self._models:
            await embedder.close()
        await self._models.setdefault(embedder.name, ModelVectors(embedder, self._clock)).read(cards)

    async def _begin_embedding(self, model: ModelVectors, cards: Collection[CardTexts]) -> None:
        """Make missing vectors in a task that belongs to no search, and wait a little for it."""
        self._embedding = asyncio.get_running_loop().create_task(model.make(cards), name="embed-cards")
        await asyncio.wait({self._embedding}, timeout=self._patience)
        if self._embedding.done():
            self._embedding.result()
        else:
            _log.warning("Vectors of %s are being made.", model.embedder.name)


def _candidates(index: AgentIndex, search: AgentSearch) -> tuple[Candidates, list[CardTexts]]:
    """Return the candidates of a search that the index has, and the cards that it lacks.

    A candidate is found by the text of its whole card, and may have fewer tools. What the roster lacks is left out.
    """
    new, found, rows, allowed = list[CardTexts](), dict[str, CardTexts](), list[int](), list[bool]()
    for name, card in search.candidates.cards.items():
        if (whole := search.roster.cards.get(name)) is None:
            continue
        texts = CardTexts.of(whole, search.tenant)
        if (row := index.rows.get(texts)) is None:
            new.append(texts)
            continue
        found[name] = texts
        rows.append(row)
        usable = {tool.name for tool in card.tools}
        allowed += [False, *(tool.name in usable for tool in whole.tools)]
    return Candidates(found, np.array(rows, np.intp), np.array(allowed, np.bool_)), new
