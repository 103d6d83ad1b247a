"""An index of agents and their tools, ranked by how well they fit a query."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from brain.retrieval.search import RankedAgent
from brain.retrieval.text_similarity import (
    FeatureCounts,
    Floats,
    SparseIndex,
    character_features,
    content_words,
    word_features,
)
from starling.core.embeddings import Vector

_SPARSE_WEIGHT, _DENSE_WEIGHT = 0.5, 1.5
_FLAT: Final = 1e-6  # a standard deviation below which all scores count as equal


@dataclass(frozen=True, slots=True)
class AgentTexts:
    """What an agent is found by: the text of its whole card, and the text of each of its tools by name."""

    name: str
    card: str
    tools: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Query:
    """A text that agents are ranked by. `vectors` are those of its sentences; without any, only words count."""

    words: FeatureCounts
    characters: FeatureCounts
    vectors: Sequence[Vector] = ()

    @classmethod
    def of(cls, text: str, vectors: Sequence[Vector] = ()) -> "Query":
        words = content_words(text)
        return cls(FeatureCounts.of(word_features(words)), FeatureCounts.of(character_features(words)), vectors)


class AgentIndex:
    """Ranks the agents of `texts`. `vectors` has the vector of each text that could be embedded."""

    def __init__(
        self, texts: Sequence[AgentTexts], features: Mapping[str, Query], vectors: Mapping[str, Vector]
    ) -> None:
        self._names = [agent.name for agent in texts]
        self._row = {name: row for row, name in enumerate(self._names)}
        self._tools = [(agent.name, tool) for agent in texts for tool in agent.tools]
        counts = [len(agent.tools) for agent in texts]
        self._owners = np.repeat(np.arange(len(texts)), counts)
        cards = [agent.card for agent in texts]
        tools = [text for agent in texts for text in agent.tools.values()]
        self._words = [SparseIndex([features[text].words for text in of]) for of in (cards, tools)]
        self._characters = [SparseIndex([features[text].characters for text in of]) for of in (cards, tools)]
        complete = all(text in vectors for text in (*cards, *tools))
        self._card_vectors = _matrix([vectors[text] for text in cards]) if complete else None
        self._tool_vectors = _matrix([vectors[text] for text in tools]) if complete else None

    def rank(self, query: Query, candidates: Mapping[str, Set[str]], limit: int) -> list[RankedAgent]:
        """Return the best candidates, best first. `candidates` has the tools that count, by the agent's name.

        Names that the index doesn't have are ignored.
        """
        rows = np.array([self._row[name] for name in candidates if name in self._row], dtype=np.intp)
        if not len(rows):
            return []
        allowed = np.array([tool in candidates.get(name, ()) for name, tool in self._tools], dtype=bool)
        parts: dict[str, Floats] = {}
        best = np.full(len(self._names), -1, dtype=np.intp)
        for name, weight, card, tool in self._similarities(query):
            best_scores, best = self._best_tools(tool, allowed)
            parts[f"{name}_card"] = weight * _z_scores(card[rows])
            parts[f"{name}_tool"] = weight * _z_scores(np.where(best >= 0, best_scores, card)[rows])
        totals = np.sum(list(parts.values()), axis=0)
        order = np.argsort(-totals, kind="stable")[:limit]
        return [
            RankedAgent(
                self._names[rows[at]],
                round(float(totals[at]), 4),
                {name: round(float(scores[at]), 4) for name, scores in parts.items()},
                self._tools[best[rows[at]]][1] if best[rows[at]] >= 0 else "",
            )
            for at in order
        ]

    def rank_tools(self, query: Query, agent: str, candidates: Set[str], limit: int) -> list[str]:
        """Return the candidates among an agent's tools that fit best, best first."""
        places = [at for at, (name, tool) in enumerate(self._tools) if name == agent and tool in candidates]
        rows = np.array(places, dtype=np.intp)
        if not places:
            return []
        totals = np.sum([weight * _z_scores(tool[rows]) for _, weight, _, tool in self._similarities(query)], axis=0)
        return [self._tools[rows[at]][1] for at in np.argsort(-totals, kind="stable")[:limit]]

    def _similarities(self, query: Query) -> list[tuple[str, float, Floats, Floats]]:
        """Return name, weight, and the similarities of cards and of tools, for each kind of features."""
        sparse = (("words", self._words, query.words), ("characters", self._characters, query.characters))
        found = [
            (name, _SPARSE_WEIGHT, cards.similarities(counts), tools.similarities(counts))
            for name, (cards, tools), counts in sparse
        ]
        if query.vectors and self._card_vectors is not None and self._tool_vectors is not None:
            cards, tools = (_best_products(of, query.vectors) for of in (self._card_vectors, self._tool_vectors))
            found.append(("meaning", _DENSE_WEIGHT, cards, tools))
        return found

    def _best_tools(self, scores: Floats, allowed: NDArray[np.bool_]) -> tuple[Floats, NDArray[np.intp]]:
        """Return for each agent the score and the place of its best allowed tool; the place is -1 without one."""
        best_scores = np.full(len(self._names), -np.inf, dtype=np.float32)
        np.maximum.at(best_scores, self._owners[allowed], scores[allowed])
        best = np.full(len(self._names), -1, dtype=np.intp)
        hits = np.flatnonzero(allowed & (scores == best_scores[self._owners]))
        best[self._owners[hits][::-1]] = hits[::-1]  # the first of equal ones
        return best_scores, best


def _matrix(vectors: Sequence[Vector]) -> Floats:
    rows = [np.asarray(vector, dtype=np.float32) for vector in vectors]
    return np.stack(rows) if rows else np.zeros((0, 1), np.float32)


def _best_products(matrix: Floats, vectors: Sequence[Vector]) -> Floats:
    """Return each row's product with the vector that fits it best: an agent is needed for one sentence, not for all.

    Without BLAS, whose threads cost more than they gain for a few vectors.
    """
    products = [np.einsum("ij,j->i", matrix, np.asarray(vector, dtype=np.float32)) for vector in vectors]
    return np.stack(products).max(axis=0)


def _z_scores(values: Floats) -> Floats:
    deviation = float(values.std())
    return (values - values.mean()) / deviation if deviation > _FLAT else np.zeros_like(values)
