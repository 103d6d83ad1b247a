"""Verdicts that the rows contradict: right results rejected, and results approved that rest on an error."""

from collections.abc import Iterable
from itertools import pairwise

from brain.explanation.history import Attempt, History, Task, VerdictRecord
from brain.explanation.rules.arguments import ungrounded
from brain.explanation.rules.incident import (
    Incident,
    Reference,
    call_text,
    event,
    refs_of_call,
    said,
    task_incident,
    task_text,
    who,
)
from brain.explanation.texts import leaves, shortened, stems, unsupported_numbers
from starling.core.json import canonical

_REJECTED = "REJECTED"


def rejected_right_result(history: History, task: Task) -> Incident | None:
    """Explain a task whose result was rejected though it came again unchanged, and nothing in it is an error."""
    for one in task.tries:
        for earlier, later in pairwise(one.attempts):
            if _is_rejected(earlier) and _same_result(earlier, later) and _is_sound(history, task, earlier):
                return _rejected(history, task, earlier, "the next attempt came to the same result")
        only = one.attempts[-1:]
        for attempt in only:
            if _is_rejected(attempt) and (again := _approved_elsewhere(history, task, attempt)):
                return _rejected(history, task, attempt, f"the same result was approved in task {again}")
    return None


def contradictory_verdicts(history: History) -> Iterable[Incident]:
    """Find approved tasks whose result had been rejected before, unchanged."""
    for task in history.tasks.values():
        last = task.last
        if task.status != "approved" or last is None or not history.counts(task):
            continue
        attempts = [attempt for one in task.tries for attempt in one.attempts]
        final = attempts[-1] if attempts else None
        for earlier in attempts[:-1]:
            if final and _is_rejected(earlier) and _same_result(earlier, final):
                yield _rejected(history, task, earlier, "the same result was approved in a later attempt")
                break


def approved_error(history: History) -> Iterable[Incident]:
    """Find results that a reviewer approved though they rest on nothing but errors, or contradict the tool's answer."""
    for task in history.tasks.values():
        last = task.last
        if task.status != "approved" or last is None or not last.attempts or not history.counts(task):
            continue
        attempt = last.attempts[-1]
        if attempt.verdict and (found := _approved(history, task, attempt, attempt.verdict)):
            yield found


def _approved(history: History, task: Task, attempt: Attempt, verdict: VerdictRecord) -> Incident | None:
    calls = attempt.calls
    if calls and all(call.failed or history.english.looks_like_error(call.text) for call in calls):
        call = calls[0]
        text = (
            f"The reviewer answered {verdict.status} for {task_text(task)} of agent {who(task)}, but the result rests "
            f"on an error: {call_text(call)} answered {said(call.text)}."
        )
        found = task_incident("wrong_verdict", history, task, text, [call], seq=call.end or call.seq)
        return found.also(event(verdict.seq))
    if contradiction := _contradiction(history, task, attempt, verdict):
        found = task_incident("wrong_verdict", history, task, contradiction, calls[:1], seq=verdict.seq)
        return found.also(event(verdict.seq))
    return None


def _contradiction(history: History, task: Task, attempt: Attempt, verdict: VerdictRecord) -> str:
    """Return how a result in other words contradicts the answers of the tools, empty where it doesn't."""
    text = verdict.refined or (attempt.text if attempt.text and not _is_joined(attempt) else "")
    if not attempt.calls or not text:
        return ""
    answers = [call.text for call in attempt.calls if not call.failed]
    sources = [*answers, *history.known_texts(task), *(canonical(call.arguments) for call in attempt.calls)]
    wrong = unsupported_numbers(text, sources)
    lost = unsupported_numbers(" ".join(answers), [text])
    if wrong and lost:
        what = f"says {', '.join(wrong[:3])} where the tool said {', '.join(lost[:3])}"
    elif verdict.status == "FIXED" and (sides := _opposites(history, text, " ".join(answers))):
        what = f"says {said(sides[0], 80)} where the tool said {said(sides[1], 80)}"
    else:
        return ""
    return (
        f"The reviewer answered {verdict.status} for {task_text(task)} of agent {who(task)}, but the result "
        f"contradicts the tool's answer: it {what} ({attempt.calls[0].name} answered "
        f"{said(attempt.calls[0].text, 160)})."
    )


def _opposites(history: History, text: str, answer: str) -> tuple[str, str] | None:
    """Return both texts if one negates and the other does not, and they share most of their words."""
    if not history.english.are_opposite(text, answer):
        return None
    shared, words = stems(text) & stems(answer), stems(answer)
    return (shortened(text, 80), shortened(answer, 80)) if words and 2 * len(shared) >= len(words) else None


def _is_joined(attempt: Attempt) -> bool:
    """Whether the result is the answers of tools themselves: what the agent wrote beside its calls is no result."""
    return bool(attempt.calls) and not attempt.text.strip()


def _is_rejected(attempt: Attempt) -> bool:
    return attempt.verdict is not None and attempt.verdict.status == _REJECTED


def _same_result(one: Attempt, other: Attempt) -> bool:
    """Whether two attempts came to the same result, with something in it."""
    first, second = _result(one), _result(other)
    return bool(first) and first == second


def _result(attempt: Attempt) -> tuple[str, ...]:
    if attempt.calls:
        return tuple(sorted(_plain(f"{call.name} {call.text}") for call in attempt.calls if call.text.strip()))
    return (_plain(attempt.text),) if attempt.text.strip() else ()


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()


def _is_sound(history: History, task: Task, attempt: Attempt) -> bool:
    """Whether nothing in an attempt shows that it was rejected rightly: no error, no value from nowhere, no gap."""
    known = history.known_texts(task)
    if _leaves_out(task, attempt):
        return False
    return not any(
        call.failed or history.english.looks_like_error(call.text) or _is_strange(ungrounded(call, known))
        for call in attempt.calls
    )


def _leaves_out(task: Task, attempt: Attempt) -> bool:
    """Whether a rejection speaks of parts of the task that neither calls nor result have anything of."""
    reasons = attempt.verdict.reasons if attempt.verdict else ()
    values = stems(*(str(value) for call in attempt.calls for _, value in leaves(call.arguments)))
    named = (stems(task.text) & stems(*reasons)) - values
    there = named & stems(attempt.text, *(f"{call.name} {call.text}" for call in attempt.calls))
    return len(named) > 2 * len(there)


def _is_strange(wrong: list[tuple[str, object]]) -> bool:
    return any(isinstance(value, str) and len(value) > 2 for _, value in wrong)


def _approved_elsewhere(history: History, task: Task, attempt: Attempt) -> str:
    """Return another task that came to the same result and was approved."""
    for other in history.siblings(task):
        last = other.last
        if other.status == "approved" and last and any(_same_result(attempt, one) for one in last.attempts):
            return other.place
    return ""


def _rejected(history: History, task: Task, attempt: Attempt, again: str) -> Incident:
    verdict = attempt.verdict
    assert verdict is not None
    rested = f"{call_text(attempt.calls[0])} had answered {said(attempt.calls[0].text, 120)}" if attempt.calls else ""
    wrote = rested or f"it had written {said(attempt.text, 120)}"
    text = (
        f"The reviewer rejected attempt {attempt.number} of agent {who(task)} at {task_text(task)}, though {again} "
        f"and nothing in it is an error: {wrote}. The reviewer said {said(' '.join(verdict.reasons))}."
    )
    refs = [ref for call in attempt.calls[:1] for ref in refs_of_call(call)]
    found = task_incident("wrong_verdict", history, task, text, seq=verdict.seq)
    return found.also(event(verdict.seq), Reference("task", task.place), *refs)


def rejected_result(history: History, task: Task) -> Incident | None:
    """Explain a task whose results were rejected, each for its reasons."""
    verdicts = [item for one in task.tries for item in one.attempts if _is_rejected(item)]
    if not verdicts:
        return None
    verdict = verdicts[-1].verdict
    assert verdict is not None
    text = (
        f"No result of agent {who(task)} at {task_text(task)} was approved in {len(verdicts)} reviewed attempts: "
        f"{said(' '.join(verdict.reasons))}."
    )
    return task_incident("rejected_result", history, task, text, verdicts[-1].calls[:1], seq=verdict.seq)
