"""What is reported of a decision: the plan as event and step, and the attributes of its span."""

from collections.abc import Sequence
from typing import Final

from brain.interrupts.clarification import question_in
from brain.planning.decision import Decision, OpenDecision
from brain.planning.plan_validation import RejectedTask
from brain.run.context import RunContext
from brain.state import GraphState
from starling.core.events.run_events import Plan, PlannedTask
from starling.core.run_document.document import PlanChange
from starling.core.runs import Step
from starling.core.tracing import Attributes

_PLANNED: Final = tuple(PlannedTask.model_fields)
_TASK_CHARS = 4_000  # of a task that is left out of the plan, in its step


def planned_tasks(state: GraphState) -> list[PlannedTask]:
    """Return the tasks of a plan as its event has them, without those that were taken out of it."""
    left = (task for task in state["tasks"] if "removed" not in task)
    return [PlannedTask.model_validate({name: task[name] for name in _PLANNED}) for task in left]


def report_plan(
    context: RunContext,
    state: GraphState,
    decision: Decision,
    rejected: Sequence[RejectedTask],
    changes: Sequence[PlanChange],
) -> None:
    """Emit the plan, and record it as a step with the codes of the tasks that are left out of it."""
    left_out = [
        {"path": context.at(item.task_id), "agent": item.agent, "task": item.part[:_TASK_CHARS], "code": item.code}
        for item in rejected
    ]
    version = state["routing"]["plan_version"]
    context.recorder.emit(
        Plan(
            version=version,
            plan=decision.plan,
            tasks=planned_tasks(state),
            thought_process=decision.thought_process,
            changes=[*changes],
        )
    )
    context.recorder.step(
        Step(
            type="plan",
            description="; ".join(decision.plan) or decision.thought_process,
            metadata={
                "version": version,
                "is_request_satisfied": decision.is_request_satisfied,
                "is_in_loop": decision.is_in_loop,
                "is_progress_being_made": decision.is_progress_being_made,
                **({"left_out": left_out} if left_out else {}),
            },
        )
    )


def request_attributes(agent: str, context: RunContext, state: GraphState, path: str) -> Attributes:
    """Return what the span of a decision says of its request."""
    number = state["routing"]["decisions"] + 1
    asked = context.run.clarifications + len(state.get("clarifications", ()))
    return {
        "gen_ai.agent.name": "supervisor",
        "starling.decision": number,
        "starling.path": path,
        "agent_name": agent,
        "iteration": number,
        "clarification_count": asked,
        "input": {
            "request": state["input_request"],
            "conversation_history": state["messages"],
            "clarification_count": asked,
        },
    }


def decision_attributes(decision: Decision) -> Attributes:
    """Return what the span of a decision says of the decision."""
    agents = [task.agent for task in decision.selected_agents]
    asks = isinstance(decision, OpenDecision) and question_in(decision)
    return {
        "starling.is_request_satisfied": decision.is_request_satisfied,
        "starling.is_in_loop": decision.is_in_loop,
        "starling.is_progress_being_made": decision.is_progress_being_made,
        "starling.selected_agents": agents,
        "next_agent": ["clarification"] if asks else agents or ["qa"],
        "output": decision.model_dump(),
    }
