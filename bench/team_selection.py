"""How well teams that `offline:rules` designs have the servers that a goal needs, and how often it reports a gap.

Each goal is designed as a build does it: split, searched, selected, and written by the rules. No model is asked.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Final

from pydantic import BaseModel

from architect.design.designer import Designed, design_team
from architect.team_world import TeamWorld
from bench.embedders import static_embedder
from bench.figures import Figure
from bench.harness import BenchSetup
from bench.labelled_texts import Request, RequestSet, metatool, stabletoolbench
from brain.agents.runtimes.architect import rendered
from brain.prompts import prompt as prompt_of
from brain.prompts import response_schema
from brain.registry.cards import AgentCard, Roster
from brain.retrieval.agent_finder import AgentFinder
from brain.retrieval.search import AgentSearch
from starling.core.clock import SystemClock
from starling.core.llm import ModelRequest, ModelRole
from starling.core.teams.building import BuildRequest, Candidate, Section
from starling.core.tool_calls import Effect
from starling.infra.llm.offline_model import OfflineModel
from tests.support.in_memory_build import InMemoryBuild

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


@dataclass(kw_only=True)
class _Build(InMemoryBuild):
    """A build that searches as runs do, and whose designer is `offline:rules`."""

    search: AgentSearch
    ranker: AgentFinder
    designed: Sequence[str] = ()  # the servers of the members

    async def ask[D: BaseModel](self, step: str, prompt: str, sections: Sequence[Section], document: type[D]) -> D:
        messages = prompt_of(prompt).fill(sections=rendered(sections))
        reply = await OfflineModel().respond(
            ModelRequest(ModelRole.REASONING, messages, response=response_schema(prompt, document))
        )
        answer = json.loads(reply.content)
        self.designed = [member["server"] for member in answer.get("members", ())]
        return document.model_validate(answer)

    async def candidates(self, step: str, texts: Sequence[str], limit: int) -> Sequence[Sequence[Candidate]]:
        return [await self.ranked(text, limit) for text in texts]

    async def ranked(self, text: str, limit: int) -> list[Candidate]:
        ranking = await self.ranker.rank(self.search, text, limit)
        if ranking.warning:
            raise RuntimeError(ranking.warning)
        cards = self.search.candidates.cards
        return [
            Candidate(one.name, "", cards[one.name].description, cards[one.name].tools, one.comparable_score, one.tool)
            for one in ranking.agents
        ]


@dataclass(frozen=True, slots=True)
class _Designer:
    ranker: AgentFinder
    roster: Roster

    async def design(self, goal: str, without: str = "") -> tuple[Designed, _Build]:
        """Return the team for what can be served of a goal by all servers but one, and the build."""
        left = Roster({name: card for name, card in self.roster.cards.items() if name != without})
        tools = [tool for card in left.cards.values() for tool in card.tools]
        build = _Build(tools, search=AgentSearch("bench", self.roster, left), ranker=self.ranker)
        world = TeamWorld({name: {tool.name: tool.effect for tool in card.tools} for name, card in left.cards.items()})
        return await design_team(BuildRequest(goal=goal, partial=True), world, None, build), build


async def measure(setup: BenchSetup) -> list[Figure]:
    """Measure all requests that need more than one server: as they are, and without one that was selected rightly."""
    figures = list[Figure]()
    for name, load in _SETS.items():
        setup.say(f"Servers of designed teams, {name}")
        requests = load()
        goals = [request for request in requests.requests if len(request.agents) > 1]
        roster = Roster({name: _card(card) for name, card in requests.roster.cards.items()})
        finder = AgentFinder(static_embedder(), SystemClock(), patience=_PATIENCE_SECONDS)
        figures += await _figures(name, _Designer(finder, roster), goals)
    return figures


def _card(card: AgentCard) -> AgentCard:
    """Return a card whose tools may change anything: their effects are not known."""
    return replace(card, tools=tuple(replace(tool, effect=Effect.UNSAFE) for tool in card.tools))


async def _figures(name: str, designer: _Designer, goals: Sequence[Request]) -> list[Figure]:
    designs = [await designer.design(goal.text) for goal in goals]
    found = [Scores.of(build.designed, goal.agents) for (_, build), goal in zip(designs, goals, strict=True)]
    first = [
        [one.server for one in await build.ranked(goal.text, 2)]
        for (_, build), goal in zip(designs, goals, strict=True)
    ]
    simple = [Scores.of(two, goal.agents) for two, goal in zip(first, goals, strict=True)]
    removed = [
        bool((await designer.design(goal.text, without=server))[0].missing)
        for (_, build), goal in zip(designs, goals, strict=True)
        for server in sorted(goal.agents.intersection(build.designed))
    ]
    false = fmean(bool(designed.missing) for designed, _ in designs)
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
        Figure(f"architect.{name}.gap_reported", fmean(removed), "", 1, f"all; of goals with all servers {false:.1%}"),
        Figure(f"architect.{name}.gap_false", false, "", 1, "all"),
    ]
