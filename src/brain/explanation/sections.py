"""What an explanation tells besides causes: what was asked and planned, what failed, verdicts, retries and waits."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from brain.explanation.history import Attempt, History, Task, Try
from brain.explanation.rules.ignored_errors import passed_over
from brain.explanation.rules.incident import Reference, call_text, event, said, task_text, who, why_failed
from brain.explanation.rules.people import owner, waited_for
from brain.explanation.rules.table import explain_task
from brain.explanation.shape import (
    Asked,
    DegradedNote,
    FailureNote,
    PassedOver,
    Planned,
    PlannedTask,
    PlanVersion,
    Ref,
    Retry,
    VerdictNote,
    Wait,
)
from brain.explanation.texts import counted, duration, moment, shortened
from starling.core.task_paths import is_within, without_numbers
from starling.infra.postgres.runs.interrupts import StoredInterrupt

MOST: Final = 300
"""How many entries a list of an explanation has at most."""

_REQUEST_CHARS: Final = 4_000
_TEXT_CHARS: Final = 600
_BECAME: Final = {"approved": "was approved", "failed": "failed", "running": "has not ended"}
_QUEUE_SECONDS: Final = 1.0  # a shorter wait is not told
_LOSSES: Final = {None: 0, "lost": 1, "due": 2, "alone": 2}  # of the isolation of a run; later ones are its crashes


def asked(history: History) -> Asked:
    """Return what was asked."""
    run = history.rows.run
    agent = run.config.get("agent")
    to = f" and sent to {agent}" if agent else ""
    text = f"The request was accepted at {moment(run.created_at)}{to}: {said(run.input, 200)}."
    return Asked(
        text=text,
        request=run.input[:_REQUEST_CHARS],
        mode=str(run.config.get("mode", "MODERATE")),
        channel=str(run.config.get("channel", "CHAT")),
        agent=agent,
        at=run.created_at,
    )


def planned(history: History) -> Planned:
    """Return every version of every plan."""
    versions = [
        PlanVersion(
            star=plan.star,
            version=plan.version,
            why=shortened(plan.why, _TEXT_CHARS),
            tasks=[_planned_task(history, plan.star, task) for task in plan.tasks],
            refs=_refs([event(plan.seq)]),
        )
        for plan in history.plans[:MOST]
    ]
    return Planned(text=_planned_text(history), versions=versions)


def _planned_task(history: History, star: str, task: Mapping[str, Any]) -> PlannedTask:
    place = f"{star}/{task['id']}" if star else task["id"]
    return PlannedTask.model_validate(
        {
            "path": place,
            "agent": task["agent"],
            "task": shortened(task["task"], _TEXT_CHARS),
            "depends_on": task["depends_on"],
            "status": _status(history, history.tasks[place]),
        }
    )


def _status(history: History, task: Task) -> str:
    """Return the status of a task: `waiting` where it runs and nobody has answered its question yet."""
    open_at = [without_numbers(item.path) for item in history.rows.interrupts if item.state == "open"]
    is_waiting = task.status == "running" and any(is_within(path, task.place) for path in open_at)
    return "waiting" if is_waiting else task.status


def _planned_text(history: History) -> str:
    main = [plan for plan in history.plans if not plan.star]
    if not main:
        return "No plan is kept." if history.rows.run.trimmed else "Nothing was planned."
    states = Counter(_status(history, task) for task in history.main_tasks)
    became = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    inner = len(history.plans) - len(main)
    teams = f" Teams made {counted(inner, 'plan')} of their own." if inner else ""
    why = f" Why: {said(main[0].why, 300)}." if main[0].why else ""
    tasks = f"{counted(len(history.main_tasks), 'task')} ({became})" if states else "no task"
    return f"The supervisor planned {tasks} in {counted(len(main), 'version')} of the plan.{why}{teams}"


def failures(history: History) -> list[FailureNote]:
    """Return the tasks that failed, in order, and those that never ran because of them."""
    found = [
        (one.end.seq, _failure(history, task, one))
        for task in history.tasks.values()
        for one in task.tries
        if one.end and one.end.status == "failed"
    ]
    notes = [note for _, note in sorted(found, key=lambda item: item[0])]
    return [*notes, *_unreached(history)][:MOST]


def _failure(history: History, task: Task, one: Try) -> FailureNote:
    end, recovered = one.end, one is not task.last and task.status == "approved"
    assert end is not None
    code, whole = end.code or "failed", why_failed(history, task) if one is task.last else end.summary
    if one is task.last and task.status == "failed":
        incident = explain_task(history, task)
        code = incident.code
    followed = _followed_from(history, task)
    more = " It was done in a later try." if recovered else f" It follows from {followed}." if followed else ""
    text = f"Agent {one.agent} failed at {task_text(task)} in {_attempts(one)}: {said(whole, 400)}.{more}"
    refs = [Reference("task", one.path), event(end.seq)]
    return FailureNote(
        task=task.place,
        agent=one.agent,
        code=code,
        text=text,
        followed_from=followed,
        recovered=recovered,
        refs=_refs(refs),
    )


def _followed_from(history: History, task: Task) -> str | None:
    """Return what a failure follows from: of a team's task, the member that failed first."""
    inside = [inner for inner in history.inside(task.place) if inner.status == "failed" and history.counts(inner)]
    return inside[0].place if inside else None


def _unreached(history: History) -> Iterator[FailureNote]:
    if not history.ended:
        return
    for task in history.tasks.values():
        if task.tries or not history.counts(task):
            continue
        blocked = [other for other in history.siblings(task) if other.id in history.needed(task)]
        failed = next((other for other in blocked if other.status == "failed"), None)
        why = f"it needed {failed.place}, which failed" if failed else "the run ended before its turn"
        yield FailureNote(
            task=task.place,
            agent=task.agent,
            code="never_reached",
            text=f"Agent {task.agent} never began {task_text(task)}: {why}.",
            followed_from=failed.place if failed else None,
            recovered=False,
            refs=_refs([Reference("task", task.place), event(task.planned)]),
        )


def verdicts(history: History) -> list[VerdictNote]:
    """Return every verdict with the calls that it rested on."""
    return [
        _verdict(task, attempt)
        for task in history.tasks.values()
        for one in task.tries
        for attempt in one.attempts
        if attempt.verdict
    ][:MOST]


def _verdict(task: Task, attempt: Attempt) -> VerdictNote:
    verdict = attempt.verdict
    assert verdict is not None
    rested = ", ".join(f"{call.name} ({call.status or 'no answer'})" for call in attempt.calls[:5])
    on = f"It rested on {rested}." if rested else "It rested on what the agent wrote; no tool was called."
    why = f" {said(' '.join(verdict.reasons), 300)}." if verdict.reasons else ""
    return VerdictNote.model_validate(
        {
            "task": task.place,
            "attempt": attempt.number,
            "status": verdict.status,
            "text": f"{verdict.status} for attempt {attempt.number} of {who(task)} at task {task.place}.{why} {on}",
            "reasons": [shortened(reason, _TEXT_CHARS) for reason in verdict.reasons[:20]],
            "rested_on": [call.id for call in attempt.calls],
            "refs": [{"kind": "event", "id": str(verdict.seq)}],
        }
    )


def passed_over_errors(history: History) -> list[PassedOver]:
    """Return the errors of tools in approved results that agents passed over."""
    return [
        PassedOver(
            task=task.place,
            agent=who(task),
            tool=call.name,
            call=call.id,
            text=f"{call_text(call)} answered {said(call.text, 300)} in task {task.place}, and {who(task)} went on.",
            refs=_refs([Reference("call", call.id), event(call.end or call.seq)]),
        )
        for task, _, call in passed_over(history)
    ][:MOST]


def retried(history: History) -> list[Retry]:
    """Return what was done again."""
    return [*_tries(history), *_repeated_calls(history), *_model_retries(history), *_takeovers(history)][:MOST]


def _tries(history: History) -> Iterator[Retry]:
    for task in history.tasks.values():
        if len(task.tries) > 1:
            text = f"Task {task.place} was tried {len(task.tries)} times; the last try is {task.status}."
            refs = [event(one.seq) for one in task.tries]
            yield Retry(kind="task", task=task.place, count=len(task.tries), text=text, refs=_refs(refs))
        for one in task.tries:
            if len(one.attempts) > 1:
                count, state = len(one.attempts), _BECAME[one.end.status if one.end else "running"]
                text = f"Agent {one.agent} made {count} attempts at task {one.path}, which {state}."
                refs = [event(attempt.seq) for attempt in one.attempts]
                yield Retry(kind="attempt", task=task.place, count=count, text=text, refs=_refs(refs))


def _repeated_calls(history: History) -> Iterator[Retry]:
    for task in history.tasks.values():
        for one in task.tries:
            for name in dict.fromkeys(call.name for call in one.calls if call.failed):
                again = [later for later in one.calls if later.name == name]
                if len(again) > 1:
                    states = ", ".join(later.status or "no answer" for later in again)
                    text = f"Agent {one.agent} called {name} {len(again)} times in task {one.path}: {states}."
                    refs = [Reference("call", later.id) for later in again]
                    yield Retry(kind="call", task=task.place, count=len(again), text=text, refs=_refs(refs))


def _model_retries(history: History) -> Iterator[Retry]:
    failed: dict[str, list[Any]] = {}
    for step in history.rows.steps:
        if step.type == "llm_call" and step.metadata.get("error"):
            failed.setdefault(step.path, []).append(step)
    for path, steps in failed.items():
        codes = ", ".join(sorted({str(step.metadata["error"]) for step in steps}))
        text = f"A model of {owner(history, path)} failed {counted(len(steps), 'time')} at {path} ({codes})."
        refs = [Reference("step", str(step.number)) for step in steps]
        yield Retry(kind="model", task=None, count=len(steps), text=text, refs=_refs(refs))


def _takeovers(history: History) -> Iterator[Retry]:
    """Return how often another worker continued the run, as far as its row tells: at least so often."""
    run = history.rows.run
    resumed = sum(item.state in {"resolved", "expired"} for item in history.rows.interrupts)
    lost, happened = _LOSSES[run.isolation] + run.crashes, "ended, or lost it,"
    if not lost:
        lost, happened = max(0, run.claims - 1 - resumed), "stopped"
    if lost:
        text = (
            f"The worker of the run {happened} {counted(lost, 'time')} in the middle of it, and another one continued."
        )
        yield Retry(kind="run", task=None, count=lost, text=text, refs=[])


def degraded(history: History) -> list[DegradedNote]:
    """Return the parts of the answer that are missing, each with its failed task, or with a reason of its own."""
    parts = (history.rows.run.result or {}).get("degraded") or ()
    failed = {task.text: task.place for task in reversed(history.failed_tasks())}
    return [_degraded(part, failed.get(part["part"])) for part in parts[:MOST]]


def _degraded(part: Mapping[str, Any], task: str | None) -> DegradedNote:
    why = f", because task {task} failed" if task else f": {said(part['reason'], 400)}"
    text = f"{said(part['part'], 160)} was not answered{why}."
    return DegradedNote(part=str(part["part"]), reason=str(part["reason"]), text=text)


def waited(history: History, now: datetime) -> list[Wait]:
    """Return what the run waited for, and for how long."""
    return [*_queued(history, now), *(_wait(history, item, now) for item in history.rows.interrupts)][:MOST]


def _queued(history: History, now: datetime) -> Iterator[Wait]:
    run = history.rows.run
    until = run.started_at or run.ended_at or now
    seconds = (until - run.created_at).total_seconds()
    if seconds >= _QUEUE_SECONDS:
        is_open = not run.started_at and not run.ended_at
        became = " before a worker began it" if run.started_at else ", and no worker began it"
        text = f"The run {'has waited' if is_open else 'waited'} {duration(seconds)} in the queue{became}."
        state = "open" if is_open else "over"
        yield Wait(kind="queue", state=state, seconds=round(seconds, 3), text=text, refs=[])


def _wait(history: History, item: StoredInterrupt, now: datetime) -> Wait:
    begin = item.created_at or history.rows.run.created_at
    end = item.answered_at or (now if item.state == "open" else item.expires_at)
    seconds = max(0.0, (end - begin).total_seconds())
    became = {
        "open": f"; nobody has given it yet, and it expires at {moment(item.expires_at)}",
        "resolved": f", until {item.answered_by or 'somebody'} answered",
        "cancelled": ", until the question was declined" if item.answered_by else ", until the run was ended",
        "expired": f", and nobody answered until {moment(item.expires_at)}",
    }[item.state]
    has = "has waited" if item.state == "open" else "waited"
    text = f"The run {has} {duration(seconds)} for {waited_for(item)} ({item.path}){became}."
    refs = [event(history.asked[item.id])] if item.id in history.asked else []
    return Wait(kind=item.kind, state=item.state, seconds=round(seconds, 3), text=text, refs=_refs(refs))


def _attempts(one: Try) -> str:
    return counted(max(1, len(one.attempts)), "attempt")


def _refs(found: Iterable[Reference]) -> list[Ref]:
    return [Ref(kind=ref.kind, id=ref.id) for ref in dict.fromkeys(found)]
