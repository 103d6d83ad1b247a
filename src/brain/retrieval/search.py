"""Searches for agents: what they are made in, what they find, and the port that makes them."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from brain.registry.cards import AgentCard, Roster


@dataclass(frozen=True, slots=True)
class AgentSearch:
    """What a search is made in: `roster` is all that a tenant sees of an epoch, its index is kept for later searches.

    `candidates` are the agents and tools that may be found.
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


@dataclass(frozen=True, slots=True)
class Ranking:
    """The agents that fit best, best first; `warning` says why vectors weren't used, where they should have been."""

    agents: Sequence[RankedAgent]
    warning: str = ""


class AgentRanker(Protocol):
    """Ranks agents and tools by how well they fit a text."""

    async def rank(self, search: AgentSearch, text: str, limit: int) -> Ranking:
        """Return the candidates that fit `text` best."""
        ...

    async def rank_tools(self, search: AgentSearch, card: AgentCard, text: str, limit: int) -> list[str]:
        """Return the names of those tools of an agent that fit `text` best."""
        ...

    async def close(self) -> None:
        """Close connections to the embedder."""
        ...


class DeferredAgentRanker:
    """Builds its ranker in a thread when it is first needed: what ranks imports numpy, which starting needn't."""

    def __init__(self, build: Callable[[], AgentRanker]) -> None:
        self._build = build
        self._built: AgentRanker | None = None
        self._building = asyncio.Lock()

    async def rank(self, search: AgentSearch, text: str, limit: int) -> Ranking:
        return await (await self._ranker()).rank(search, text, limit)

    async def rank_tools(self, search: AgentSearch, card: AgentCard, text: str, limit: int) -> list[str]:
        return await (await self._ranker()).rank_tools(search, card, text, limit)

    async def close(self) -> None:
        if self._built:
            await self._built.close()

    async def _ranker(self) -> AgentRanker:
        async with self._building:
            if self._built is None:
                self._built = await asyncio.to_thread(self._build)
            return self._built
