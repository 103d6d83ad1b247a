"""The supervisor node: plans, dispatches ready tasks, and asks a model only where there is something to decide."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any, Protocol, cast

from langgraph.runtime import Runtime

from brain.durability.inheritance import decision_record
from brain.interrupts.budget import OUT_OF_TIME
from brain.interrupts.clarification import (
    answer_schema,
    clarification_update,
    may_ask,
    misplaced_question,
    question_in,
    question_request,
)
from brain.interrupts.requests import interrupt_on_suspension
from brain.planning.decision import Assignment, Decision, DecisionInputs, OpenDecision, decision_request
from brain.planning.decision_update import adopt, count_selection, is_direct_reply, is_final, is_open
from brain.planning.plan_changes import plan_changes
from brain.planning.plan_validation import (
    UNREACHED,
    PlanningContext,
    accepted_tasks,
    decision_errors,
    degraded_parts,
    is_empty,
)
from brain.planning.shortlist import Shortlister
from brain.prompts import Xml
from brain.run.context import RunContext
from brain.run.plan_report import decision_attributes, report_plan, request_attributes
from brain.run.structured_output import ask_for_document
from brain.state import (
    GraphState,
    GraphTask,
    Routing,
    Update,
    after,
    approved,
    both,
    failures,
    merge_tasks,
    ready_tasks,
    undecided,
)
from starling.core.errors import (
    BudgetExhaustedError,
    DeadlineExceededError,
    JournalDivergedError,
    LLMInvalidResponse,
    ModelError,
)
from starling.core.events.run_events import Route, SelectedAgent
from starling.core.llm import Message
from starling.core.settings.schema import Limits
from starling.core.teams.stars import MAIN_STAR, StarSpec
from starling.core.tool_calls import Effect
from starling.core.tracing import SpanKind, Tracer

_NOTHING_PLANNED = (
    "The request couldn't be planned. The model was asked twice, and named no task, gave no reply and said of no part "
    "that it can't be served."
)
_GENERALIST = "generalist"
_UNPLANNED = "The request could not be planned, so no agent with tools was asked."
_NOT_REPLANNED = "Tasks failed and no others could be planned, so the answer is that of an agent without tools."
_ANSWERS = " Nothing more is planned: the run answers with the results so far."
_SEND_BACK = Message("user", "An agent has a tool for this: give it the task. Repeat `reply` only if none is needed.")
_NOT_LOOKED_UP = "Not looked up: no agent was asked for this answer."
_FIRST, _AFTER_LOOKING, _SENT_BACK = 0, 2, 4  # positions in the journal; the next one of each is for a repaired answer
_ANSWER_IN_REQUEST = "Send the request again with the answer in it."
_TEXTS_LOOKED_FOR = 8
_NO_ANSWER = (ModelError, DeadlineExceededError, BudgetExhaustedError)


class SessionWarmer(Protocol):
    """Opens sessions of servers ahead of their first call."""

    def warm(self, server: str) -> None: ...


@dataclass(frozen=True, slots=True)
class SupervisorNode:
    """Decides what comes next. Asks no model while the plan is sound, nor once it is finished."""

    limits: Limits
    shortlister: Shortlister
    sessions: SessionWarmer
    tracer: Tracer
    star: StarSpec = MAIN_STAR
    parallel_tasks: int = 8

    async def __call__(self, state: GraphState, runtime: Runtime[RunContext]) -> Update:
        """Return the update that names the next tasks; if it names none, QA comes next."""
        context = runtime.context
        routing = cast("Routing", {name: value for name, value in state["routing"].items() if name != "begins"})
        begins, decisions = state["routing"].get("begins"), routing["decisions"]
        state = {**state, "routing": routing}
        if decisions:
            if reason := context.budget.exhausted_reason:
                return _finish(state, reason)
            is_left = decisions < context.allowance.supervisor_calls
            waits = not set(undecided(state)) <= set(routing.get("undecided", ()))
            asks = (context.replans and is_left) or (waits and (is_left or not ready_tasks(state)))
            is_sound = routing.get("unplanned") or (failures(state) == routing["failures_seen"] and not asks)
            begins_task = begins == "tasks" and (ready_tasks(state) or not undecided(state))
            if begins_task or (begins is None and is_sound):
                return self._continue_plan(context, state)
            if context.assigned_agent:
                return _finish(state)
            if not is_left:
                _warn_of_limit(context, state)
                return _finish(state)
        with interrupt_on_suspension():
            return await self._decide(context, state)

    def _continue_plan(self, context: RunContext, state: GraphState) -> Update:
        ready = ready_tasks(state)
        if not ready:
            return _finish(state)
        path, number = _path(context, state["routing"]["decisions"]), len(state["results"])
        reported = context.journal.knows(path, "result", number)
        if not reported:
            context.journal.record(path, "result", {}, number)
        return self._dispatch(context, ready, state["routing"], reported=reported)

    async def _decide(self, context: RunContext, state: GraphState) -> Update:
        number = state["routing"]["decisions"] + 1
        path = _path(context, number)
        if number > 1 or context.path:
            context = context.as_now()
        if context.assigned_agent:
            request = state["input_request"]
            task = Assignment(task_id="t1", agent=context.assigned_agent, task=request)
            thought = f"The request was sent to {context.assigned_agent}."
            decision = Decision(thought_process=thought, plan=[request], selected_agents=[task])
            return self._apply(context, state, decision, path)
        failed = (context.journal.find(path, "result") or {}).get("without_model", "")
        if failed and (instead := self._without_decision(context, state, path, failed)):
            return instead
        agent = self.star.name or "supervisor"
        attributes = partial(request_attributes, agent, context, state, path)
        with self.tracer.span(f"{agent}_decision", SpanKind.AGENT, attributes) as span:
            try:
                decision = await self._decision(context, state, path)
            except (ModelError, JournalDivergedError, DeadlineExceededError, BudgetExhaustedError) as error:
                span.fail(str(error))
                then = _ANSWERS if isinstance(error, JournalDivergedError) and approved(state) else ""
                context.recorder.warn(error.code, f"{error}{then}")
                in_time = isinstance(error, ModelError) and not context.budget.exhausted_reason
                if in_time and (instead := self._without_decision(context, state, path, str(error))):
                    return instead
                unreached = OUT_OF_TIME if context.budget.deadline.passed else UNREACHED
                failure = "" if approved(state) else f"The request couldn't be planned. {error}"  # else QA answers
                return _finish(state, unreached) | {"failure": failure, "failure_code": error.code}
            span.set(lambda: decision_attributes(decision))
        if isinstance(decision, OpenDecision) and question_in(decision):
            reason = decision.thought_process or "The request can be read in more than one way."
            schema = answer_schema(self.limits.input_chars, decision.options)
            request = question_request(path, question_in(decision), reason, schema)
            update = clarification_update(state, decision, context.interrupts.answer_to(request))  # or suspends the run
            _record(context, state, update, path)
            return both(update, await self._decide(context, after(state, update)))
        return self._apply(context, state, decision, path)

    def _without_decision(self, context: RunContext, state: GraphState, path: str, error: str) -> Update | None:
        """Return what goes on without the supervisor's model, None if nothing can; the same where it is repeated.

        That are the tasks that are ready; else, where nothing is approved, the generalist gets the request, once.
        """
        routing, reported = state["routing"], context.journal.knows(path, "result")
        card, request = context.roster.get(_GENERALIST), state["input_request"]
        has_answered = approved(state) or any(result["agent"] == _GENERALIST for result in state["results"])
        if ready := ready_tasks(state):
            counted: Routing = {**routing, "decisions": routing["decisions"] + 1, "failures_seen": failures(state)}
            update = self._dispatch(context, ready, counted, reported=reported)
        elif has_answered or self.star.name or card is None or card.degraded:
            return None
        else:
            said = _NOT_REPLANNED if state["tasks"] else _UNPLANNED
            if not reported:
                context.recorder.warn("unplanned", f"{said} The generalist gets the request as it is.")
            used = {one["id"] for one in state["tasks"]}
            free = next(name for number in count(1) if (name := f"t{number}") not in used)
            task = Assignment(task_id=free, agent=_GENERALIST, task=request)
            chosen: dict[str, Any] = {"plan": [request], "selected_agents": [task], "assumptions": [said]}
            update = self._adopted(context, state, Decision(thought_process=error, **chosen), reported=reported)
            update |= {"routing": {**update["routing"], "unplanned": True}}
        _record(context, state, update, path, without_model=error)
        return update

    async def _decision(self, context: RunContext, state: GraphState, path: str) -> Decision:
        """Return the model's decision; where other agents are looked for, the one that it makes once it sees them."""
        inputs = await self._inputs(context, state, path, _FIRST, [state["input_request"]])
        decision = await self._asked(context, state, path, _FIRST, inputs)
        if inputs.may_look and (decision.look_for or await self._lacks_agents(context, path, inputs, decision)):
            texts = [state["input_request"], *decision.look_for, *decision.plan][:_TEXTS_LOOKED_FOR]
            inputs = await self._inputs(context, state, path, _AFTER_LOOKING, texts)
            try:
                second = await self._asked(context, state, path, _AFTER_LOOKING, inputs)
                decision = decision if is_empty(second) else second
            except _NO_ANSWER as error:
                if is_empty(decision):
                    raise
                context.recorder.warn(error.code, str(error))
        asks = isinstance(decision, OpenDecision) and question_in(decision)
        is_last = self.star.name or state["tasks"] or asks or not is_direct_reply(decision)
        return decision if is_last else await self._sent_back(context, state, path, inputs, decision)

    async def _lacks_agents(self, context: RunContext, path: str, inputs: DecisionInputs, decision: Decision) -> bool:
        """Whether the best agent for a step of the plan is not shown: the search for the request was uncertain.

        Never where the user is asked: the run may wait for the answer while other agents come.
        """
        knows = context.journal.knows
        if knows(path, "context", _AFTER_LOOKING):
            return True
        is_earlier = knows(path, "result") or knows(path, "answer", _SENT_BACK)  # that version searched no steps
        if is_earlier or question_in(decision):
            return False
        best = await self.shortlister.best(context.search, decision.plan[:_TEXTS_LOOKED_FOR])
        return any(f'<agent name="{name}"' not in inputs.agents for name in best)

    async def _sent_back(
        self, context: RunContext, state: GraphState, path: str, inputs: DecisionInputs, reply: Decision
    ) -> Decision:
        """Return a direct reply; where an agent certainly has a tool for it, the next decision, or the reply marked."""
        knows, text = context.journal.knows, state["input_request"]
        asked = knows(path, "answer", _SENT_BACK)
        if not asked and (knows(path, "result") or not await self.shortlister.is_certain(context.search, text)):
            return reply
        noted, second = (Message("assistant", reply.model_dump_json(include={"reply"})), _SEND_BACK), reply
        try:
            second = await self._asked(context, state, path, _SENT_BACK, replace(inputs, noted=noted))
        except _NO_ANSWER as error:
            context.recorder.warn(error.code, str(error))
        second = reply if is_empty(second) else second
        marked = {"reply": f"{second.reply.strip()}\n\n{_NOT_LOOKED_UP}"}
        return second.model_copy(update=marked) if is_direct_reply(second) else second

    async def _asked(
        self, context: RunContext, state: GraphState, path: str, position: int, inputs: DecisionInputs
    ) -> Decision:
        prompt, allowance = context.prompts["supervisor"], context.allowance
        last_plan = () if context.path else context.last_plan
        given = replace(inputs, instructions=context.instructions, last_plan=last_plan)
        request = await decision_request(prompt, self.star, state, allowance, given)
        planning = replace(self._planning_context(context, state), may_look=inputs.may_look)
        wrong = partial(misplaced_question, state, may_ask=inputs.may_ask)
        decision = await ask_for_document(
            context.model, path, position, request, OpenDecision, lambda it: wrong(it) or decision_errors(it, planning)
        )
        if misplaced := wrong(decision):
            asked = context.model.models.describe(request.role, supervisor=True)
            raise LLMInvalidResponse(asked, misplaced[0], _ANSWER_IN_REQUEST)
        return decision

    async def _inputs(
        self, context: RunContext, state: GraphState, path: str, position: int, texts: Sequence[str]
    ) -> DecisionInputs:
        """Return the agents that fit the texts and whether the user may be asked, as the journal has it if it has."""
        recorded = context.journal.find(path, "context", position)
        if recorded is not None:
            asking, looking = recorded.get("may_ask", False), recorded.get("may_look", False)
            simplify, remove = recorded.get("may_simplify", False), recorded.get("may_remove", False)
            return DecisionInputs(Xml(recorded["agents"]), asking, looking, simplify, remove)
        decisions = context.allowance.supervisor_calls
        may_ask_any = context.trial is None or context.trial.of_run
        limit = self.limits.max_clarifications if may_ask_any else 0
        asking = may_ask(context.run, state, limit=limit, decisions=decisions)
        used = {*context.recent_agents, *(task["agent"] for task in state["tasks"])}
        shortlist = await self.shortlister.choose(context.search, texts, used)
        if shortlist.warning:
            context.recorder.warn_once("embeddings_unavailable", shortlist.warning)
        looking = shortlist.is_partial and position == _FIRST
        if context.availability is not None:
            shortlist = replace(shortlist, cards=[context.availability.shown(card) for card in shortlist.cards])
        removing = any(task["status"] == "pending" for task in state["tasks"])
        inputs = DecisionInputs(shortlist.elements(), asking, looking, context.has_small_model, removing)
        flags = {"may_ask": asking, "may_look": looking, "may_simplify": inputs.may_simplify, "may_remove": removing}
        data = {"agents": str(inputs.agents)} | {name: True for name, given in flags.items() if given}
        context.journal.record(path, "context", data, position)
        return inputs

    def _apply(self, context: RunContext, state: GraphState, decision: Decision, path: str) -> Update:
        update = self._adopted(context, state, decision, reported=context.journal.knows(path, "result"))
        _record(context, state, update, path)
        return update

    def _adopted(self, context: RunContext, state: GraphState, decision: Decision, *, reported: bool) -> Update:
        planning = self._planning_context(context, state)
        tasks, rejected = accepted_tasks(decision, planning)
        update = adopt(state, decision, tasks, rejected)
        adopted = after(state, update)
        if not reported:
            changes = plan_changes(state, decision, update["tasks"], context.roster)
            report_plan(context, adopted, decision, rejected, changes)
            if left_out := planning.too_many(planning.wanted(decision)):
                most = self.limits.tasks_per_plan
                text = f"{len(left_out)} tasks are left out: a plan may have at most {most} (limits.tasks_per_plan)."
                context.recorder.warn("limit_reached", text)
        if is_final(decision, adopted):
            return update | _finish(adopted, unreached="")
        if is_empty(decision) and not adopted["tasks"]:
            return update | _finish(adopted) | {"failure": _NOTHING_PLANNED, "failure_code": "empty_plan"}
        routing = count_selection(adopted, {task["agent"] for task in tasks})
        update |= {"routing": routing}
        ready = ready_tasks(adopted)
        tripped = is_open(routing)
        if tripped and not reported:
            context.recorder.warn(
                "circuit_breaker", "The same agents were asked again without progress: answering with what is there."
            )
        if tripped or not ready:
            return update | _finish(adopted)
        dispatched = self._dispatch(context, ready, routing, reported=reported)
        return update | dispatched | {"tasks": merge_tasks(update["tasks"], dispatched["tasks"])}

    def _dispatch(self, context: RunContext, ready: Sequence[GraphTask], routing: Routing, *, reported: bool) -> Update:
        """Give ready tasks to their agents and begin to open the sessions that these will need."""
        chosen = ready[: self.parallel_tasks]
        if not reported:
            selected = [SelectedAgent(agent=task["agent"], task_id=task["id"]) for task in chosen]
            context.recorder.emit(Route(selected_agents=selected, reason=routing["reason"]))
        for card in (card for task in chosen if (card := context.roster.get(task["agent"]))):
            servers = card.servers
            if context.trial:  # it only calls tools that read
                servers = {tool.server for tool in card.tools if tool.effect is Effect.READ}
            for server in servers:
                self.sessions.warm(server)
        running: list[GraphTask] = [{**task, "status": "running"} for task in chosen]
        return {"tasks": running, "routing": routing, "next_step": [task["id"] for task in chosen]}

    def _planning_context(self, context: RunContext, state: GraphState) -> PlanningContext:
        return PlanningContext(
            context.roster,
            state["tasks"],
            state["results"],
            state["input_request"],
            most_tasks=self.limits.tasks_per_plan,
            all_agents=context.search.roster,
            switched_off=context.switched_off,
        )


def _warn_of_limit(context: RunContext, state: GraphState) -> None:
    """Warn once of the limit of decisions, however often the turn is repeated before its answer is complete."""
    path, number = _path(context, state["routing"]["decisions"]), len(state["results"])
    if not context.journal.knows(path, "result", number):
        context.journal.record(path, "result", {}, number)
        context.recorder.warn("limit_reached", "The limit of decisions is reached: answering with what is there.")


def _record(context: RunContext, state: GraphState, update: Update, path: str, *, without_model: str = "") -> None:
    """Record once what a decision changed; forks begin with that of the main star, no others are kept.

    `without_model` says why no model made it.
    """
    if not context.journal.knows(path, "result"):
        failed = {"without_model": without_model} if without_model else {}
        context.journal.record(path, "result", failed | ({} if context.path else decision_record(state, update)))


def _path(context: RunContext, number: int) -> str:
    """Return the path of a decision of the star that is executed."""
    return context.at(f"supervisor/{number}")


def _finish(state: GraphState, unreached: str = UNREACHED) -> Update:
    """Return the update that goes on to QA; what failed, or was not reached, is a degraded part."""
    return {"next_step": [], "degraded": degraded_parts(state, unreached)}
