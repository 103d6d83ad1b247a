"""The pipeline of a task: prompt built, executed, reviewed, recorded; a rejected attempt is repeated with feedback."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import cast

from brain.agents.turn.agent_runtime import (
    AgentRuntime,
    AttemptOutput,
    FinishedCall,
    TaskExecution,
    done_lines,
    result_calls,
    trial_calls,
)
from brain.agents.turn.prompt_building import begin, feedback
from brain.agents.turn.reflection import Reviewer, ReviewResult
from brain.agents.turn.task_facts import lost_tools, task_facts
from brain.interrupts.budget import OUT_OF_TIME
from brain.interrupts.requests import NOT_APPROVED, REPEAT_REFUSED
from brain.planning.plan_validation import with_refusals
from brain.run.context import RunContext
from brain.run.recorder import emit_text
from brain.skills.generalization import MadeCall
from brain.skills.memory import FinishedTask, Lesson, SkillMemory
from brain.skills.skill import PromptSkill
from brain.state import SkillRecord, TaskDispatch, TaskOutcome, ToolUse
from starling.core.errors import (
    BudgetExhaustedError,
    DeadlineExceededError,
    JournalDivergedError,
    ModelError,
    OutcomeUnknownError,
    RuntimeFailedError,
    RuntimeUnavailableError,
)
from starling.core.events.run_events import TaskResult, TaskStart
from starling.core.llm import Message
from starling.core.run_document.document import Fact, RecalledSkill
from starling.core.tools import DoneCall
from starling.core.tracing import Attributes, SpanKind, Tracer

_SUMMARY_CHARS = 280
_QUOTED_CHARS = 400
_HASH_CHARS = 12  # as versions of teams are listed
_CREWAI_MISSING = (
    "CrewAI isn't installed, so agents that ask for it are executed by the native runtime. Install "
    "`starling-swarm[crewai]` on the workers."
)
_GOES_ON = " The run goes on: it plans what is left anew, or answers with the results so far."
_FAILURES = (
    ModelError,
    JournalDivergedError,
    RuntimeFailedError,
    RuntimeUnavailableError,
    OutcomeUnknownError,
    DeadlineExceededError,
    BudgetExhaustedError,
)


@dataclass(frozen=True, slots=True)
class _Reason:
    """Why a task failed; `unknown` where it may be done nevertheless."""

    text: str
    code: str
    unknown: bool = False


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Takes one task from dispatch to outcome. A failure is an outcome, never a success.

    Agents whose card asks for it use `crewai_runtime`, which is None where CrewAI isn't installed. Of the others,
    agents without tools use `text_runtime`, all others `tool_runtime`. An agent is shown up to `history_messages` of
    the conversation, and to skills of similar tasks where there is a memory of them. Trials leave that memory alone.
    """

    tool_runtime: AgentRuntime
    text_runtime: AgentRuntime
    reviewer: Reviewer
    tracer: Tracer
    history_messages: int
    memory: SkillMemory | None = None
    crewai_runtime: AgentRuntime | None = None
    team_runtime: AgentRuntime | None = None  # None where agents can't be teams
    architect_runtime: AgentRuntime | None = None  # None where no teams can be built
    call_runtime: AgentRuntime | None = None  # of runs that are one tool call

    async def run(self, context: RunContext, dispatch: TaskDispatch) -> TaskOutcome:
        """Return the outcome of the task, from the journal if it had ended before a crash."""
        path = dispatch["path"]
        recorded = context.journal.find(path, "result")
        if recorded is not None:
            return TaskOutcome(**recorded)
        name = f"task {dispatch['task']['id']}"
        with self.tracer.span(name, SpanKind.AGENT, lambda: _dispatch_attributes(context, dispatch)) as span:
            execution, outcome = await self._execute(context, dispatch)
            lesson = await self._lesson(execution, outcome) if execution else Lesson()
            if execution and context.trial and not context.trial.of_run:
                outcome["calls"] = trial_calls(execution)
            span.set(lambda: _outcome_attributes(outcome))
            if outcome["status"] == "failed":
                span.fail(outcome["reason"])
        if context.close_inside is not None and outcome["status"] == "failed":  # perhaps before it was all resumed
            await context.close_inside(path)
        context.ledger.attempts.end(path, outcome)
        context.journal.record(path, "result", outcome)
        context.recorder.emit(result_event(outcome, path))
        context.skills.add(lesson)
        return outcome

    async def _execute(
        self, context: RunContext, dispatch: TaskDispatch
    ) -> tuple[TaskExecution, TaskOutcome] | tuple[None, TaskOutcome]:
        """Return the outcome, and the execution unless the agent wasn't there."""
        path, name = dispatch["path"], dispatch["task"]["agent"]
        card = context.roster.get(name)
        if card is None:
            return None, _failed(dispatch, _Reason(f"There is no agent {name!r}.", "agent_unavailable"))
        if card.degraded and not context.journal.knows(path, "context"):  # a task that has begun is continued
            return None, _failed(dispatch, _Reason(card.degraded, "agent_unavailable"))
        execution = TaskExecution(context, card, dispatch, path)
        why, attempt = _Reason("It was rejected without a reason.", "rejected"), 0
        try:
            for attempt in range(1, context.allowance.max_attempts + 1):
                produced, review = await self._attempt(execution, attempt)
                if review.approved:
                    execution.result_uses, execution.has_verdict = produced.uses, review.has_verdict
                    return execution, _with_uncertain(context, _approved(execution, produced, review, attempt), path)
                why = _rejection(execution, produced, review)
                if produced.unable or (execution.card.star and context.ledger.uncertain(path)):
                    break  # a team that works again must not do what may be done
                execution.rejected_for = review.reasons
                context.ledger.attempts.reject(path, attempt, review.reasons)
        except _FAILURES as error:
            then = _GOES_ON if isinstance(error, JournalDivergedError) else ""
            context.recorder.warn(error.code, f"{error}{then}", execution.task_id)
            late, unknown = context.budget.deadline.passed, isinstance(error, OutcomeUnknownError)
            text = f"{OUT_OF_TIME} {error}" if late and not isinstance(error, DeadlineExceededError) else str(error)
            why = _Reason(text, DeadlineExceededError.code if late and not unknown else error.code, unknown)
        why = replace(why, text=with_refusals(why.text, execution.refused).strip())
        tools = _tools(execution.uses) + _tools_inside(execution.inner)
        failed = _with_uncertain(context, _failed(dispatch, why, attempt, tools), path)
        if execution.refused:
            failed["refused"] = execution.refused
        context.ledger.attempts.end(path, failed)
        if done := done_lines(context.ledger.done(path, execution.attempt)):
            failed["done"] = done
        return execution, failed

    async def _lesson(self, execution: TaskExecution, outcome: TaskOutcome) -> Lesson:
        """Add the skills that the task had to its outcome; return what it adds to the memory of skills."""
        memory = self._memory(execution)
        if memory is None or not execution.card.tools or execution.card.star:
            return Lesson()
        done = finished_task(execution, outcome)
        if execution.skills:
            outcome["skills"] = [
                SkillRecord(id=skill.id, task=skill.template, followed=was_followed(execution, done, skill))
                for skill in execution.skills
            ]
        return Lesson() if execution.context.trial else await memory.lesson(done)

    def _memory(self, execution: TaskExecution) -> SkillMemory | None:
        trial, is_call = execution.context.trial, execution.context.run.call is not None
        return self.memory if (trial is None or trial.of_run) and not is_call else None

    async def _attempt(self, execution: TaskExecution, attempt: int) -> tuple[AttemptOutput, ReviewResult]:
        """Execute and review once; there is no review where the agent says that it can't do the task."""
        execution.attempts_begun_at.append(len(execution.uses))
        execution.notes.clear()  # those of a rejected attempt don't count
        if attempt == 1:
            self._choose_runtime(execution)
            await begin(execution, self.history_messages, self._memory(execution))
        _begin_attempt(execution, attempt)  # durable together with what was journalled
        with self.tracer.span(f"attempt {attempt}", SpanKind.CHAIN, lambda: {"starling.attempt": attempt}) as span:
            produced = await self._runtime(execution).attempt(execution)
            span.set(lambda: {"output": produced.output, "starling.unable": produced.unable or None})
            if produced.unable:
                return produced, ReviewResult(reasons=(produced.output,))
            return produced, await self.reviewer.review(execution, produced, attempt)

    def _choose_runtime(self, execution: TaskExecution) -> None:
        """Set the runtime of a task: that of its card, or the one that began it. Raises RuntimeUnavailableError."""
        recorded = execution.context.journal.find(execution.path, "context")
        if recorded is not None:
            execution.runtime = recorded.get("runtime", "native")
            if execution.runtime == "crewai" and self.crewai_runtime is None:
                raise RuntimeUnavailableError(execution.path, execution.runtime)
        elif self.crewai_runtime is not None:
            execution.runtime = execution.card.runtime
        elif execution.card.runtime != "native":
            execution.context.recorder.warn_once("crewai_missing", _CREWAI_MISSING)

    def _runtime(self, execution: TaskExecution) -> AgentRuntime:
        if execution.runtime == "crewai" and self.crewai_runtime is not None:
            return self.crewai_runtime
        card = execution.card
        if execution.context.run.call and self.call_runtime is not None:
            return self.call_runtime
        if card.star and self.team_runtime is not None:
            return self.team_runtime
        if card.is_architect and self.architect_runtime is not None:
            return self.architect_runtime
        has_no_tools = card.kind == "builtin" or (card.kind in ("custom", "member") and not card.tools)
        return self.text_runtime if has_no_tools else self.tool_runtime


def _rejection(execution: TaskExecution, produced: AttemptOutput, review: ReviewResult) -> _Reason:
    """Return why an attempt is not a result: the errors of its calls rather than what the agent wrote about them."""
    failed = execution.failed_calls
    text = " ".join(review.reasons)
    if produced.unable and execution.card.is_prompted:  # others say themselves why they are unable
        quoted = f"“{text[:_QUOTED_CHARS]}”"
        said = f"No tool was called; the agent wrote: {quoted}" if not execution.uses else f"The agent wrote: {quoted}"
        text = "" if failed else said
    errors = [
        use for use in failed if use.outcome.code not in (NOT_APPROVED, REPEAT_REFUSED) and use.outcome.text not in text
    ]
    whole = " ".join([text, *(f"{use.name} failed: {use.outcome.text[:_QUOTED_CHARS]}" for use in errors)])
    code = failed[-1].outcome.code if failed else produced.code or ("unable" if produced.unable else "rejected")
    return _Reason(whole.strip(), code or "tool_error")


def _begin_attempt(execution: TaskExecution, attempt: int) -> None:
    """Emit once that an attempt begins, and send the one before it back; the first one's journal entry is its context.

    In a resumed run the agent reads again what it was told then; entries of earlier versions are empty.
    """
    journal, path = execution.context.journal, execution.path
    if not journal.knows(path, "context", attempt - 1):
        agent = execution.dispatch["task"]["agent"]
        execution.context.recorder.emit(TaskStart(task_id=execution.task_id, agent=agent, path=path, attempt=attempt))
    if attempt == 1:
        return
    recorded = journal.find(path, "context", attempt - 1)
    if recorded is None:
        execution.done = execution.context.ledger.done(path, execution.attempt)
        text = feedback(execution.rejected_for, execution.done)
        data = {"rejected_for": list(execution.rejected_for), "done": [asdict(call) for call in execution.done]}
        journal.record(path, "context", {"feedback": text, **data}, attempt - 1)
    else:
        execution.done = [DoneCall(**call) for call in recorded.get("done", ())]
        text = recorded.get("feedback") or feedback(execution.rejected_for, ())
    execution.messages.append(Message("user", text))


def _approved(execution: TaskExecution, produced: AttemptOutput, review: ReviewResult, attempts: int) -> TaskOutcome:
    """Return the outcome of an approved attempt; the text of the review replaces one that was streamed."""
    done: list[ToolUse] = [{"tool": one.name, "status": "succeeded"} for one in execution.own_done]
    tools = _tools(produced.uses or produced.earlier) or done
    if execution.dispatch["whole_plan"] and not tools and review.output != produced.output:
        context = execution.context
        emit_text(context.recorder, f"{execution.path}.fixed.{context.run.fence}", review.output)
    outcome = TaskOutcome(
        task_id=execution.task_id,
        agent=execution.card.name,
        status="approved",
        output=review.output,
        reason="",
        attempts=attempts,
        tools=tools + _tools_inside([result.outcome for result in produced.inner]),
    )
    if degraded := [*produced.degraded, *lost_tools(execution)]:
        outcome["degraded"] = degraded
    if calls := result_calls(produced, review.output):
        outcome["result_calls"] = calls
    if facts := task_facts(execution, produced):
        outcome["facts"] = facts
    return {**outcome, "artifacts": list(execution.kept.values())} if execution.kept else outcome


def _with_uncertain(context: RunContext, outcome: TaskOutcome, path: str) -> TaskOutcome:
    """Add the calls that may have been done: a failed task that has some isn't tried again."""
    if not (uncertain := context.ledger.uncertain(path)):
        return outcome
    found = cast("TaskOutcome", {**outcome, "uncertain": uncertain})
    return {**found, "unknown": True} if outcome["status"] == "failed" else found


def _tools(uses: Sequence[FinishedCall]) -> list[ToolUse]:
    return [{"tool": use.name, "status": use.outcome.status} for use in uses]


def _tools_inside(outcomes: Sequence[TaskOutcome]) -> list[ToolUse]:
    return [use for outcome in outcomes for use in outcome["tools"]]


def _failed(dispatch: TaskDispatch, why: _Reason, attempts: int = 0, tools: Sequence[ToolUse] = ()) -> TaskOutcome:
    task = dispatch["task"]
    outcome = TaskOutcome(
        task_id=task["id"],
        agent=task["agent"],
        status="failed",
        output="",
        reason=why.text,
        attempts=attempts,
        tools=list(tools),
        code=why.code,
    )
    return {**outcome, "unknown": True} if why.unknown else outcome


def _dispatch_attributes(context: RunContext, dispatch: TaskDispatch) -> Attributes:
    task = dispatch["task"]
    card = context.roster.get(task["agent"])
    team = f"{card.star.name}@{card.star.hash[:_HASH_CHARS]}" if card and card.star else None
    return {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": task["agent"],
        "starling.task_id": task["id"],
        "starling.path": dispatch["path"],
        "agent_name": task["agent"],
        "team_version": team,
        "tags": [f"agent_name:{task['agent']}", *([f"team_version:{team}"] if team else [])],
        "input": task["task"],
    }


def _outcome_attributes(outcome: TaskOutcome) -> Attributes:
    tools = list(dict.fromkeys(use["tool"] for use in outcome["tools"]))
    return {
        "starling.status": outcome["status"],
        "starling.attempts": outcome["attempts"],
        "tool_usage": tools,
        "tags": [f"tool_usage:{tool}" for tool in tools],
        "output": outcome["output"] or outcome["reason"],
    }


def result_event(outcome: TaskOutcome, path: str, *, inherited: bool = False) -> TaskResult:
    """Return the event of a task that ended; `inherited` if it did in the run that this is a fork of."""
    text = outcome["output"] or outcome["reason"]
    return TaskResult(
        task_id=outcome["task_id"],
        agent=outcome["agent"],
        path=path,
        attempt=max(1, outcome["attempts"]),
        status=outcome["status"],
        summary=text if len(text) <= _SUMMARY_CHARS else text[: _SUMMARY_CHARS - 1] + "…",
        artifacts=[record["id"] for record in outcome.get("artifacts", ())],
        skills=[RecalledSkill(skill["id"], skill["task"], skill["followed"]) for skill in outcome.get("skills", ())],
        code=outcome.get("code"),
        inherited=inherited,
        facts=[Fact(**fact) for fact in outcome.get("facts", ())],
    )


def finished_task(execution: TaskExecution, outcome: TaskOutcome) -> FinishedTask:
    """Return what is remembered of a task: only succeeded calls of servers' tools count."""
    dispatch, own = execution.dispatch, {tool.full_name for tool in execution.card.tools}
    calls = [
        MadeCall(use.name, use.arguments, use.outcome.text)
        for use in execution.result_uses
        if use.name in own and use.outcome.status == "succeeded" and not use.repeated
    ]
    return FinishedTask(
        tenant=execution.context.run.tenant,
        path=execution.path,
        card=execution.card,
        request=dispatch["input_request"],
        task=execution.task,
        recalled=execution.skills,
        calls=calls,
        output=outcome["output"],
        code=outcome.get("code", "rejected"),
        results=[result["output"] for result in dispatch["needed"]],
        seen=[use.outcome.text for use in execution.uses],
        uncertain=bool(outcome.get("uncertain")),
        has_verdict=execution.has_verdict,
    )


def was_followed(execution: TaskExecution, done: FinishedTask, skill: PromptSkill) -> bool:
    """Whether the approved attempt, or any of a failed task, made a skill's calls in order, even failed ones."""
    if done.output:
        return done.followed(skill)
    return any(skill.was_followed([(use.name, use.arguments) for use in uses]) for uses in execution.uses_by_attempt)
