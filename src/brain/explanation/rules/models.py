"""Models that gave no answer, or none that can be read."""

from typing import Final

from brain.explanation.history import History, Notice, Task
from brain.explanation.rules.incident import (
    Incident,
    code_of,
    event,
    failed_calls,
    said,
    task_incident,
    task_text,
    who,
    why_failed,
)

UNREADABLE: Final = "llm_invalid_response"
UNAVAILABLE: Final = ("llm_timeout", "llm_connection_error", "llm_server_error", "model_error")
_FINAL_ANSWER: Final = "The final answer"


def unreadable_output(history: History, task: Task) -> Incident | None:
    """Explain a task that failed because a model's answer, or the arguments that it wrote, could not be read."""
    if code_of(task) == UNREADABLE:
        reviewed = _was_reviewed(task)
        whose = f"the reviewer of agent {who(task)}" if reviewed else f"agent {who(task)}"
        text = f"The model of {whose} wrote something in {task_text(task)} that can't be read: "
        found = task_incident("unreadable_model_output", history, task, f"{text}{said(why_failed(history, task))}.")
        return found.also(*(event(notice.seq) for notice in _of_task(history, task)[:2]))
    calls = [call for call in failed_calls(task) if call.malformed]
    if not calls:
        return None
    text = (
        f"The model of agent {who(task)} asked in {task_text(task)} for {calls[0].name} with arguments that can't be "
        f"read: {said(calls[0].text)}."
    )
    return task_incident("unreadable_model_output", history, task, text, calls)


def _was_reviewed(task: Task) -> bool:
    """Whether the task had made its calls when it failed, so that only the review was left."""
    last = task.last
    return bool(last and last.attempts and last.attempts[-1].calls and last.attempts[-1].verdict is None)


def _of_task(history: History, task: Task) -> list[Notice]:
    return [notice for notice in history.notices_of(UNREADABLE) if notice.task_id in ("", task.id)]


def model_unavailable(history: History, task: Task) -> Incident | None:
    """Explain a task that failed because no model answered."""
    if code_of(task) not in UNAVAILABLE:
        return None
    text = f"No model answered agent {who(task)} in {task_text(task)}: {said(why_failed(history, task))}."
    found = task_incident("model_unavailable", history, task, text)
    seqs = [notice.seq for notice in history.notices_of(*UNAVAILABLE, "model") if notice.task_id in ("", task.id)]
    return found.also(*map(event, seqs[:2]))


def planning_failed(history: History) -> Incident | None:
    """Explain a run whose supervisor could not decide, or whose final answer no model wrote.

    An answer that was refused once and then read is no failure: its warning is followed by a plan.
    """
    code, refused = history.rows.run.code, list(history.notices_of(UNREADABLE, *UNAVAILABLE))
    of_run = [notice for notice in refused if not notice.task_id and not notice.star]
    if code in (UNREADABLE, *UNAVAILABLE) and not history.main_tasks:
        return _undecided(history, of_run, code)
    last_plan = max((plan.seq for plan in history.plans if not plan.star), default=0)
    ends = [task.last.end.seq for task in history.main_tasks if task.last and task.last.end]
    last_end = max(ends, default=0)
    after = [notice for notice in of_run if notice.seq > max(last_plan, last_end)]
    if not after or not history.ended or not last_plan or not ends:
        return None
    return _undecided(history, after, after[-1].code) if _replanned(history) else _unanswered(after[-1])


def _replanned(history: History) -> bool:
    """Whether the supervisor had to decide again: a task failed, and nothing was planned since."""
    return any(task.status == "failed" for task in history.main_tasks) and history.rows.run.code != ""


def _undecided(history: History, notices: list[Notice], code: str) -> Incident:
    error = notices[-1] if notices else None
    reason = error.message if error else str((history.rows.run.result or {}).get("reply", ""))
    unread = code == UNREADABLE
    what = "wrote something that can't be read" if unread else "gave no answer"
    text = f"The model of the supervisor {what}, so that the request could not be planned: {said(reason)}."
    seq = notices[0].seq if notices else history.rows.run.last_event
    refs = tuple(event(notice.seq) for notice in notices[:3]) or (event(seq),)
    return Incident("unreadable_model_output" if unread else "model_unavailable", text, seq, refs)


def _unanswered(notice: Notice) -> Incident:
    unread = notice.code == UNREADABLE
    what = "can't be read" if unread else "did not come"
    text = (
        f"{_FINAL_ANSWER} of the model {what}, so the results were given one after another instead: "
        f"{said(notice.message)}."
    )
    return Incident(
        "unreadable_model_output" if unread else "model_unavailable", text, notice.seq, (event(notice.seq),)
    )
