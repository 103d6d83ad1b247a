"""Tools that were called in place of the one that the task names."""

from collections.abc import Iterator, Sequence

from brain.explanation.history import Attempt, Call, History, Task
from brain.explanation.rules.incident import Incident, call_text, reasons_text, said, task_incident, task_text, who
from brain.explanation.texts import mentions, stems


def wrong_tool(history: History, task: Task) -> Incident | None:
    """Explain a task whose results were rejected because its agent never called the tool that the task names."""
    attempts = [attempt for one in task.tries for attempt in one.attempts]
    if not attempts or not all(_is_rejected_result(attempt) for attempt in attempts):
        return None
    reasons = reasons_text(attempt.verdict for attempt in attempts)
    for other in _never_called(history, task):
        if _is_meant(other, task, reasons):
            call = attempts[-1].calls[0]
            text = (
                f"Agent {who(task)} called {call_text(call)} in {task_text(task)} and never {other}, which is what the "
                f"task asks for. The reviewer rejected the result: {said(reasons)}."
            )
            return task_incident("wrong_tool", history, task, text, [call], seq=attempts[0].calls[0].seq)
    return None


def _is_rejected_result(attempt: Attempt) -> bool:
    is_rejected = attempt.verdict is not None and attempt.verdict.status == "REJECTED"
    return is_rejected and bool(attempt.calls) and not any(call.failed for call in attempt.calls)


def _never_called(history: History, task: Task) -> Iterator[str]:
    """Yield the full names of tools that the servers of a task's calls have, and that it did not call."""
    called = {call.name for call in task.calls}
    for server in sorted({name.partition(".")[0] for name in called}):
        for tool in sorted(history.rows.tools.get(server, ())):
            if f"{server}.{tool}" not in called:
                yield f"{server}.{tool}"


def _is_meant(other: str, task: Task, reasons: str) -> bool:
    """Whether a task names this tool and none of those that were called, or its rejections name it, too."""
    own = _words([other])
    called = _words([call.name for call in _made(task)])
    asked = stems(task.text)
    if not (own - called) & asked:
        return False
    named = bool((own - called) & stems(reasons)) or mentions(reasons, other.partition(".")[2])
    return named or not (called - own) & asked


def _made(task: Task) -> Sequence[Call]:
    return [call for call in task.calls if "." in call.name]


def _words(names: Sequence[str]) -> set[str]:
    """Return the stems of the words of tools' names, without those of their servers."""
    return stems(*(name.partition(".")[2] for name in names))
