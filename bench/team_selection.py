"""How well teams that `offline:rules` designs have the servers that a goal needs, and how often it reports a gap.

Each goal is designed as a build does it: split, searched, selected, and written by the rules. No model is asked.
Figures are those of the half of the goals that no weight of ADR 0090 was chosen on; `…_all` are those of both halves.
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
from bench.labelled_texts import Request, RequestSet, design_half, metatool, stabletoolbench
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
NAMES: Final = tuple(
    f"architect.{name}.{score}{suffix}" for name in _SETS for suffix in ("", "_all") for score in (*_SCORES, *_GAPS)
)


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
class Outcome:
    """How well the servers that were selected for one goal fit, and whether a gap is reported."""

    designed: Scores
    first_two: Scores  # of those found for the goal
    reports_gap: bool  # where nothing is removed
    reports_removed: Sequence[bool]  # where one of the servers that were selected rightly is


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

    async def outcome(self, goal: Request) -> Outcome:
        designed, build = await self.design(goal.text)
        first = [one.server for one in await build.ranked(goal.text, 2)]
        right = sorted(goal.agents.intersection(build.designed))
        removed = [bool((await self.design(goal.text, without=server))[0].missing) for server in right]
        scores = Scores.of(build.designed, goal.agents), Scores.of(first, goal.agents)
        return Outcome(*scores, bool(designed.missing), removed)


async def measure(setup: BenchSetup) -> list[Figure]:
    """Measure all requests that need more than one server: as they are, and without one that was selected rightly."""
    figures = list[Figure]()
    for name, load in _SETS.items():
        setup.say(f"Servers of designed teams, {name}")
        requests = load()
        roster = Roster({name: _card(card) for name, card in requests.roster.cards.items()})
        finder = AgentFinder(static_embedder(), SystemClock(), patience=_PATIENCE_SECONDS)
        designer = _Designer(finder, roster)
        tuned, judged = [
            [await designer.outcome(goal) for goal in design_half(requests.requests, judged=half)]
            for half in (False, True)
        ]
        figures += figures_of(name, tuned, judged)
    return figures


def figures_of(name: str, tuned: Sequence[Outcome], judged: Sequence[Outcome]) -> list[Figure]:
    """Return the figures of the judged half, and those of both halves."""
    return [*_figures(name, "", judged), *_figures(name, "_all", [*tuned, *judged])]


def _card(card: AgentCard) -> AgentCard:
    """Return a card whose tools may change anything: their effects are not known."""
    return replace(card, tools=tuple(replace(tool, effect=Effect.UNSAFE) for tool in card.tools))


def _figures(name: str, suffix: str, goals: Sequence[Outcome]) -> list[Figure]:
    false = fmean(one.reports_gap for one in goals)
    removed = fmean(reported for one in goals for reported in one.reports_removed)
    return [
        *(
            Figure(
                f"architect.{name}.{score}{suffix}",
                fmean(getattr(one.designed, score) for one in goals),
                "",
                fmean(getattr(one.first_two, score) for one in goals),
                f"the first two servers found for the goal; {len(goals)} goals",
            )
            for score in _SCORES
        ),
        Figure(f"architect.{name}.gap_reported{suffix}", removed, "", 1, f"all; of goals with all servers {false:.1%}"),
        Figure(f"architect.{name}.gap_false{suffix}", false, "", 1, f"all of {len(goals)} goals"),
    ]
