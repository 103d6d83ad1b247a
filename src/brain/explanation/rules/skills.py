"""Skills that no longer fit: their calls were made as they say, and failed."""

from collections.abc import Iterable

from brain.explanation.history import Call, History, Task, Try
from brain.explanation.rows import SkillRow
from brain.explanation.rules.arguments import ungrounded
from brain.explanation.rules.incident import (
    Incident,
    call_text,
    said,
    task_incident,
    task_text,
    who,
)
from brain.explanation.texts import is_grounded, leaves, mentions
from brain.skills.skill import SkillCall, is_slot, matches
from starling.core.json import Json, canonical

_BLAMED = frozenset({"tool_error", "invalid_arguments", "invalid_result", "not_allowed", "removed", "quarantined", ""})


def stale_skill(history: History, task: Task) -> Incident | None:
    """Explain a task whose agent followed a recalled skill into calls that failed, or into a rejected result."""
    known = history.known_texts(task)
    for skill in _skills(history, task):
        for call in task.calls:
            fitting = _fitting(skill, call)
            if fitting and call.failed and _is_to_blame(history, fitting, call, known):
                return _incident(history, task, skill, call, f"it failed: {said(call.text)}")
        if rejected := _rejected_by(skill, task, known):
            call, reasons = rejected
            return _incident(history, task, skill, call, f"the result was rejected: {said(reasons)}")
    return None


def misleading_skills(history: History) -> Iterable[Incident]:
    """Find skills whose constants made a call fail in a task that was approved afterwards."""
    for task in history.tasks.values():
        if task.status != "approved" or not history.counts(task):
            continue
        known = history.known_texts(task)
        for skill in _skills(history, task):
            for call in task.calls:
                fitting = _fitting(skill, call)
                if fitting and call.failed and _has_constants(fitting) and _is_to_blame(history, fitting, call, known):
                    yield _incident(history, task, skill, call, f"it failed: {said(call.text)}")


def _skills(history: History, task: Task) -> list[SkillRow]:
    ids = dict.fromkeys(name for one in task.tries if one.end for name in one.end.skills)
    return [history.skills[name] for name in ids if name in history.skills]


def _fitting(skill: SkillRow, call: Call) -> SkillCall | None:
    """Return the call of a skill that a call was made after, None where it is another one."""
    return next((one for one in skill.calls if matches(one, call.name, call.arguments)), None)


def _is_to_blame(history: History, fitting: SkillCall, call: Call, known: list[str]) -> bool:
    """Whether the skill, and not a value that the agent chose or the server, made a call fail."""
    if call.code not in _BLAMED or (call.code in ("tool_error", "") and _may_be_outage(history, fitting, call)):
        return False
    if _succeeded_again(history, call):
        return False
    chosen = ungrounded(call, known)
    if _has_constants(fitting):
        constants = [str(item) for item in _constants(fitting.arguments)]
        return not any(mentions(call.text, str(value)) for _, value in chosen if str(value) not in constants)
    return not chosen


def _may_be_outage(history: History, fitting: SkillCall, call: Call) -> bool:
    """Whether an error is that of a service, or can't be read and names none of the skill's constants."""
    if history.english.reads(call.text):
        return history.english.is_infrastructure(call.text)
    return not any(mentions(call.text, item) for item in _constants(fitting.arguments))


def _succeeded_again(history: History, call: Call) -> bool:
    return any(
        other.name == call.name
        and other.status == "succeeded"
        and other.seq > call.seq
        and canonical(other.arguments) == canonical(call.arguments)
        for other in history.calls.values()
    )


def _has_constants(call: SkillCall) -> bool:
    return any(_constants(call.arguments))


def _constants(value: Json) -> Iterable[Json]:
    """Yield the values of a skill's arguments that are no slots."""
    if is_slot(value):
        return
    if isinstance(value, dict):
        for item in value.values():
            yield from _constants(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _constants(item)
    else:
        yield from (item for _, item in leaves(value) if item is not None)


def _rejected_by(skill: SkillRow, task: Task, known: list[str]) -> tuple[Call, str] | None:
    """Return a call that followed a skill with constants that its task never named, and why it was rejected."""
    for one in task.tries:
        for attempt in one.attempts:
            verdict = attempt.verdict
            if verdict is None or verdict.status != "REJECTED":
                continue
            for call in attempt.calls:
                fitting = _fitting(skill, call)
                misleads = fitting and (_foreign_constants(fitting, known) or _is_repeated(fitting, one))
                if misleads and not call.failed:
                    return call, " ".join(verdict.reasons)
    return None


def _is_repeated(fitting: SkillCall, one: Try) -> bool:
    """Whether several attempts made the skill's call with its values, and each was rejected."""
    rejected = [item for item in one.attempts if item.verdict and item.verdict.status == "REJECTED"]
    made = [item for item in rejected if any(_has_values_of(fitting, call) for call in item.calls)]
    return len(made) == len(one.attempts) > 1


def _has_values_of(fitting: SkillCall, call: Call) -> bool:
    """Whether a call is the skill's with its constants, or with the examples of its slots that no task fills."""
    given = {canonical(value) for _, value in leaves(call.arguments)}
    taken = [*_constants(fitting.arguments), *_examples(fitting.arguments)]
    return matches(fitting, call.name, call.arguments) and any(canonical(value) in given for value in taken)


def _examples(value: Json) -> Iterable[Json]:
    """Yield the values that slots which no task fills had when the skill was learned."""
    if isinstance(value, dict):
        if is_slot(value):
            yield from [value.get("example")] if value["from"] != "task" else []
        else:
            for item in value.values():
                yield from _examples(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _examples(item)


def _foreign_constants(call: SkillCall, known: list[str]) -> bool:
    return any(isinstance(item, str) and not is_grounded(item, known) for item in _constants(call.arguments))


def _incident(history: History, task: Task, skill: SkillRow, call: Call, became: str) -> Incident:
    state = f" The skill is {skill.state} now: {skill.reason}" if skill.state != "active" and skill.reason else ""
    text = (
        f"Agent {who(task)} followed the skill {skill.id[-8:]} ({said(skill.template, 100)}) in {task_text(task)} and "
        f"called {call_text(call)}; {became}. The skill no longer fits.{state}"
    )
    return task_incident("stale_skill", history, task, text, [call])
