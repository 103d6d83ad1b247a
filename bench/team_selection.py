"""How well the servers that a goal needs are selected for a team, and how often a missing one is noticed: no model."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Final

from architect.design.goal_parts import parts_of
from architect.design.selection import SHORTLIST, PartFit, name_of, select
from bench.embedders import static_embedder
from bench.figures import Figure
from bench.harness import BenchSetup
from bench.labelled_texts import Request, RequestSet, metatool, stabletoolbench
from brain.registry.cards import Roster
from brain.retrieval.agent_finder import AgentFinder
from brain.retrieval.search import AgentRanker, AgentSearch, RankedAgent
from starling.core.clock import SystemClock
from starling.core.teams.building import Candidate
from starling.core.tool_calls import Effect

_PATIENCE_SECONDS: Final = 600  # for the vectors of all agents
_SETS: Final[Mapping[str, Callable[[], RequestSet]]] = {
    "stabletoolbench": lambda: stabletoolbench(811),
    "metatool": lambda: metatool(199),
}
_SCORES: Final = ("precision", "recall", "f1", "exact")
_GAPS: Final = ("gap_reported", "gap_false")
NAMES: Final = tuple(f"architect.{name}.{score}" for name in _SETS for score in (*_SCORES, *_GAPS))


@dataclass(frozen=True, slots=True)
class Scores:
    """How well the servers that were selected for one goal are those that it needs, each between 0 and 1."""

    precision: float
    recall: float
    f1: float
    exact: float

    @classmethod
    def of(cls, selected: Sequence[str], needed: frozenset[str]) -> "Scores":
        right = len(needed & set(selected))
        precision, recall = right / max(len(selected), 1), right / len(needed)
        f1 = 2 * precision * recall / (precision + recall) if right else 0.0
        return cls(precision, recall, f1, float(needed == frozenset(selected)))


@dataclass(frozen=True, slots=True)
class _Selector:
    ranker: AgentRanker
    search: AgentSearch

    async def select(self, goal: str) -> Sequence[PartFit]:
        parts = parts_of(goal)
        rankings = [await self.ranked(text, SHORTLIST) for text in (goal, *parts)]
        return select(parts, rankings[0], rankings[1:], len(self.search.candidates.cards))

    async def ranked(self, text: str, limit: int) -> list[Candidate]:
        ranking = await self.ranker.rank(self.search, text, limit)
        if ranking.warning:
            raise RuntimeError(ranking.warning)
        return [self._candidate(one) for one in ranking.agents]

    def _candidate(self, found: RankedAgent) -> Candidate:
        """Return a candidate; the effects of its tools are not known, so they may change anything."""
        card = self.search.candidates.cards[found.name]
        tools = [replace(tool, effect=Effect.UNSAFE) for tool in card.tools]
        return Candidate(found.name, "", card.description, tools, found.comparable_score, found.tool)

    def without(self, server: str) -> "_Selector":
        cards = self.search.candidates.cards
        left = Roster({name: card for name, card in cards.items() if name != server})
        return replace(self, search=replace(self.search, candidates=left))


async def measure(setup: BenchSetup) -> list[Figure]:
    """Measure all requests that need more than one server: as they are, and without one that was selected rightly."""
    figures = list[Figure]()
    for name, load in _SETS.items():
        setup.say(f"Selection of servers, {name}")
        requests = load()
        goals = [request for request in requests.requests if len(request.agents) > 1]
        finder = AgentFinder(static_embedder(), SystemClock(), patience=_PATIENCE_SECONDS)
        selector = _Selector(finder, AgentSearch("bench", requests.roster, requests.roster))
        figures += await _figures(name, selector, goals)
    return figures


async def _figures(name: str, selector: _Selector, goals: Sequence[Request]) -> list[Figure]:
    selections = [await selector.select(goal.text) for goal in goals]
    found = [Scores.of(_chosen(one), goal.agents) for one, goal in zip(selections, goals, strict=True)]
    first = [[one.server for one in await selector.ranked(goal.text, 2)] for goal in goals]
    simple = [Scores.of(two, goal.agents) for two, goal in zip(first, goals, strict=True)]
    removed = [
        part.text in _gaps(await selector.without(part.candidates[0].server).select(goal.text))
        for selection, goal in zip(selections, goals, strict=True)
        for part in selection
        if part.fit == "good" and part.candidates[0].server in goal.agents
    ]
    false = fmean(bool(_gaps(selection)) for selection in selections)
    return [
        *(
            Figure(
                f"architect.{name}.{score}",
                fmean(getattr(one, score) for one in found),
                "",
                fmean(getattr(one, score) for one in simple),
                "the first two servers found for the goal",
            )
            for score in _SCORES
        ),
        Figure(f"architect.{name}.gap_reported", fmean(removed), "", false, "goals with all servers"),
        Figure(f"architect.{name}.gap_false", false, "", fmean(removed), "parts without their server"),
    ]


def _chosen(parts: Sequence[PartFit]) -> list[str]:
    return list(dict.fromkeys(name_of(part.candidates[0]) for part in parts if part.fit == "good"))


def _gaps(parts: Sequence[PartFit]) -> list[str]:
    return [part.text for part in parts if part.fit == "none"]
