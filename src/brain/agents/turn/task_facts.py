"""The facts of an approved attempt: what its agent noted, and what its results say by name."""

from collections.abc import Iterable, Iterator

from brain.agents.turn.agent_runtime import AttemptOutput, FinishedCall, TaskExecution
from brain.blackboard import FACTS_PER_TASK, fact_value, fields_of, kept_facts
from brain.state import DegradedPart, FactRecord

_LOST = ("server_unavailable", "quarantined", "removed", "switched_off", "memory_limit")  # codes of failed calls
_REASON_CHARS = 400


def task_facts(execution: TaskExecution, produced: AttemptOutput) -> list[FactRecord]:
    """Return the facts of an approved attempt: its notes, what its results say by name, and the facts of its members.

    Warns of those that are dropped.
    """
    inner = [fact for member in produced.inner for fact in member.outcome.get("facts", ())]
    notes = (
        FactRecord(key=str(use.arguments["key"]), value=value, call=use.id)
        for use in execution.notes
        if (value := fact_value(use.arguments["value"])) is not None
    )
    facts, dropped = kept_facts(notes, [*_fields(produced.uses), *inner])
    if dropped:
        text = f"{dropped} facts of {execution.card.name} are dropped: a task keeps at most {FACTS_PER_TASK}."
        execution.context.recorder.warn("facts_dropped", text, execution.task_id)
    return facts


def lost_tools(execution: TaskExecution) -> list[DegradedPart]:
    """Return the tools of an approved task whose last call failed because they, or their server, can't be used."""
    return [
        DegradedPart(part=f"what {use.name} would have answered", reason=use.outcome.text[:_REASON_CHARS])
        for use in execution.failed_calls
        if use.outcome.code in _LOST
    ]


def _fields(uses: Iterable[FinishedCall]) -> Iterator[FactRecord]:
    for use in uses:
        if use.outcome.status == "succeeded" and not use.repeated:
            for key, value in fields_of(use.outcome.data, use.outcome.text):
                yield FactRecord(key=key, value=value, call=use.id)
