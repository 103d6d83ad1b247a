"""The centre of the star: plans, dispatches what is ready, asks the model only where something is to decide."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langgraph.runtime import Runtime

from brain.context import OUT_OF_BUDGET, OUT_OF_TIME, RunContext
from brain.interrupts.clarification import (
    MAY_ASK,
    MUST_ASSUME,
    ask,
    clarification_update,
    elements,
    may_ask,
    question_in,
    state_with_answer,
)
from brain.interrupts.requests import interrupt_on_suspension
from brain.planning.decision import DECISION, OPEN_DECISION, Decision, OpenDecision
from brain.planning.plan_validation import (
    UNREACHED,
    PlanningContext,
    RejectedTask,
    accepted_tasks,
    decision_errors,
    degraded_parts,
    progress_of,
)
from brain.planning.structured_output import ask_for_document
from brain.prompts import Xml, element, lines, prompt
from brain.state import (
    ConversationMessage,
    DegradedPart,
    GraphState,
    Routing,
    TaskRecord,
    Update,
    after,
    approved,
    failures,
    merge_tasks,
    ready_tasks,
)
from starling.core.errors import BudgetExhaustedError, DeadlineExceededError, JournalDivergedError, ModelError
from starling.core.events import Plan, PlannedTask, Route, SelectedAgent
from starling.core.llm import ModelRequest, ModelRole
from starling.core.runs import Step
from starling.core.tracing import Attributes, SpanKind

_RESULT_CHARS = 1_500
_RETRIES = 2
_STEPS_AROUND = 3  # preprocess, the last look of the supervisor, and qa


@dataclass(frozen=True, slots=True)
class _Seen:
    """The roster, and whether the decision may be a question."""

    agents: Xml
    may_ask: bool


@dataclass(frozen=True, slots=True)
class Supervisor:
    """Decides what comes next. Ready tasks of a sound plan and finished plans need no model."""

    async def __call__(self, state: GraphState, runtime: Runtime[RunContext]) -> Update:
        """Return the update that names the next tasks; where there are none, QA comes next."""
        context = runtime.context
        routing = state["routing"]
        if routing["decisions"] and context.deadline.passed:
            return _finish(state, OUT_OF_TIME)
        if routing["decisions"] and context.meter.exhausted:
            return _finish(state, OUT_OF_BUDGET)
        if routing["decisions"] and not _to_decide(state):
            return _go_on(context, state)
        if routing["decisions"] >= context.allowance.supervisor_calls:
            context.warn("limit_reached", "The limit of decisions is reached: answering with what is there.")
            return _finish(state)
        with interrupt_on_suspension():
            return await _decide(context, state)


def _to_decide(state: GraphState) -> bool:
    """Whether a task failed since the last decision: then the plan isn't sound any more."""
    return failures(state) > state["routing"]["failures_seen"]


def _go_on(context: RunContext, state: GraphState) -> Update:
    ready = ready_tasks(state)
    if not ready:
        return _finish(state)
    if _rounds_left(context, state) <= 0:
        context.warn("limit_reached", "The limit of steps is reached: answering with what is there.")
        return _finish(state)
    path, number = f"supervisor/{state['routing']['decisions']}", len(state["results"])
    told = context.journal.knows(path, "result", number)
    if not told:
        context.journal.record(path, "result", {}, number)
    return _dispatch(context, ready, state["routing"], told=told)


async def _decide(context: RunContext, state: GraphState) -> Update:
    number = state["routing"]["decisions"] + 1
    path = f"supervisor/{number}"
    ground = _ground(context, state)
    seen = _seen(context, state, path)
    request = _request(context, state, seen)
    document = OpenDecision if seen.may_ask else Decision
    with context.tracer.span("supervisor", SpanKind.AGENT, lambda: _asked(state, number)) as span:
        try:
            decision = await ask_for_document(
                context, path, 0, request, document, lambda said: decision_errors(said, ground)
            )
        except (ModelError, JournalDivergedError, DeadlineExceededError, BudgetExhaustedError) as error:
            span.fail(str(error))
            context.warn(error.code, str(error))
            return _give_up(context, state, str(error))
        span.set(lambda: _decided(decision))
    if isinstance(decision, OpenDecision) and question_in(decision):
        return await _clarified(context, state, decision, path)
    return _apply(context, state, decision, path)


async def _clarified(context: RunContext, state: GraphState, decision: OpenDecision, path: str) -> Update:
    """Decide again, knowing the user's answer. Raises SuspendedError while there is none."""
    update = clarification_update(state, decision, ask(context, decision, path))
    return update | await _decide(context, state_with_answer(state, update))


def _asked(state: GraphState, number: int) -> Attributes:
    return {"gen_ai.agent.name": "supervisor", "starling.decision": number, "input": state["input_request"]}


def _decided(decision: Decision) -> Attributes:
    return {
        "starling.is_request_satisfied": decision.is_request_satisfied,
        "starling.is_in_loop": decision.is_in_loop,
        "starling.is_progress_being_made": decision.is_progress_being_made,
        "starling.selected_agents": [task.agent for task in decision.selected_agents],
        "output": decision.model_dump(),
    }


def _ground(context: RunContext, state: GraphState) -> PlanningContext:
    rounds, at_once = max(0, _rounds_left(context, state)), context.limits.parallel_tasks
    return PlanningContext(context.roster, state["tasks"], state["results"], rounds, at_once)


def _rounds_left(context: RunContext, state: GraphState) -> int:
    """Return how often tasks can still be sent out: each round takes a step of theirs and one of the supervisor."""
    return (context.limits.graph_steps - _STEPS_AROUND) // 2 - state["routing"].get("rounds", 0)


def _request(context: RunContext, state: GraphState, seen: _Seen) -> ModelRequest:
    allowance = context.allowance
    messages = prompt("supervisor").fill(
        user_request=state["input_request"],
        session_history=_history(state["messages"]),
        asking=MAY_ASK if seen.may_ask else MUST_ASSUME,
        clarifications=elements(state.get("clarifications", [])),
        agents=seen.agents,
        current_plan=lines(map(_task_element, state["tasks"])),
        state_context=_state_context(context, state),
    )
    return ModelRequest(
        role=allowance.role(ModelRole.REASONING),
        messages=messages,
        response=OPEN_DECISION if seen.may_ask else DECISION,
        temperature=allowance.supervisor_temperature,
        max_tokens=allowance.max_tokens,
        prompt=prompt("supervisor").used,
    )


def _seen(context: RunContext, state: GraphState, path: str) -> _Seen:
    """What held when this decision was first asked for, so that a resumed run asks the same."""
    recorded = context.journal.find(path, "context")
    if recorded is not None:
        return _Seen(Xml(recorded["agents"]), recorded.get("may_ask", False))
    seen = _Seen(context.roster.elements(), may_ask(context, state))
    context.journal.record(path, "context", {"agents": seen.agents} | ({"may_ask": True} if seen.may_ask else {}))
    return seen


def _history(messages: Sequence[ConversationMessage]) -> Xml:
    return lines(element("message", said["content"], role=said["role"]) for said in messages)


def _task_element(task: TaskRecord) -> Xml:
    return element(
        "task",
        task["task"],
        id=task["id"],
        agent=task["agent"],
        status=task["status"],
        depends_on=" ".join(task["depends_on"]),
    )


def _state_context(context: RunContext, state: GraphState) -> str:
    """Results so far, the blackboard and what governance says, as JSON; empty parts are left out."""
    content: Mapping[str, Any] = {
        "results": [
            {
                "task_id": result["task_id"],
                "status": result["status"],
                "output": result["output"][:_RESULT_CHARS],
                "reason": result["reason"],
            }
            | ({"outcome_unknown": True} if result.get("unknown") else {})
            for result in state["results"]
        ],
        "global_state": state["global_state"],
        "hint": context.allowance.hint,
    }
    return json.dumps({key: value for key, value in content.items() if value}, ensure_ascii=False)


def _apply(context: RunContext, state: GraphState, decision: Decision, path: str) -> Update:
    """Take over what is sound of a decision; what isn't becomes a degraded part."""
    tasks, rejected = accepted_tasks(decision, _ground(context, state))
    update = _taken_over(state, decision, tasks, rejected)
    told = context.journal.knows(path, "result")
    if not told:
        context.journal.record(path, "result", {})
        _tell_plan(context, after(state, update), decision)
    if _answered(decision, after(state, update)):
        return update | _finish(after(state, update), unreached="")
    routing, tripped = _breaker(after(state, update), tasks)
    if tripped and not told:
        context.warn(
            "circuit_breaker", "The same agents were asked again without progress: answering with what is there."
        )
    return update | _onward(context, after(state, update | {"routing": routing}), tasks, told=told, stop=tripped)


def _onward(context: RunContext, state: GraphState, tasks: Sequence[TaskRecord], *, told: bool, stop: bool) -> Update:
    ready = ready_tasks(state)
    if stop or not ready:
        return _finish(state)
    dispatched = _dispatch(context, ready, state["routing"], told=told)
    return dispatched | {"tasks": merge_tasks(tasks, dispatched["tasks"])}


def _answered(decision: Decision, state: GraphState) -> bool:
    return _is_direct(decision) or (decision.is_request_satisfied and bool(approved(state)))


def _is_direct(decision: Decision) -> bool:
    return bool(decision.reply.strip()) and not decision.selected_agents


def _taken_over(
    state: GraphState, decision: Decision, tasks: Sequence[TaskRecord], rejected: Sequence[RejectedTask]
) -> Update:
    routing = state["routing"]
    return {
        "tasks": list(tasks),
        "plan": decision.plan,
        "assumptions": list(dict.fromkeys([*state["assumptions"], *decision.assumptions])),
        "degraded": _degraded(state["degraded"], decision, tasks, rejected),
        "reply": "" if decision.selected_agents else decision.reply.strip(),
        "routing": routing
        | {
            "decisions": routing["decisions"] + 1,
            "plan_version": routing["plan_version"] + 1,
            "failures_seen": failures(state),
            "reason": decision.thought_process,
            "direct": _is_direct(decision),
        },
    }


def _degraded(
    known: Sequence[DegradedPart], decision: Decision, tasks: Sequence[TaskRecord], rejected: Sequence[RejectedTask]
) -> list[DegradedPart]:
    """Return the degraded parts as they are after a decision, without those that it serves or refuses anew."""
    decided = {task["id"] for task in tasks} | {item.task_id for item in rejected}
    parts = [part for part in known if part.get("task_id") not in decided]
    news = [DegradedPart(part=item.part, reason=item.reason) for item in decision.unserved]
    news += [DegradedPart(part=item.part, reason=item.reason, task_id=item.task_id) for item in rejected]
    return [*parts, *(part for part in news if part not in parts)]


def _tell_plan(context: RunContext, state: GraphState, decision: Decision) -> None:
    version = state["routing"]["plan_version"]
    context.emit(
        Plan(
            version=version,
            plan=decision.plan,
            tasks=[PlannedTask.model_validate(task) for task in state["tasks"]],
            thought_process=decision.thought_process,
        )
    )
    context.writer.step(
        Step(
            type="plan",
            description="; ".join(decision.plan) or decision.thought_process,
            metadata={
                "version": version,
                "is_request_satisfied": decision.is_request_satisfied,
                "is_in_loop": decision.is_in_loop,
                "is_progress_being_made": decision.is_progress_being_made,
            },
        )
    )


def _breaker(state: GraphState, tasks: Sequence[TaskRecord]) -> tuple[Routing, bool]:
    """Count routes to agents that were routed to before, since anything last moved; two are enough."""
    routing = state["routing"]
    agents = {task["agent"] for task in tasks}
    progress = progress_of(state)
    if progress != routing["progress"]:
        return {**routing, "progress": progress, "routed": sorted(agents), "retry_count": 0}, False
    retries = routing["retry_count"] + bool(agents & set(routing["routed"]))
    routed = sorted(agents | set(routing["routed"]))
    return {**routing, "routed": routed, "retry_count": retries}, retries >= _RETRIES


def _dispatch(context: RunContext, ready: Sequence[TaskRecord], routing: Routing, *, told: bool = False) -> Update:
    """Give ready tasks to their agents and begin to open the sessions that these will need."""
    chosen = ready[: context.limits.parallel_tasks]
    if not told:
        selected = [SelectedAgent(agent=task["agent"], task_id=task["id"]) for task in chosen]
        context.emit(Route(selected_agents=selected, reason=routing["reason"]))
    for task in chosen:
        card = context.roster.get(task["agent"])
        for server in card.servers if card else ():
            context.gateway.warm(server)
    running: list[TaskRecord] = [{**task, "status": "running"} for task in chosen]
    counted: Routing = {**routing, "rounds": routing.get("rounds", 0) + 1}
    return {"tasks": running, "routing": counted, "next_step": [task["id"] for task in chosen]}


def _finish(state: GraphState, unreached: str = UNREACHED) -> Update:
    """Nothing is left that could or should run: what failed, or wasn't reached, is a degraded part."""
    return {"next_step": [], "degraded": degraded_parts(state, unreached)}


def _give_up(context: RunContext, state: GraphState, reason: str) -> Update:
    """No decision can be had: answer with what is approved, or say plainly that planning failed."""
    failure = "" if approved(state) else f"The request couldn't be planned. {reason}"
    unreached = OUT_OF_TIME if context.deadline.passed else UNREACHED
    return _finish(state, unreached) | {"failure": failure}
