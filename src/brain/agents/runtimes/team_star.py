"""The star of a team inside a run: executed within the run's budget, journal and checkpoints."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from langgraph.errors import GraphDrained

from brain.interrupts.budget import Meter, RunBudget
from brain.lifecycle.citations import without_citations
from brain.registry.cards import AgentCard, Roster
from brain.retrieval.search import AgentSearch
from brain.run.context import RunContext
from brain.state import GraphState, TaskOutcome, approved, is_answered_directly
from starling.core.clock import Clock, Deadline
from starling.core.errors import SuspendedError
from starling.core.teams.stars import MAIN_STAR, StarSpec


class StarExecution(Protocol):
    """Executes a star to its end."""

    async def run(self, spec: StarSpec, context: RunContext, initial: GraphState) -> GraphState:
        """Return the state that it ends in. Raises SuspendedError, GraphDrained."""
        ...


@dataclass(frozen=True, slots=True)
class TeamStars:
    """Executes the stars of teams with `stars`, each in the context of its run, narrowed to the team."""

    stars: StarExecution
    clock: Clock

    def context(self, outer: RunContext, card: AgentCard, path: str) -> RunContext:
        """Return the context of a team's star: the run's, narrowed to the team's members, limits and path."""
        star = card.star or MAIN_STAR
        recorder, budget = outer.recorder.inside(path), self._budget(outer, star, path)
        roster = Roster(card.members)
        decisions = min(outer.allowance.supervisor_calls, star.limits.iterations or outer.allowance.supervisor_calls)
        return replace(
            outer,
            allowance=replace(outer.allowance, supervisor_calls=decisions),
            roster=roster,
            search=AgentSearch(outer.run.tenant, outer.search.roster, roster),
            recent_agents=(),
            recorder=recorder,
            model=replace(outer.model, recorder=recorder, budget=budget),
            budget=budget,
            path=path,
            teams=(*outer.teams, star.name),
        )

    async def run(self, card: AgentCard, context: RunContext, initial: GraphState) -> GraphState:
        """Return the state that the star ends in.

        Raises SuspendedError while a member waits for an answer, or while this process drains.
        """
        try:
            return await self.stars.run(card.star or MAIN_STAR, context, initial)
        except GraphDrained:
            raise SuspendedError from None  # the tasks beside it end their own step first

    def _budget(self, outer: RunContext, star: StarSpec, path: str) -> RunBudget:
        """Return what is left of the run's budget, and not more than the team's limits."""
        whole, seconds = outer.budget, star.limits.seconds
        deadline = whole.deadline if seconds is None else Deadline(self.clock, whole.deadline.cap(seconds))
        meter = Meter(tokens=outer.journal.tokens_inside(path), whole=whole.meter)
        return RunBudget(deadline, meter, whole.interrupts, star.limits.tokens, whole)


def star_report(state: GraphState) -> Mapping[str, Any]:
    """Return what a star came to, as JSON: its answer, whether it is one, and the outcomes of its tasks."""
    failed = bool(state.get("failure")) or not (approved(state) or is_answered_directly(state))
    tasks = {task["id"]: task["task"] for task in state["tasks"]}
    codes = [outcome.get("code", "") for outcome in state["results"] if outcome["status"] == "failed"]
    code = state.get("failure_code", "") or (codes[-1] if codes else "")
    return {"reply": state["reply"], "failed": failed, "code": code, "outcomes": state["results"], "tasks": tasks}


def why_failed(report: Mapping[str, Any]) -> str:
    """Return why a team has no answer: why each member failed, as its last try says it."""
    outcomes: Sequence[TaskOutcome] = report["outcomes"]
    reasons = {outcome["agent"]: outcome["reason"] for outcome in outcomes if outcome["status"] == "failed"}
    return " ".join(f"{member}: {reason}" for member, reason in reasons.items()) or report["reply"]


def answer_text(report: Mapping[str, Any]) -> str:
    """Return a team's answer without its sources: they are results inside the team, which nobody outside can see."""
    outputs = [outcome["output"] for outcome in report["outcomes"] if outcome["status"] == "approved"]
    return without_citations(report["reply"], len(outputs), outputs)
