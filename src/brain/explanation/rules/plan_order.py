"""Tasks that lacked what another task of the same plan delivers, because the plan did not let them wait for it."""

import re
from collections.abc import Callable, Iterable
from typing import Final

from brain.explanation.history import Call, History, Task
from brain.explanation.rules.incident import (
    Incident,
    Reference,
    code_of,
    event,
    failed_calls,
    refs_of_call,
    said,
    task_incident,
    task_text,
    value_text,
    who,
    why_failed,
)
from brain.explanation.texts import leaves, mentions, stems
from brain.retrieval.text_features import content_words, plain_words, stem

_MISSING_MEMBER: Final = re.compile(r"(?:required property|missing|required)\W", re.IGNORECASE)
_QUOTED: Final = re.compile(r"['\"“`‘]([\w.\- ]{2,60})['\"”`’]")
_MOST_OTHERS: Final = 60  # tasks that one is compared with; a plan has 24 by default
_OUTSIDE: Final = frozenset({"server_unavailable", "timeout", "agent_unavailable", "switched_off", "llm_timeout"})

type _Evidence = Callable[[History, Task, Task], str]


def bad_plan_order(history: History, task: Task) -> Incident | None:
    """Explain a task that failed, or was rejected, for want of what a task delivers that it did not wait for."""
    if code_of(task) in _OUTSIDE or not task.began:
        return None
    for evidence in _EVIDENCE:
        for other in _not_awaited(history, task):
            if why := evidence(history, task, other):
                return _incident(history, task, other, why)
    return _after_its_removal(history, task)


def lacking_results(history: History) -> Iterable[Incident]:
    """Find approved texts that say that they lack what a later task delivered."""
    for task in history.tasks.values():
        last = task.last
        if task.status != "approved" or not last or last.calls or not history.counts(task) or not last.end:
            continue
        written = last.attempts[-1].text or last.end.summary if last.attempts else last.end.summary
        sentences = list(history.english.lacking_sentences(written, surely=True))
        for other in _not_awaited(history, task) if sentences else ():
            late = other.last and other.last.end and other.last.end.seq > last.seq
            if late and (words := _lacked(" ".join(sentences), task, other, history)):
                why = f"it wrote {said(sentences[0], 120)}, and {other.place} delivers {', '.join(words[:4])}"
                yield _incident(history, task, other, why)
                break


def _not_awaited(history: History, task: Task) -> list[Task]:
    """Return the tasks of the same star that a task did not wait for when it first began, approved ones first."""
    plans = [plan for plan in history.plans if plan.star == task.star and plan.seq < task.began]
    needs = {planned["id"]: planned["depends_on"] for plan in plans for planned in plan.tasks}
    awaited, left = set[str](), list(needs.get(task.id, ()))
    while left:
        one = left.pop()
        if one not in awaited:
            awaited.add(one)
            left += needs.get(one, ())
    found = [other for other in history.siblings(task) if other.id not in awaited and other.planned]
    return sorted(found, key=lambda other: (other.status != "approved", other.began or 10**9))[:_MOST_OTHERS]


def _added_dependency(history: History, task: Task, other: Task) -> str:
    """A later plan has the task wait for the other one."""
    versions = [
        (plan.version, planned["depends_on"])
        for plan in history.plans
        if plan.star == task.star
        for planned in plan.tasks
        if planned["id"] == task.id
    ]
    before = [version for version, needed in versions if other.id not in needed]
    after = [version for version, needed in versions if other.id in needed]
    if before and after and min(before) < min(after):
        return f"version {min(after)} of the plan has it wait for {other.place}"
    return ""


def _named(history: History, task: Task, other: Task) -> str:
    """The task, or what it failed with, names the other task."""
    for text in (task.text, *_failure_texts(history, task)):
        if re.search(rf"(?<![\w-]){re.escape(other.id)}(?![\w-])", text):
            return f"{said(text, 120)} names {other.id}"
    return ""


def _created_later(history: History, task: Task, other: Task) -> str:
    """What was absent is what a call of the other task creates."""
    failed = [call for call in failed_calls(task) if history.english.may_say_absent(call.text)]
    for call in failed:
        for made in other.calls:
            creates = made.effect != "read" and made.status == "succeeded" and made.seq > call.seq
            if creates and (value := _shared_value(call, made)):
                return f"{call.name} did not find {value_text(value)}, which {made.name} of {other.place} made later"
    return ""


def _shared_value(call: Call, made: Call) -> str:
    values = [value for _, value in leaves(call.arguments) if isinstance(value, str) and len(value) > 2]
    texts = [str(value) for _, value in leaves(made.arguments)]
    return next((value for value in values if any(mentions(text, value) for text in texts)), "")


def _after_its_removal(history: History, task: Task) -> Incident | None:
    """Explain a task that did not find what was there until another task, which came first, changed it."""
    for call in failed_calls(task):
        for other, changed in _changes_before(history, task, call) if history.english.may_say_absent(call.text) else ():
            value = _shared_value(call, changed)
            was_there = (
                one.status == "succeeded" and one.seq < changed.seq and one is not changed and _shared_value(call, one)
                for one in history.calls.values()
            )
            if value and any(was_there):
                text = (
                    f"The plan had the wrong order: agent {who(task)} began {task_text(task)} after agent {who(other)} "
                    f"had called {changed.name} for {value_text(value)} in {task_text(other)}. It was there before, "
                    f"and {call.name} did not find it any more."
                )
                found = task_incident("bad_plan_order", history, task, text, [call])
                return found.also(Reference("task", other.place), *refs_of_call(changed))
    return None


def _changes_before(history: History, task: Task, call: Call) -> list[tuple[Task, Call]]:
    """Return what other tasks of the star changed before a call, the latest first."""
    calls = [(other, one) for other in history.siblings(task) for one in other.calls]
    found = [(other, one) for other, one in calls if one.effect != "read" and one.status == "succeeded"]
    return sorted((pair for pair in found if pair[1].seq < call.seq), key=lambda pair: -pair[1].seq)


def _placeholder(history: History, task: Task, other: Task) -> str:
    """The task was given a placeholder for a value that the other task is about."""
    for call in failed_calls(task) or task.calls:
        for name, value in leaves(call.arguments) if not _does_the_same(call, other) else ():
            if value and history.english.is_placeholder(value) and stems(name, str(value)) & stems(other.text):
                return f"{call.name} was called with {name}={value_text(value)} in place of what {other.place} finds"
    return ""


def _missing_member(history: History, task: Task, other: Task) -> str:
    """A call lacked an argument that the other task is about."""
    del history
    for call in failed_calls(task):
        is_missing = call.code == "invalid_arguments" and _MISSING_MEMBER.search(call.text)
        if is_missing and not _does_the_same(call, other):
            for name in _QUOTED.findall(call.text):
                words = stems(name)
                if words and name not in call.arguments and words <= stems(other.text):
                    return f"{call.name} was called without {value_text(name)}, which {other.place} finds"
    return ""


def _does_the_same(call: Call, other: Task) -> bool:
    """Whether the other task calls the same tool, for something else: then it delivers nothing that the call lacks."""
    return any(one.name == call.name for one in other.calls)


def _lacked_words(history: History, task: Task, other: Task) -> str:
    """What the task failed with says that something is missing, in words of the other task."""
    if any(_does_the_same(call, other) for call in failed_calls(task)):
        return ""
    for text in (one for whole in _failure_texts(history, task) for one in history.english.lacking_sentences(whole)):
        if words := _lacked(text, task, other, history):
            return f"{said(text, 140)} names {', '.join(words[:4])}, which {other.place} delivers"
    return ""


def _lacked(text: str, task: Task, other: Task, history: History) -> list[str]:
    """Return the words of the other task that a text has, and not the task itself, its calls or third tasks."""
    found = stems(text) & stems(other.text) - stems(task.text, task.agent, *(call.name for call in task.calls))
    found -= {word for call in task.calls for name, value in leaves(call.arguments) for word in stems(name, str(value))}
    if not found:
        return []
    dependents = _dependents(history, other)
    third = [one.text for one in history.siblings(task) if one is not other and one.id not in dependents]
    found = {word for word in found - stems(*third) if len(word) > 2}
    return [word for word in dict.fromkeys(content_words(other.text)) if stem(word) in found]


def _dependents(history: History, task: Task) -> set[str]:
    return {other.id for other in history.siblings(task) if task.id in history.needed(other)}


def _failure_texts(history: History, task: Task) -> list[str]:
    """Return what a task's failure is told by: its calls' errors, what its agent wrote, and the verdicts' reasons."""
    verdicts = [item.verdict for one in task.tries for item in one.attempts if item.verdict]
    reasons = [" ".join(verdict.reasons) for verdict in verdicts if verdict.status == "REJECTED"]
    written = [item.text for one in task.tries for item in one.attempts if item.text and not item.calls]
    errors = [call.text for call in failed_calls(task) if not _only_names_arguments(history, call)]
    ends = [one.end.summary for one in task.tries if one.end and one.end.status == "failed"]
    return [*errors, *reasons, *written, *([] if errors else [*ends, why_failed(history, task)])]


def _only_names_arguments(history: History, call: Call) -> bool:
    """Whether an error is about a value that the call had, so that nothing was lacking."""
    given = [value for _, value in leaves(call.arguments) if not history.english.is_placeholder(value)]
    words = {word for value in given for word in plain_words(str(value))}
    return bool(words & set(plain_words(call.text))) and not history.english.says_absent(call.text)


def _incident(history: History, task: Task, other: Task, why: str) -> Incident:
    plan = next((plan for plan in history.plans if plan.star == task.star), None)
    began = f"{other.place} began later" if other.began > task.began else "it did not wait for it"
    if not other.began:
        began = f"{other.place} had not begun"
    text = (
        f"The plan had the wrong order: agent {who(task)} began {task_text(task)} without what agent {who(other)} "
        f"delivers in {task_text(other)}; {began}. This shows because {why}."
    )
    found = task_incident("bad_plan_order", history, task, text, failed_calls(task))
    return found.also(Reference("task", other.place), *([event(plan.seq)] if plan else []))


_EVIDENCE: Final[tuple[_Evidence, ...]] = (
    _added_dependency,
    _named,
    _placeholder,
    _missing_member,
    _created_later,
    _lacked_words,
)
"""What shows that a task lacked another one, the surest first."""
