"""Searches for agents: what they are made in, and what they find."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from brain.registry.cards import Roster

_WITHOUT_VECTORS: Final = 2.0  # ADR 0053: then twice the score says as much


@dataclass(frozen=True, slots=True)
class AgentSearch:
    """What a search is made in: `candidates` are the agents and tools that may be found.

    `roster` is all that a tenant sees of an epoch: a candidate is found by the text of its whole card there.
    """

    tenant: str
    roster: Roster
    candidates: Roster


@dataclass(frozen=True, slots=True)
class RankedAgent:
    """An agent with its score: the sum of `parts`, each the weighted z-score of one similarity among all candidates.

    `tool` is the tool that fits best, empty for an agent without tools.
    """

    name: str
    score: float
    parts: Mapping[str, float]
    tool: str

    @property
    def comparable_score(self) -> float:
        """The score on the scale that it has with vectors. Without them, only words and characters count."""
        has_vectors = any(name.startswith("meaning") for name in self.parts)
        return self.score if has_vectors else self.score * _WITHOUT_VECTORS


@dataclass(frozen=True, slots=True)
class Ranking:
    """The agents that fit best, best first; `warning` says why vectors weren't used, where they should have been."""

    agents: Sequence[RankedAgent]
    warning: str = ""
