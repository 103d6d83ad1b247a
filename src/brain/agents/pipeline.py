"""What every task goes through: briefed, executed, reviewed, recorded; rejected work goes back with feedback."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from brain.agents.native_runtime import NativeRuntime
from brain.agents.prompt_building import brief, feedback
from brain.agents.reflection import ReviewResult, reflect
from brain.agents.runtime import AgentRuntime, AttemptOutput, TaskExecution
from brain.agents.text_runtime import TextRuntime
from brain.context import OUT_OF_TIME, RunContext
from brain.planning.plan_validation import with_refusals
from brain.registry.cards import AgentCard
from brain.state import Dispatch, TaskOutcome, ToolUse
from brain.stream_buffer import StreamBuffer
from starling.core.errors import (
    BudgetExhaustedError,
    DeadlineExceededError,
    JournalDivergedError,
    ModelError,
    OutcomeUnknownError,
    StarlingError,
)
from starling.core.events import TaskResult, TaskStart
from starling.core.tracing import Attributes, SpanKind

_SUMMARY_CHARS = 280
_FAILURES = (ModelError, JournalDivergedError, OutcomeUnknownError, DeadlineExceededError, BudgetExhaustedError)

type Runtimes = Callable[[AgentCard], AgentRuntime]


def default_runtimes(card: AgentCard) -> AgentRuntime:
    """Return the runtime of an agent: agents without tools of their own write, all others call."""
    writes = card.kind == "builtin" or (card.kind == "custom" and not card.tools)
    return TextRuntime() if writes else NativeRuntime()


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Takes one task from dispatch to outcome. A failure is an outcome, never a success."""

    runtimes: Runtimes = field(default=default_runtimes)

    async def run(self, context: RunContext, dispatch: Dispatch) -> TaskOutcome:
        """Return what the task came to, from the journal where it had ended before a crash."""
        path = dispatch["path"]
        recorded = context.journal.find(path, "result")
        if recorded is not None:
            return TaskOutcome(**recorded)
        with context.tracer.span(f"task {dispatch['task']['id']}", SpanKind.AGENT, lambda: _given(dispatch)) as span:
            outcome = await self._attempts(context, dispatch, path)
            span.set(lambda: _came_to(outcome))
            if outcome["status"] == "failed":
                span.fail(outcome["reason"])
        context.journal.record(path, "result", outcome)
        context.emit(_task_result(outcome, path))
        return outcome

    async def _attempts(self, context: RunContext, dispatch: Dispatch, path: str) -> TaskOutcome:
        card = context.roster.get(dispatch["task"]["agent"])
        if card is None or (card.degraded and not context.journal.knows(path, "context")):  # what has begun goes on
            reason = card.degraded if card else f"There is no agent {dispatch['task']['agent']!r}."
            return _failed(dispatch, reason, attempts=0)
        work = TaskExecution(context, card, dispatch, path)
        runtime = self.runtimes(card)
        reason, unknown, attempt = "", False, 0
        try:
            for attempt in range(1, context.allowance.max_attempts + 1):
                produced, judgement = await self._attempt(work, runtime, attempt)
                if judgement.approved:
                    _retype(work, produced, judgement)
                    return _approved(work, produced, judgement, attempt)
                reason = " ".join(judgement.reasons)
                if produced.unable:
                    break
                work.messages.append(feedback(judgement.reasons))
        except _FAILURES as error:
            context.warn(error.code, str(error), work.task_id)
            reason, unknown = _reason(context, error), isinstance(error, OutcomeUnknownError)
            unknown |= context.ledger.in_doubt(path)
        reason = reason or "It was rejected without a reason."
        failed = _failed(dispatch, with_refusals(reason, work.refused), attempts=attempt, unknown=unknown)
        return {**failed, "refused": work.refused} if work.refused else failed

    async def _attempt(
        self, work: TaskExecution, runtime: AgentRuntime, attempt: int
    ) -> tuple[AttemptOutput, ReviewResult]:
        """One try: executed, then reviewed. An agent that says that it can't is believed."""
        _announce(work, attempt)
        if attempt == 1:
            work.messages = brief(work)
        with work.context.tracer.span(
            f"attempt {attempt}", SpanKind.CHAIN, lambda: {"starling.attempt": attempt}
        ) as span:
            produced = await runtime.attempt(work)
            span.set(lambda: {"output": produced.output, "starling.unable": produced.unable or None})
            if produced.unable:
                return produced, ReviewResult(approved=False, output="", reasons=(produced.output,))
            return produced, await reflect(work, produced, attempt)


def _reason(context: RunContext, error: StarlingError) -> str:
    """Say why a task failed; whatever goes wrong once the time is up goes wrong because of that."""
    late = context.deadline.passed and not isinstance(error, DeadlineExceededError)
    return f"{OUT_OF_TIME} {error}" if late else str(error)


def _announce(work: TaskExecution, attempt: int) -> None:
    """Tell the stream once that an attempt begins; what the first one is told goes to the journal with it."""
    journal, task = work.context.journal, work.dispatch["task"]
    if journal.knows(work.path, "context", attempt - 1):
        return
    work.context.emit(TaskStart(task_id=task["id"], agent=task["agent"], path=work.path, attempt=attempt))
    if attempt > 1:
        journal.record(work.path, "context", {}, attempt - 1)


def _retype(work: TaskExecution, produced: AttemptOutput, judgement: ReviewResult) -> None:
    """Put what the review made of a text in the place of what was typed out."""
    if work.dispatch["whole_plan"] and not produced.uses and judgement.output != produced.output:
        with StreamBuffer(work.context, f"{work.path}.fixed.{work.context.run.fence}") as buffer:
            buffer.write(judgement.output)


def _approved(work: TaskExecution, produced: AttemptOutput, judgement: ReviewResult, attempts: int) -> TaskOutcome:
    uses: Sequence[ToolUse] = [{"tool": use.name, "status": use.outcome.status} for use in produced.uses]
    outcome = TaskOutcome(
        task_id=work.task_id,
        agent=work.card.name,
        status="approved",
        output=judgement.output,
        reason="",
        attempts=attempts,
        tools=list(uses),
    )
    return {**outcome, "artifacts": list(work.kept.values())} if work.kept else outcome


def _failed(dispatch: Dispatch, reason: str, *, attempts: int, unknown: bool = False) -> TaskOutcome:
    task = dispatch["task"]
    outcome = TaskOutcome(
        task_id=task["id"],
        agent=task["agent"],
        status="failed",
        output="",
        reason=reason,
        attempts=attempts,
        tools=[],
    )
    return {**outcome, "unknown": True} if unknown else outcome


def _given(dispatch: Dispatch) -> Attributes:
    task = dispatch["task"]
    return {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": task["agent"],
        "starling.task_id": task["id"],
        "starling.path": dispatch["path"],
        "agent_name": task["agent"],
        "tags": [f"agent_name:{task['agent']}"],
        "input": task["task"],
    }


def _came_to(outcome: TaskOutcome) -> Attributes:
    tools = list(dict.fromkeys(use["tool"] for use in outcome["tools"]))
    found_by = {"agent_name": [outcome["agent"]], "tool_usage": tools}
    return {
        "starling.status": outcome["status"],
        "starling.attempts": outcome["attempts"],
        "tool_usage": tools,
        "tags": [f"{name}:{value}" for name, values in found_by.items() for value in values],
        "output": outcome["output"],
    }


def _task_result(outcome: TaskOutcome, path: str) -> TaskResult:
    text = outcome["output"] or outcome["reason"]
    return TaskResult(
        task_id=outcome["task_id"],
        agent=outcome["agent"],
        path=path,
        attempt=max(1, outcome["attempts"]),
        status=outcome["status"],
        summary=text if len(text) <= _SUMMARY_CHARS else text[: _SUMMARY_CHARS - 1] + "…",
        artifacts=[record["id"] for record in outcome.get("artifacts", ())],
    )
