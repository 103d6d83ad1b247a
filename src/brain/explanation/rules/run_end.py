"""Ends of runs from outside of their tasks, and parts of a request that no task was made for."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from brain.explanation.history import History, Task
from brain.explanation.rules.access import is_about_key, key_text, outside_grant_in
from brain.explanation.rules.incident import (
    CauseCode,
    Incident,
    code_of,
    event,
    said,
    task_incident,
    task_text,
    who,
)
from brain.explanation.rules.models import planning_failed
from brain.explanation.rules.people import run_lost_budget, waited_for
from brain.explanation.rules.servers import degraded_server_in, is_unavailable, server_of
from brain.explanation.texts import counted, duration
from brain.planning.decision import OpenDecision
from brain.planning.plan_validation import DEPENDENT, TOO_LATE, TOO_MANY, UNREACHED
from starling.core.model_output.json_document import read_document

_WRONG_ORDER: Final = ("It depends on", "It is in, or depends on, a cycle")
_UNKNOWN: Final = "There is no agent"
_ENDS: Final = MappingProxyType[str, tuple[CauseCode, str]](
    {
        "cancelled": ("cancelled_by_user", "The run was cancelled"),
        "parked": ("parked_run", "The run was parked, because its workers ended in the middle of it"),
        "deadline_exceeded": ("deadline_exceeded", "The run's time ran out"),
        "recursion_limit": ("limit_reached", "The run took as many steps as a run may"),
        "internal": ("internal_error", "A fault of the platform itself ended the run"),
        "journal_diverged": ("journal_diverged", "After a restart of the run its recorded answers no longer fitted"),
        "runtime_unavailable": ("runtime_failed", "The worker lacks a runtime that the run needs"),
    }
)


def ended_from_outside(history: History) -> Incident | None:
    """Return why a run ended that no task of it ended: cancelled, parked, out of time, steps or tokens."""
    if not history.ended:
        return None
    if (found := run_lost_budget(history)) is not None:
        return found
    code = history.rows.run.code
    known = _ENDS.get(code)
    return _ended(history, *known) if known else None


def cut_off(history: History, task: Task) -> Incident | None:
    """Explain a task that had not ended when the run was ended from outside: that is no cause besides the run's end."""
    known = _ENDS.get(history.rows.run.code)
    if known is None or not _is_cut_off(history, task):
        return None
    code, begin = known
    text = f"{begin} while agent {who(task)} worked at {task_text(task)}."
    return task_incident(code, history, task, text)


def _is_cut_off(history: History, task: Task) -> bool:
    return task.status == "running" or (task.status == "failed" and code_of(task) == history.rows.run.code)


def _ended(history: History, code: CauseCode, begin: str) -> Incident:
    run = history.rows.run
    error = next((notice for notice in reversed(history.notices) if notice.error and not notice.task_id), None)
    cut = [task for task in history.main_tasks if _is_cut_off(history, task)]
    failed = [task for task in history.main_tasks if task.status == "failed" and task not in cut]
    pending = [task.place for task in history.main_tasks if not task.tries]
    parts = [f"{begin}{_after(history)}."]
    parts += [f"It cut off {_named(cut)}{_waiting_for(history)}."] if cut else []
    parts += [f"Before that, {_named(failed)} had failed."] if failed else []
    parts += [f"Not begun: {', '.join(pending)}."] if pending else []
    parts += [f"The platform said {said(error.message)}."] if error else []
    if code == "parked_run" and not error:
        parts.append(f"Its worker ended {counted(run.crashes, 'time')}.")
    seq = error.seq if error else run.last_event
    return Incident(code, " ".join(parts), seq, (event(seq),) if seq else ())


def _named(tasks: Sequence[Task]) -> str:
    """Return tasks by name, each with its agent."""
    return ", ".join(f"{task_text(task)} of agent {who(task)}" for task in tasks)


def _waiting_for(history: History) -> str:
    """Return what the run waited for when it ended: questions that its end withdrew."""
    asked = [item for item in history.rows.interrupts if item.state == "cancelled" and item.answered_by is None]
    what = ", ".join(dict.fromkeys(waited_for(item) for item in asked))
    return f", while the run waited for {what}" if what else ""


def _after(history: History) -> str:
    run = history.rows.run
    if run.ended_at is None:
        return ""
    return f", {duration((run.ended_at - run.created_at).total_seconds())} after it was accepted"


def planning(history: History) -> Iterable[Incident]:
    """Find decisions and answers that no model gave."""
    if (found := planning_failed(history)) is not None:
        yield found


def unserved_parts(history: History) -> Iterable[Incident]:
    """Find parts of the request that no task was made for, each with what kept it from being planned."""
    if history.rows.run.trimmed:
        yield from _pruned_parts(history)
        return
    told = {task.text for task in history.tasks.values()}
    reasons = [task.last.end.summary.removesuffix("…") for task in history.main_tasks if task.last and task.last.end]
    for part in (history.rows.run.result or {}).get("degraded") or ():
        reason = str(part["reason"])
        was_tried = part["part"] in told or any(text and reason.startswith(text) for text in reasons)
        follows = reason == DEPENDENT or reason.startswith(UNREACHED) or part["part"].startswith("whether ")
        if not was_tried and not follows:
            yield _unserved(history, part)


def _pruned_parts(history: History) -> Iterator[Incident]:
    """Name the missing parts of a run whose tasks are no longer kept, by the reason in its result."""
    seq = history.rows.run.last_event
    for part in (history.rows.run.result or {}).get("degraded") or ():
        text = f"The part {said(part['part'], 120)} was not answered: {said(part['reason'])}."
        yield Incident("failed_task", text, seq, (event(seq),))


def _unserved(history: History, part: Mapping[str, Any]) -> Incident:
    reason, agent = str(part["reason"]), _assigned(history, str(part["part"]))
    code, begin = _why_unserved(history, f"{part['part']} {reason}", reason, agent)
    plan = history.plans[0] if history.plans else None
    seq = plan.seq if plan else history.rows.run.last_event
    whom = f"could not be given to agent {agent}" if agent else "was given to no agent"
    text = f"{begin} The part {said(part['part'], 120)} of the request {whom}: {said(reason)}."
    return Incident(code, text.strip(), seq, (event(seq),))


def _why_unserved(history: History, whole: str, reason: str, agent: str) -> tuple[CauseCode, str]:
    """Return the cause of a part without a task, and how its sentence begins."""
    if is_about_key(history, reason) or outside_grant_in(history, f"{whole} {agent}"):
        return "revoked_grant", key_text(history)
    if " is switched off: " in reason:
        return "switched_off", "A kill switch stopped it."
    if reason.startswith(_WRONG_ORDER):
        return "bad_plan_order", "The plan had tasks that depend on tasks in a way that can't be."
    if reason.startswith(TOO_LATE):
        return "limit_reached", "The plan had more rounds of tasks than a run may have."
    if reason.startswith(TOO_MANY):
        return "limit_reached", "The plan had more tasks than a plan may have."
    unknown = reason.startswith(_UNKNOWN)
    server = "" if unknown else (server_of(history, agent) or degraded_server_in(history, whole))
    if server or is_unavailable(reason):
        return "degraded_server", f"The server {server} could not be used when the run was planned." if server else ""
    return "unmet_tool", "No agent can do a part of the request."


def _assigned(history: History, part: str) -> str:
    """Return the agent that a decision gave a part to, though it could not be dispatched; empty without one."""
    for answer in history.rows.answers:
        if answer.path.startswith("supervisor/") and part in answer.content:
            document = read_document(answer.content, OpenDecision).document
            chosen = [item.agent for item in document.selected_agents if item.task == part] if document else []
            if chosen:
                return chosen[0]
    return ""


def nothing_planned(history: History) -> Iterator[Incident]:
    """Find runs that ended without a task: nothing was planned, or for a reason that only their code names."""
    run = history.rows.run
    told = (run.result or {}).get("degraded")
    if not history.ended or not run.code or history.main_tasks or told:
        return
    reply = said(str((run.result or {}).get("reply", "")))
    seq = run.last_event
    if run.code == "empty_plan":
        yield Incident("empty_plan", f"The supervisor planned nothing: {reply}.", seq, (event(seq),))
    elif run.code == "no_result":
        yield Incident("unmet_tool", f"No agent was given a task, so there is no result: {reply}.", seq, (event(seq),))


def any_end(history: History) -> Iterator[Incident]:
    """Name the code of an ended run that nothing else explains."""
    run = history.rows.run
    if history.ended and run.code:
        reply = said(str((run.result or {}).get("reply", "")))
        text = f"The run ended as {run.status} with the code {run.code}: {reply}."
        yield Incident("failed_run", text, run.last_event, (event(run.last_event),) if run.last_event else ())
