"""One index of the cards that searches have asked for, ranked by how well those of a roster fit a query."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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

_WEIGHTS: Final = {"words": 0.5, "characters": 0.5, "names": 0.25, "server": 0.5}
_OF_TOOLS: Final = ("words", "characters", "meaning")  # what an agent's best tool counts for, beside its card
_RARITY: Final = 3  # the power of the inverse document frequency
_DENSE_WEIGHT: Final = 1.5
_EVEN_WORDS: Final = 16  # of a request, with which vectors have just this weight: the fewer, the less words say
_FLAT: Final = 1e-6  # a standard deviation below which all scores count as equal
_OF_TENANT: Final = ("custom", "team", "member")  # kinds of agents
_BATCH: Final = 256  # cards
_UNUSED_SECONDS: Final = 3_600.0  # after which a card's row may be dropped


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
class Candidates:
    """The agents that may be found, by name, with their rows, and vectors of all of them or of none.

    `allowed` says of each of `CardTexts.all` if it is that of a tool that counts; no whole card is.
    """

    cards: Mapping[str, CardTexts]
    rows: NDArray[np.intp]
    allowed: NDArray[np.bool_]
    vectors: Mapping[CardTexts, CardVectors] = field(default_factory=dict[CardTexts, CardVectors])


@dataclass(frozen=True, slots=True)
class AgentIndex:
    """A row for each card, and the postings of `_WEIGHTS`, in which each card has its `CardTexts.all`."""

    rows: Mapping[CardTexts, int] = field(default_factory=dict[CardTexts, int])
    used_at: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))  # by a search, by its clock
    counts: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, np.intp))  # of a row's texts
    postings: Sequence[Postings] = (Postings(0, np.zeros(0, np.uint64)),) * len(_WEIGHTS)

    def extended(self, cards: Iterable[CardTexts], now: float) -> "AgentIndex":
        """Return the index with these cards, used now; only the features of new ones are counted.

        If most of all cards weren't used for an hour, they are left out, and the others are counted anew.
        """
        used = dict(zip(self.rows, self.used_at, strict=True)) | dict.fromkeys(cards, now)
        recent = [card for card, at in used.items() if now - at <= _UNUSED_SECONDS]
        if 2 * len(recent) < len(used):
            return AgentIndex().extended(recent, now)
        if not (new := [card for card in used if card not in self.rows]):
            return self
        parts = [[one] for one in self.postings]
        for batch in batched(new, _BATCH):
            features = [_features(card) for card in batch]
            for number, part in enumerate(parts):
                texts = [counts for of_card in features for counts in of_card[number]]
                part.append(Postings.of(texts, sum(one.size for one in part)))
        return AgentIndex(
            {card: number for number, card in enumerate(used)},
            np.array(list(used.values())),
            np.concatenate([self.counts, np.array([1 + len(card.tools) for card in new], np.intp)]),
            [Postings.joined(part) for part in parts],
        )

    def rank(self, text: str, vectors: Sequence[Vector], found: Candidates, limit: int) -> list[RankedAgent]:
        """Return the candidates that fit a text best, best first; `vectors` are those of its sentences, if any."""
        if not found.cards:
            return []
        counts = self.counts[found.rows]
        cards, owners = np.cumsum(counts) - counts, np.repeat(np.arange(len(counts)), counts)
        parts: dict[str, Floats] = {}
        best = cards  # the text of each agent's best tool, or its own
        for name, weight, scores in self._similarities(text, vectors, found):
            of_cards = scores[cards]
            parts[f"{name}_card"] = weight * _z_scores(of_cards)
            if name in _OF_TOOLS:
                of_tools = np.where(found.allowed, scores, -np.inf)
                of_best = np.maximum.reduceat(of_tools, cards)
                parts[f"{name}_tool"] = weight * _z_scores(np.where(of_best > -np.inf, of_best, of_cards))
                hits = np.flatnonzero(of_tools == of_best[owners])
                best = hits[np.searchsorted(hits, cards)]  # the first of equal ones
        totals = np.sum(list(parts.values()), axis=0)
        names, tools = list(found.cards), _tool_names(found)
        return [
            RankedAgent(
                names[at],
                round(float(totals[at]), 4),
                {name: round(float(scores[at]), 4) for name, scores in parts.items()},
                tools[int(best[at])],
            )
            for at in map(int, np.argsort(-totals, kind="stable")[:limit])
        ]

    def rank_tools(self, text: str, vectors: Sequence[Vector], found: Candidates, limit: int) -> list[str]:
        """Return the names of the candidates' tools that fit best, best first."""
        allowed = np.flatnonzero(found.allowed)
        if not len(allowed):
            return []
        scores = [
            weight * _z_scores(scores[allowed])
            for name, weight, scores in self._similarities(text, vectors, found)
            if name in _OF_TOOLS
        ]
        best = allowed[np.argsort(-np.sum(scores, axis=0), kind="stable")]
        return list(dict.fromkeys(_tool_names(found)[at] for at in map(int, best)))[:limit]

    def _similarities(
        self, text: str, vectors: Sequence[Vector], found: Candidates
    ) -> Iterable[tuple[str, float, Floats]]:
        """Yield name, weight, and the similarities of all texts of the candidates, for each kind of features."""
        counts = self.counts[found.rows]
        places = ranges((np.cumsum(self.counts) - self.counts)[found.rows], counts)
        cards, texts = np.zeros((2, int(self.counts.sum())), np.bool_)
        texts[places] = found.allowed
        cards[places[np.cumsum(counts) - counts]] = True
        words = content_words(text)
        asked = (word_counts(words), character_counts(words)) * 2
        for (name, weight), features, postings in zip(_WEIGHTS.items(), asked, self.postings, strict=True):
            among = cards | texts if name in _OF_TOOLS else cards
            yield name, weight, postings.similarities(features, among, _RARITY)[places]
        if vectors and found.vectors:
            weight = _DENSE_WEIGHT * min(2.0, max(0.5, (_EVEN_WORDS / max(len(words), 1)) ** 0.5))
            yield "meaning", weight, _best_products([found.vectors[one] for one in found.cards.values()], vectors)


def _features(card: CardTexts) -> Sequence[Sequence[FeatureCounts]]:
    """Return the features of each text of a card, for each of its postings. Only the whole card has names."""
    texts = [content_words(text) for text in card.all()]
    server, tools = content_words(card.server), content_words(" ".join(name for name, _ in card.tools))
    none = [FeatureCounts.of(())] * len(card.tools)
    return (
        [word_counts(words) for words in texts],
        [character_counts(words) for words in texts],
        [word_counts([*server, *tools]), *none],
        [character_counts(server), *none],
    )


def _tool_names(found: Candidates) -> list[str]:
    """Return the name of the tool of each text, empty for a whole card."""
    return [name for card in found.cards.values() for name in ("", *(name for name, _ in card.tools))]


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
