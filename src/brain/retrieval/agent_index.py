"""One index of the cards that searches have asked for, ranked by how well those of a roster fit a query."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import batched
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from brain.registry.cards import AgentCard
from brain.retrieval.search import RankedAgent
from brain.retrieval.text_similarity import (
    FeatureCounts,
    Floats,
    Postings,
    character_counts,
    content_words,
    ranges,
    word_counts,
)
from starling.core.embeddings import Vector
from starling.core.principal import SHARED

_WEIGHTS: Final[Mapping[str, tuple[float, int]]] = {  # and the power of the inverse document frequency
    "words": (0.5, 2),
    "characters": (0.5, 3),
    "names": (0.25, 3),
    "server": (0.5, 3),
}
_DENSE_WEIGHT: Final = 1.5
_EVEN_WORDS: Final = 16  # of a request, with which vectors have just this weight: the fewer, the less words say
_FLAT: Final = 1e-6  # a standard deviation below which all scores count as equal
_OF_TENANT: Final = ("custom", "team", "member")  # kinds of agents
_BATCH: Final = 256  # cards


class CardTexts(NamedTuple):
    """What a card is found by. Equal ones are indexed once, in whatever rosters they are.

    `owner` is the tenant of a card that only one has: what is known of its texts is used for no other tenant.
    """

    owner: str
    server: str  # the name of an agent without one
    description: str
    tools: tuple[tuple[str, str], ...]  # name and description
    members: str = ""  # what those of a team are for, which its whole card says in place of their tools

    @classmethod
    def of(cls, card: AgentCard, tenant: str) -> "CardTexts":
        tools = tuple([(tool.name, tool.description) for tool in card.tools])
        owner = tenant if card.kind in _OF_TENANT else SHARED
        members = "\n".join(member.description for member in card.members.values())
        return cls(owner, card.server or card.name, card.description, tools, members)

    def all(self) -> list[str]:
        """Return the text of the whole card, and that of each tool."""
        tools = [f"{name}: {description}" for name, description in self.tools]
        whole = f"{self.server} {self.description}\n{self.members or '\n'.join(tools)}"
        return [whole, *(f"{self.server} {text}" for text in tools)]


class CardVectors(NamedTuple):
    """The vectors of `CardTexts.all`: components from -127 to 127, and what each vector is to be multiplied by."""

    components: NDArray[np.int8]
    scales: Floats

    @classmethod
    def of(cls, vectors: Sequence[Vector]) -> "CardVectors":
        exact = np.asarray(vectors, dtype=np.float32)
        scales = (np.maximum(np.abs(exact).max(axis=1), 1e-9) / 127).astype(np.float32)
        return cls(np.rint(exact / scales[:, None]).astype(np.int8), scales)


@dataclass(frozen=True, slots=True)
class Query:
    """A text that agents are ranked by. `vectors` are those of its sentences; without any, only words count."""

    words: FeatureCounts
    characters: FeatureCounts
    length: int  # in words
    vectors: Sequence[Vector] = ()

    @classmethod
    def of(cls, text: str, vectors: Sequence[Vector] = ()) -> "Query":
        words = content_words(text)
        return cls(word_counts(words), character_counts(words), len(words), vectors)


@dataclass(frozen=True, slots=True)
class Candidates:
    """The agents that may be found, with their rows and texts; `allowed` says of each of their tools if it counts."""

    names: list[str]
    rows: NDArray[np.intp]
    texts: Sequence[CardTexts]
    allowed: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class AgentIndex:
    """A row for each card; the postings of cards (words, characters, names, server) and of tools (the first two)."""

    rows: Mapping[CardTexts, int]
    used_at: NDArray[np.float64]  # when a search last had the row among its candidates, by its clock
    tool_counts: NDArray[np.int32]
    cards: Sequence[Postings]
    tools: Sequence[Postings]

    @classmethod
    def empty(cls) -> "AgentIndex":
        return cls({}, np.zeros(0), np.zeros(0, np.int32), [Postings.of(())] * 4, [Postings.of(())] * 2)

    def extended(self, new: Sequence[CardTexts], now: float) -> "AgentIndex":
        """Return the index with further cards; only their features are counted."""
        cards, tools = [[one] for one in self.cards], [[one] for one in self.tools]
        for batch in batched(new, _BATCH):
            counted = [_features(card) for card in batch]
            for number, parts in enumerate(cards):
                parts.append(Postings.of([of_card[number] for of_card, _ in counted]))
            for number, parts in enumerate(tools):
                parts.append(Postings.of([one[number] for _, of_tools in counted for one in of_tools]))
        counts = np.array([len(card.tools) for card in new], np.int32)
        return AgentIndex(
            {**self.rows, **{card: number for number, card in enumerate(new, len(self.rows))}},
            np.concatenate([self.used_at, np.full(len(new), now)]),
            np.concatenate([self.tool_counts, counts]),
            [Postings.joined(parts) for parts in cards],
            [Postings.joined(parts) for parts in tools],
        )

    def kept(self, cards: NDArray[np.bool_]) -> "AgentIndex":
        """Return the index of some of its cards."""
        rows = [card for card, is_kept in zip(self.rows, cards, strict=True) if is_kept]
        tools = np.repeat(cards, self.tool_counts)
        return AgentIndex(
            {card: number for number, card in enumerate(rows)},
            self.used_at[cards],
            self.tool_counts[cards],
            [one.kept(cards) for one in self.cards],
            [one.kept(tools) for one in self.tools],
        )

    def rank(
        self, query: Query, found: Candidates, vectors: Mapping[CardTexts, CardVectors], limit: int
    ) -> list[RankedAgent]:
        """Return the best candidates, best first. The query's vectors count where each candidate has its own."""
        if not found.names:
            return []
        counts = self.tool_counts[found.rows]
        owners = np.repeat(np.arange(len(counts)), counts)
        parts: dict[str, Floats] = {}
        best = np.full(len(counts), -1, dtype=np.intp)
        for name, weight, card, tool in self._similarities(query, found, vectors):
            parts[f"{name}_card"] = weight * _z_scores(card)
            if tool is not None:
                best_scores, best = _best_tools(tool, owners, found)
                parts[f"{name}_tool"] = weight * _z_scores(np.where(best >= 0, best_scores, card))
        totals = np.sum(list(parts.values()), axis=0)
        tools = [name for texts in found.texts for name, _ in texts.tools]
        return [
            RankedAgent(
                found.names[at],
                round(float(totals[at]), 4),
                {name: round(float(scores[at]), 4) for name, scores in parts.items()},
                tools[int(best[at])] if best[at] >= 0 else "",
            )
            for at in map(int, np.argsort(-totals, kind="stable")[:limit])
        ]

    def rank_tools(
        self, query: Query, found: Candidates, vectors: Mapping[CardTexts, CardVectors], limit: int
    ) -> list[str]:
        """Return the names of the candidates' tools that fit best, best first."""
        names = [name for texts in found.texts for name, _ in texts.tools]
        allowed = np.flatnonzero(found.allowed)
        if not len(allowed):
            return []
        scores = [
            weight * _z_scores(tool[allowed])
            for _, weight, _, tool in self._similarities(query, found, vectors)
            if tool is not None
        ]
        best = allowed[np.argsort(-np.sum(scores, axis=0), kind="stable")]
        return list(dict.fromkeys(names[at] for at in map(int, best)))[:limit]

    def _similarities(
        self, query: Query, found: Candidates, vectors: Mapping[CardTexts, CardVectors]
    ) -> Iterable[tuple[str, float, Floats, Floats | None]]:
        """Yield name, weight, and the similarities of cards and of their tools, for each kind of features."""
        firsts = np.cumsum(self.tool_counts) - self.tool_counts
        places = ranges(firsts[found.rows], self.tool_counts[found.rows])
        cards, tools = np.zeros(len(self.rows), np.bool_), np.zeros(int(self.tool_counts.sum()), np.bool_)
        cards[found.rows], tools[places] = True, found.allowed
        asked = (query.words, query.characters, query.words, query.characters)
        for number, (name, (weight, power)) in enumerate(_WEIGHTS.items()):
            of_cards = self.cards[number].similarities(asked[number], cards, power)[found.rows]
            has_tools = number < len(self.tools)
            of_tools = self.tools[number].similarities(asked[number], tools, power)[places] if has_tools else None
            yield name, weight, of_cards, of_tools
        if query.vectors and vectors:
            weight = _DENSE_WEIGHT * min(2.0, max(0.5, (_EVEN_WORDS / max(query.length, 1)) ** 0.5))
            products = _best_products([vectors[texts] for texts in found.texts], query.vectors)
            counts = self.tool_counts[found.rows] + 1
            is_card = np.zeros(len(products), np.bool_)
            is_card[np.cumsum(counts) - counts] = True
            yield "meaning", weight, products[is_card], products[~is_card]


def _features(card: CardTexts) -> tuple[Sequence[FeatureCounts], Sequence[Sequence[FeatureCounts]]]:
    """Return the features of a card, for each of its postings, and the same for each of its tools."""
    whole, *tools = [content_words(text) for text in card.all()]
    names = content_words(" ".join([card.server, *(name for name, _ in card.tools)]))
    server = content_words(card.server)
    of_card = (word_counts(whole), character_counts(whole), word_counts(names), character_counts(server))
    return of_card, [(word_counts(words), character_counts(words)) for words in tools]


def _best_tools(scores: Floats, owners: NDArray[np.intp], found: Candidates) -> tuple[Floats, NDArray[np.intp]]:
    """Return for each agent the score and the place of its best allowed tool; the place is -1 without one."""
    best_scores = np.full(len(found.names), -np.inf, dtype=np.float32)
    np.maximum.at(best_scores, owners[found.allowed], scores[found.allowed])
    best = np.full(len(found.names), -1, dtype=np.intp)
    hits = np.flatnonzero(found.allowed & (scores == best_scores[owners]))
    best[owners[hits][::-1]] = hits[::-1]  # the first of equal ones
    return best_scores, best


def _best_products(cards: Sequence[CardVectors], vectors: Sequence[Vector]) -> Floats:
    """Return each text's product with the vector that fits it best: an agent is needed for one sentence, not for all.

    Without BLAS, whose threads cost more than they gain for a few vectors.
    """
    asked = [np.asarray(vector, dtype=np.float32) for vector in vectors]
    products: list[Floats] = []
    for batch in batched(cards, _BATCH):
        components = np.concatenate([card.components for card in batch], dtype=np.float32)
        scales = np.concatenate([card.scales for card in batch])
        products.append(scales * np.stack([np.einsum("ij,j->i", components, one) for one in asked]).max(axis=0))
    return np.concatenate(products)


def _z_scores(values: Floats) -> Floats:
    deviation = float(values.std())
    return (values - values.mean()) / deviation if deviation > _FLAT else np.zeros_like(values)
