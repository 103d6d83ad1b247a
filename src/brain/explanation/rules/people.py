"""Calls whose outcome is unknown, approvals that did not come, and budgets that were used up."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from brain.explanation.history import History, Task
from brain.explanation.rules.incident import (
    Incident,
    Reference,
    call_text,
    code_of,
    event,
    failed_calls,
    said,
    task_incident,
    task_text,
    who,
    why_failed,
)
from starling.core.task_paths import is_within, without_numbers
from starling.core.tool_calls import UNCERTAIN, CallState
from starling.infra.postgres.runs.interrupts import StoredInterrupt

_KINDS: Final = {
    "approval": "the approval",
    "clarification": "the answer to a question",
    "budget": "more tokens",
    "in_doubt": "a decision about the outcome",
}
_UNCERTAIN: Final = frozenset({*UNCERTAIN, CallState.DISPATCHED})


def effect_in_doubt(history: History, task: Task) -> Incident | None:
    """Explain a task that failed because it is unknown whether one of its calls was done."""
    calls = [
        call
        for call in history.calls.values()
        if is_within(without_numbers(call.path), task.place) and call.state in _UNCERTAIN and call.failed
    ]
    if not calls and code_of(task) != "outcome_unknown":
        return None
    what = f"{call_text(calls[0])}: {said(calls[0].text)}" if calls else said(why_failed(history, task))
    state = "was done or may have been done, but its result can't be used"
    if not calls or calls[0].state != CallState.UNUSABLE:
        state = "may have been done, and nobody knows"
    text = f"Agent {who(task)} made a call in {task_text(task)} that {state}. It called {what}."
    found = task_incident("effect_in_doubt", history, task, text, calls)
    asked = [item for item in _interrupts(history, task, "in_doubt") if item.state != "resolved"]
    if asked:
        answer = "nobody answered in time" if asked[0].state == "expired" else f"the question is {asked[0].state}"
        found = replace(found, text=f"{text} A person was asked whether it was done; {answer}.")
        return found.also(*_asked(history, asked[0]))
    return found


def uncertain_calls(history: History) -> Iterator[Incident]:
    """Find calls that may have been done outside of failed tasks, also those of which only the ledger's row is kept."""
    failed = [task.place for task in history.failed_tasks()]
    for row in history.rows.ledger:
        place = without_numbers(row.path)
        repeated = any(
            other.state is CallState.SUCCEEDED and other.sent_key == row.sent_key for other in history.rows.ledger
        )
        if row.state in UNCERTAIN and not repeated and not any(is_within(place, task) for task in failed):
            call = history.calls.get(row.call_id)
            seq = (call.end or call.seq) if call else history.rows.run.last_event
            reason = said(str((row.outcome or {}).get("text", "its outcome is unknown")))
            text = f"It is unknown whether the call of {row.tool} in task {place} was done: {reason}."
            yield Incident("effect_in_doubt", text, seq, (Reference("call", row.call_id), event(seq)), place)


def missing_approval(history: History, task: Task) -> Incident | None:
    """Explain a task that failed because a call was not approved: refused, withdrawn, or without an answer in time."""
    calls = [call for call in failed_calls(task) if call.code == "not_approved"]
    asked = [item for item in _interrupts(history, task, "approval") if not _is_approved(item)]
    inner = code_of(task) == "not_approved"
    if not calls and not (asked and inner):
        return None
    late = next((item for item in asked if item.state == "expired"), None)
    item = late or (asked[0] if asked else None)
    call = _approved_call(item) or (call_text(calls[0]) if calls else "a call")
    asker = f"Agent {who(task)} wanted to call {call} in {task_text(task)}, which needs a person's approval"
    expired = late is not None or (item is None and bool(calls) and "no answer in time" in calls[0].text)
    if expired:
        until = f" until {late.expires_at:%Y-%m-%d %H:%M:%S} UTC" if late else ""
        text = f"{asker}; nobody answered{until}, so the approval expired and the call was not made."
    else:
        text = f"{asker}; it was not approved: {said(calls[0].text if calls else why_failed(history, task))}."
    code = "expired_approval" if expired else "refused_approval"
    found = task_incident(code, history, task, text, calls)
    return found.also(*_asked(history, item)) if item else found


def unapproved_calls(history: History) -> Iterator[Incident]:
    """Find calls of approved tasks that were not made because nobody approved them."""
    for task in history.tasks.values():
        stopped = task.status == "approved" and any(call.code == "not_approved" for call in failed_calls(task))
        if stopped and (found := missing_approval(history, task)) is not None:
            yield found


def lost_budget(history: History, task: Task) -> Incident | None:
    """Explain a task that failed because the tokens of the run or of its team were used up."""
    if code_of(task) != "budget_exhausted":
        return None
    reason = said(why_failed(history, task))
    text = f"Agent {who(task)} could not go on with {task_text(task)}: {reason}. {_spent(history)}"
    found = task_incident("lost_budget", history, task, text.strip())
    return found.also(
        *(ref for item in history.rows.interrupts if item.kind == "budget" for ref in _asked(history, item))
    )


def run_lost_budget(history: History) -> Incident | None:
    """Explain a run that ended because its tokens were used up and it got no more of them."""
    run = history.rows.run
    budgets = [item for item in history.rows.interrupts if item.kind == "budget" and item.state != "resolved"]
    refused = [item for item in budgets if item.state in ("cancelled", "expired")]
    if run.code != "budget_exhausted" and not (refused and history.ended):
        return None
    notice = next(history.notices_of("budget_exhausted"), None)
    item = refused[0] if refused else None
    asked = f" {item.reason} More was asked for, and {_refusal(item)}." if item else ""
    said_by = f" {notice.message}" if notice and not item else ""
    cut = ", ".join(task.place for task in history.main_tasks if task.status != "approved")
    left = f" Not done because of it: {cut}." if cut else ""
    text = f"The run used up its token budget.{asked or said_by} {_spent(history)}{left}"
    seq = history.asked.get(item.id, 0) if item else notice.seq if notice else run.last_event
    refs = _asked(history, item) if item else (event(seq),)
    return Incident("lost_budget", text, seq or run.last_event, tuple(refs))


def waited_for(item: StoredInterrupt) -> str:
    """Return what a run waits for with a question."""
    return f"{_KINDS[item.kind]}{f' of {item.call["name"]}' if item.call else ''}"


def _refusal(item: StoredInterrupt) -> str:
    return "nobody answered in time" if item.state == "expired" else "it was refused"


def _spent(history: History) -> str:
    """Return who used most of the tokens."""
    used: dict[str, int] = {}
    for step in history.rows.steps:
        if step.type == "llm_call":
            tokens = int(step.metadata.get("input_tokens") or 0) + int(step.metadata.get("output_tokens") or 0)
            name = owner(history, step.path)
            used[name] = used.get(name, 0) + tokens
    if not sum(used.values()):
        return ""
    most = max(used, key=lambda name: used[name])
    return f"Most of it was used by {most}: {used[most]:,} of {sum(used.values()):,} tokens."


def owner(history: History, path: str) -> str:
    """Return who asks a model at a path: an agent, a reviewer, the supervisor or the final answer."""
    place = without_numbers(path)
    star, _, name = place.rpartition("/")
    if name == "supervisor" or star.endswith("supervisor"):
        return "the supervisor"
    if place in history.tasks:
        return who(history.tasks[place])
    if star == "supervisor" or star.endswith("/supervisor"):
        return "the supervisor"
    if star == "qa" or star.endswith("/qa"):
        return "the final answer"
    if name == "review" or name.endswith(".review"):
        return "the reviewer"
    if star in history.tasks:
        return who(history.tasks[star])
    return path or "the run"


def _interrupts(history: History, task: Task, kind: str) -> Iterator[StoredInterrupt]:
    for item in history.rows.interrupts:
        if item.kind == kind and is_within(without_numbers(item.path), task.place):
            yield item


def _is_approved(item: StoredInterrupt) -> bool:
    return item.state == "open" or (item.state == "resolved" and bool((item.payload or {}).get("approved")))


def _approved_call(item: StoredInterrupt | None) -> str:
    return f"{item.call['name']}" if item and item.call else ""


def _asked(history: History, item: StoredInterrupt) -> tuple[Reference, ...]:
    return (event(history.asked[item.id]),) if item.id in history.asked else ()
