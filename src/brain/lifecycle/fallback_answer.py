"""The answer without a model: the results as they are, and the parts that are missing."""

from collections.abc import Sequence
from typing import cast

from brain.interrupts.budget import OUT_OF_TIME
from brain.lifecycle.citations import citations_of
from brain.planning.plan_validation import degraded_parts
from brain.state import DegradedPart, GraphState, TaskOutcome, approved

_REASON_CHARS = 1_000
_CUT_OFF = f"{OUT_OF_TIME} It was being worked on: check what it may have changed before you ask for it again."


def plain_answer(outcomes: Sequence[TaskOutcome], degraded: Sequence[DegradedPart]) -> str:
    """Return the approved results one after another, then the parts that were not answered."""
    parts = [f"{outcome['output']} [{number}]" for number, outcome in enumerate(outcomes, start=1)]
    parts += degraded_lines(degraded)
    return "\n\n".join(parts) or "There is no result, and no model is available to explain why."


def degraded_lines(degraded: Sequence[DegradedPart]) -> list[str]:
    """Return one line for each part that was not answered."""
    return [degraded_line(part) for part in degraded]


def degraded_line(part: DegradedPart) -> str:
    """Return a part that was not answered, with the reason, of which a long one is shortened."""
    reason = part["reason"] if len(part["reason"]) <= _REASON_CHARS else f"{part['reason'][:_REASON_CHARS]}…"
    return f"Not answered: {part['part']} ({reason})"


def state_at_timeout(state: GraphState) -> GraphState:
    """Return where a run stood when its time ran out, with an answer if anything was approved or replied."""
    running: list[DegradedPart] = [
        {"part": task["task"], "reason": _CUT_OFF, "task_id": task["id"]}
        for task in state["tasks"]
        if task["status"] == "running"
    ]
    reached = cast("GraphState", {**state, "degraded": [*state["degraded"], *running]})
    degraded = degraded_parts(reached, OUT_OF_TIME)
    outcomes = list(approved(state).values())
    reply = state["reply"] or (plain_answer(outcomes, degraded) if outcomes else "")
    return cast("GraphState", {**state, "degraded": degraded, "reply": reply, "citations": citations_of(outcomes)})
