"""The runtime of teams: a task, or a case of a trial, is the request of a star of its own, inside the run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Protocol, cast

from langgraph.errors import GraphDrained

from brain.agents.turn.agent_runtime import AttemptOutput, MemberResult, TaskExecution, done_lines
from brain.blackboard import board_of
from brain.interrupts.budget import Meter, RunBudget
from brain.lifecycle.citations import without_citations
from brain.registry.cards import AgentCard, Roster
from brain.retrieval.search import AgentSearch
from brain.run.context import RunContext
from brain.run.recorder import emit_text
from brain.state import GraphState, TaskOutcome, approved, initial_state, is_answered_directly
from starling.core.clock import Clock, Deadline
from starling.core.errors import SuspendedError
from starling.core.json import digest
from starling.core.task_paths import star_path, trial_path
from starling.core.teams.proofs import TrialCall, TrialRecord, TrialVerdict
from starling.core.teams.spec import Example
from starling.core.teams.stars import MAIN_STAR, StarSpec
from starling.core.tools import Trial, TrialResult


class StarExecution(Protocol):
    """Executes a star to its end."""

    async def run(self, spec: StarSpec, context: RunContext, initial: GraphState) -> GraphState:
        """Return the state that it ends in. Raises SuspendedError, GraphDrained."""
        ...


def team_context(outer: RunContext, card: AgentCard, path: str, clock: Clock) -> RunContext:
    """Return the context of a team's star: the run's, narrowed to the team's members, limits and path."""
    star, whole = card.star or MAIN_STAR, outer.budget
    recorder, roster = outer.recorder.inside(path), Roster(card.members)
    meter = Meter(tokens=outer.journal.tokens_inside(path), whole=whole.meter)
    budget = RunBudget(_deadline(outer, star, path, clock), meter, whole.interrupts, star.limits.tokens, whole)
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


def _deadline(outer: RunContext, star: StarSpec, path: str, clock: Clock) -> Deadline:
    """Return by when a star has to end: its seconds go on where earlier lives of the run left them."""
    whole, seconds = outer.budget.deadline, star.limits.seconds
    if seconds is None:
        return whole
    used = outer.journal.seconds_inside(path)
    begun = {"begun": outer.interrupts.now().isoformat(), "used": used}
    outer.journal.record(f"{path}.star", "context", begun, outer.run.fence)
    return Deadline(clock, whole.cap(max(0.0, seconds - used)))


def _warn_of_limits(outer: RunContext, star: StarSpec) -> None:
    """Report the limits of a team that are above those of the run, which hold instead."""
    limits = (
        ("seconds", star.limits.seconds, outer.run.remaining_seconds),
        ("iterations", star.limits.iterations, outer.allowance.supervisor_calls),
        ("tokens", star.limits.tokens, outer.budget.tokens),
    )
    if over := [f"{name} {own:,.12g} (the run: {top:,.12g})" for name, own, top in limits if own and top and own > top]:
        message = (
            f"By its spec the team {star.name} has the limits {', '.join(over)}. The lower limits of the run hold."
        )
        outer.recorder.warn_once("limits_overridden", message, star.name)


async def star_report(
    stars: StarExecution, card: AgentCard, context: RunContext, initial: GraphState
) -> Mapping[str, Any]:
    """Execute a team's star; return as JSON its answer, whether it failed, what it leaves out, and its tasks' outcomes.

    Raises SuspendedError while a member waits for an answer, or while this process drains.
    """
    try:
        state = await stars.run(card.star or MAIN_STAR, context, initial)
    except GraphDrained:
        raise SuspendedError from None  # the tasks beside it end their own step first
    failed = bool(state.get("failure")) or not (approved(state) or is_answered_directly(state))
    tasks = {task["id"]: task["task"] for task in state["tasks"]}
    codes = [outcome.get("code", "") for outcome in state["results"] if outcome["status"] == "failed"]
    code = state.get("failure_code", "") or (codes[-1] if codes else "")
    said = {name: state[name] for name in ("reply", "degraded")}
    return {**said, "failed": failed, "code": code, "outcomes": state["results"], "tasks": tasks}


def why_failed(report: Mapping[str, Any]) -> str:
    """Return why a team has no answer: why each member failed, as its last try says it."""
    outcomes: Sequence[TaskOutcome] = report["outcomes"]
    reasons = {outcome["agent"]: outcome["reason"] for outcome in outcomes if outcome["status"] == "failed"}
    return " ".join(f"{member}: {reason}" for member, reason in reasons.items()) or report["reply"]


def answer_text(report: Mapping[str, Any]) -> str:
    """Return a team's answer without its sources: they are results inside the team, which are not visible outside."""
    outputs = [outcome["output"] for outcome in report["outcomes"] if outcome["status"] == "approved"]
    return without_citations(report["reply"], len(outputs), outputs)


@dataclass(frozen=True, slots=True)
class TeamRuntime:
    """Gives a task to the supervisor of a team, whose members work on it; its answer is the attempt's output."""

    stars: StarExecution
    clock: Clock

    async def attempt(self, execution: TaskExecution) -> AttemptOutput:
        """Make one attempt with the star of the agent's card, or return what an earlier process recorded of it.

        Raises SuspendedError while a member waits for an answer, or while this process drains.
        """
        execution.position += 1
        path = star_path(execution.path, execution.position)
        journal = execution.context.journal
        recorded = journal.find(f"{path}.star", "result")
        if recorded is None:
            card, dispatch = execution.card, execution.dispatch
            rejected = [cast("TaskOutcome", {**outcome, "facts": []}) for outcome in execution.inner]
            given = [*_renamed("given", dispatch["needed"]), *_renamed("earlier", rejected)]
            request = execution.task
            if execution.rejected_for:
                request += (
                    f"\n\nAn earlier answer was rejected: {' '.join(execution.rejected_for)} Do it differently. "
                    "What was done for it is among the results: what was changed stays changed, so don't repeat it."
                )
                request += "".join(f"\nDone: {line}" for line in done_lines(execution.done))
            initial: GraphState = {**initial_state(request, dispatch["messages"]), "given": given}
            initial["global_state"] = board_of(given)
            if not journal.knows(f"{path}/supervisor/1", "context"):  # no earlier life has begun it
                _warn_of_limits(execution.context, card.star or MAIN_STAR)
            context = team_context(execution.context, card, path, self.clock)
            context = replace(context, after_failure=execution.attempt.after_failure)
            recorded = await star_report(self.stars, card, context, initial)
            journal.record(f"{path}.star", "result", recorded)
        return _output(execution, recorded)


def _renamed(source: str, outcomes: Sequence[TaskOutcome]) -> list[TaskOutcome]:
    """Return outcomes of tasks outside the star, or of an earlier attempt, under ids that no task of it has."""
    return [
        {**outcome, "task_id": f"{source}{number}:{outcome['task_id']}"}
        for number, outcome in enumerate(outcomes, start=1)
    ]


def _output(execution: TaskExecution, report: Mapping[str, Any]) -> AttemptOutput:
    outcomes: list[TaskOutcome] = report["outcomes"]
    execution.inner += outcomes
    execution.kept |= {record["id"]: record for outcome in outcomes for record in outcome.get("artifacts", ())}
    execution.refused += [reason for outcome in outcomes for reason in outcome.get("refused", ())]
    if report["failed"]:
        return AttemptOutput(why_failed(report), unable=True, code=report["code"])
    approved_ones = [outcome for outcome in outcomes if outcome["status"] == "approved"]
    inner = tuple(MemberResult(report["tasks"].get(one["task_id"], ""), one) for one in approved_ones)
    text = answer_text(report)
    if execution.dispatch["whole_plan"] and not any(outcome["tools"] for outcome in approved_ones):
        emit_text(execution.context.recorder, execution.message_id, text)
    return AttemptOutput(text, inner=inner, degraded=tuple(report.get("degraded", ())))


@dataclass(frozen=True, slots=True)
class TeamTrial:
    """Has teams do the inputs of cases, with their fixtures in place of calls that may change something."""

    stars: StarExecution
    clock: Clock

    async def run(self, execution: TaskExecution, card: AgentCard, case: Example, name: str) -> TrialRecord:
        """Return what the team of `card` does with a case, or what an earlier process recorded of that.

        `name`, `case1`, is unique in the task, and the same when the task is resumed. The star has what is left of the
        task's budget. Raises SuspendedError while a member waits for an answer, or while this process drains, and
        JournalDivergedError where another team or case was tried under this name.
        """
        path = trial_path(execution.path, name)
        tried = digest([card.star.hash if card.star else card.name, case.model_dump(mode="json")])
        journal, place = execution.context.journal, f"{path}.star"
        if (recorded := journal.find(place, "result", request_hash=tried)) is not None:
            return TrialRecord.model_validate(recorded)
        if (started := journal.find(place, "context", request_hash=tried)) is None:  # by no earlier process
            started = {"begun": self.clock.now().isoformat()}
            journal.record(place, "context", started, request_hash=tried)
        begun = datetime.fromisoformat(started["begun"])
        fixtures = tuple(TrialResult(given.tool, given.arguments, given.result) for given in case.fixtures)
        context = replace(team_context(execution.context, card, path, self.clock), trial=Trial(fixtures))
        report = await star_report(self.stars, card, context, initial_state(case.input))
        seconds = max(0.0, (self.clock.now() - begun).total_seconds())
        record = _record(path, report, context.budget.meter.tokens.total, round(seconds, 3))
        journal.record(place, "result", record.model_dump(mode="json"), request_hash=tried)
        return record


def _record(path: str, report: Mapping[str, Any], tokens: int, seconds: float) -> TrialRecord:
    outcomes: list[TaskOutcome] = report["outcomes"]
    kept = [record["name"] for outcome in outcomes for record in outcome.get("artifacts", ())]
    return TrialRecord(
        path=path,
        reply="" if report["failed"] else answer_text(report),
        failure=why_failed(report) if report["failed"] else "",
        calls=tuple(
            TrialCall(**call, member=outcome["agent"]) for outcome in outcomes for call in outcome.get("calls", ())
        ),
        verdicts=tuple(
            TrialVerdict(member=outcome["agent"], status=outcome["status"], reason=outcome["reason"])
            for outcome in outcomes
        ),
        artifacts=tuple(dict.fromkeys(kept)),
        tokens=tokens,
        seconds=seconds,
    )
