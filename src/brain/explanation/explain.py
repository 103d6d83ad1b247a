"""From the document of a run to its explanation: causes, then what was asked, planned, done again and waited for.

Pure: asks no model and reads nothing.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from brain.explanation.causes import find_causes, model_notices, task_causes
from brain.explanation.facts import RunFacts, call_text, counted, duration, event, moment, said, task_text, uncorrected
from brain.explanation.shape import (
    AgentCost,
    Asked,
    Cost,
    DegradedNote,
    Explanation,
    FailureNote,
    Note,
    PassedOver,
    Planned,
    PlanNote,
    Ref,
    Repetition,
    TaskNote,
    VerdictNote,
    Wait,
)
from starling.core.run_document.document import RunDocument
from starling.core.run_document.rows import REVIEWS
from starling.core.task_paths import without_numbers
from starling.core.text import one_line

_TEXT_CHARS: Final = 600
_MOST: Final = 300  # entries of a list
_QUEUE_SECONDS: Final = 1.0  # a shorter wait is not told
_NODES: Final = {"supervisor": "the supervisor", "qa": "the final answer"}
_WAITED_FOR: Final = {
    "approval": "the approval",
    "clarification": "the answer to a question",
    "budget": "more tokens",
    "in_doubt": "a decision about the outcome",
}


def explain(document: RunDocument, now: datetime) -> Explanation:
    """Explain the outcome of a run; one that has not ended is explained as far as it is at `now`."""
    facts = RunFacts(document)
    causes = find_causes(facts)[:_MOST]
    return Explanation(
        run_id=document.run_id,
        status=document.status,
        cause=causes[0] if causes else None,
        causes=causes,
        look_at=list(look_at(facts))[:_MOST],
        asked=asked(document),
        planned=planned(facts),
        failures=list(failures(facts))[:_MOST],
        verdicts=list(verdicts(document))[:_MOST],
        passed_over=list(passed_over(facts))[:_MOST],
        retried=[*_tries(facts), *_repeated_calls(facts), *_model_retries(facts), *_takeovers(document)][:_MOST],
        degraded=list(degraded(facts))[:_MOST],
        waited=list(waits(document, now))[:_MOST],
        cost=cost(facts, now),
        pruned=document.pruned,
    )


def asked(run: RunDocument) -> Asked:
    """Return what was asked."""
    agent = run.config.get("agent")
    to = f" and sent to {agent}" if agent else ""
    text = f"The request was accepted at {moment(run.created_at)}{to}: {said(run.input, 200)}."
    mode, channel = (str(run.config.get(name, usual)) for name, usual in (("mode", "MODERATE"), ("channel", "CHAT")))
    return Asked(text, run.input[:4_000], mode, channel, str(agent) if agent else None, run.created_at)


def planned(facts: RunFacts) -> Planned:
    """Return every version of every plan."""
    versions: list[PlanNote] = []
    for plan in facts.document.plans:
        tasks: list[TaskNote] = []
        for task in plan.tasks:
            place = without_numbers(f"{plan.star}/{task['id']}" if plan.star else task["id"])
            tries = facts.tries.get(place)  # none where it was taken out of the plan
            status = facts.status(tries[-1]) if tries else "removed"
            text = one_line(task["task"], _TEXT_CHARS)
            tasks.append(TaskNote(place, task["agent"], text, task["depends_on"], status))
        why = one_line(plan.thought_process, _TEXT_CHARS)
        of_team = f" of the team at {plan.star}" if plan.star else ""
        changes = [f"{change.task_id} was {change.kind} ({change.reason})" for change in plan.changes]
        changed = f". Changes: {'; '.join(changes)}" if changes else ""
        text = f"Version {plan.version}{of_team}: {'; '.join(map(_planned, tasks)) or why}{changed}"
        versions.append(PlanNote(plan.star, plan.version, why, text, tasks, [event(plan.seq)]))
    main = [version for version in versions if not version.star]
    if not main:
        pruned = any(one.what == "events" for one in facts.document.pruned)
        return Planned("No plan is kept." if pruned else "Nothing was planned.", versions)
    states = Counter(facts.status(task) for task in facts.main_tasks)
    count = ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
    what = f"{counted(len(facts.main_tasks), 'task')} ({count})" if states else "no task"
    why = f" Why: {said(main[0].why, 300)}." if main[0].why else ""
    return Planned(f"The supervisor planned {what} in {counted(len(main), 'version')} of the plan.{why}", versions)


def _planned(task: TaskNote) -> str:
    after = f" after {', '.join(task.depends_on)}" if task.depends_on else ""
    return f"{task.path} {task.agent}{after} ({task.status}): {task.task}"


def failures(facts: RunFacts) -> Iterator[FailureNote]:
    """Yield the tries of tasks that failed, in order, then the tasks that never began in an ended run."""
    for task in sorted((one for one in facts.document.tasks if one.status == "failed"), key=lambda one: one.seq):
        last = facts.tries[task.place][-1]
        recovered = last is not task and last.status == "approved"
        found = list(task_causes(facts, task)) if last is task else []
        followed = next((other.place for other in facts.members(task) if other.status == "failed"), None)
        more = " It was done in a later try." if recovered else f" It follows from {followed}." if followed else ""
        attempts = counted(max(1, len(task.attempts)), "attempt")
        text = f"Agent {task.agent} failed at {task_text(task)} in {attempts}: {said(task.summary, 400)}.{more}"
        code = found[-1].code if found else task.code or "failed_task"
        refs = [Ref("task", task.path), event(task.seq)]
        yield FailureNote(text, refs, task.place, task.agent, code, followed, recovered)
    for task in (one for one in facts.tasks.values() if one.status == "pending" and facts.ended):
        needed = facts.blocked_by(task)
        why = f"it depends on {needed.place}, which failed" if needed else "the run ended before its turn"
        text = f"Agent {task.agent} never began {task_text(task)}: {why}."
        refs = [Ref("task", task.place), *(event(one.seq) for one in facts.document.plans[:1])]
        followed = needed.place if needed else None
        yield FailureNote(text, refs, task.place, task.agent, "never_reached", followed, recovered=False)


def verdicts(run: RunDocument) -> Iterator[VerdictNote]:
    """Yield the verdicts about attempts, each with the calls that it rested on."""
    for task, attempt in ((each, attempt) for each in run.tasks for attempt in each.attempts):
        if verdict := attempt.verdict:
            rested = ", ".join(f"{call.name} ({call.status or 'no answer'})" for call in attempt.calls[:5])
            on = f"It rested on {rested}." if rested else "It rested on what the agent wrote; no tool was called."
            why = f" {said(' '.join(verdict.reasons), 300)}." if verdict.reasons else ""
            text = f"{verdict.status} for attempt {attempt.number} of {task.agent} at task {task.place}.{why} {on}"
            reasons = [one_line(reason, _TEXT_CHARS) for reason in verdict.reasons[:20]]
            calls = [call.id for call in attempt.calls]
            yield VerdictNote(text, [event(verdict.seq)], task.place, attempt.number, verdict.status, reasons, calls)


def passed_over(facts: RunFacts) -> Iterator[PassedOver]:
    """Yield the failed calls of approved results that agents passed over."""
    for task in facts.tasks.values():
        for call in uncorrected(task.attempts[-1].calls) if task.status == "approved" and task.attempts else ():
            answered = f"{call_text(call)} answered {said(call.result, 300)}"
            text = f"{answered} in task {task.place}, and {task.agent} went on."
            refs = [Ref("call", call.id), event(call.seq)]
            yield PassedOver(text, refs, task.place, task.agent, call.name, call.id)


def look_at(facts: RunFacts) -> Iterator[Note]:
    """Yield what structure does not judge: texts that nobody checked, rejected results, skills that were followed."""
    for task in facts.tasks.values():
        calls, refs, who = list(task.calls), [Ref("task", task.place)], f"{task.agent} in task {task.place}"
        checked = calls or any(one.verdict for one in task.attempts) or facts.members(task)
        if task.status == "approved" and task.attempts and not checked:
            yield Note(f"The answer of {who} was text: no tool was called and nobody checked it.", refs, task.place)
        if task.code == "rejected" and calls and not any(call.failed for call in calls):
            text = f"All calls of {who} succeeded: compare their results with the verdicts."
            yield Note(text, [*refs, *(Ref("call", call.id) for call in calls[:3])], task.place)
        for skill in (one for one in task.skills if one.followed and task.status == "failed"):
            text = f"Agent {who} followed the skill {said(skill.task, 100)} ({skill.id}) and failed."
            yield Note(text, refs, task.place)
    if facts.ended and (unwritten := model_notices(facts, undecided=False)):
        text = f"The final answer lists the results, because no model wrote it ({unwritten[0].code})."
        yield Note(text, [event(unwritten[0].seq)], None)


def _tries(facts: RunFacts) -> Iterator[Repetition]:
    for place, tries in facts.tries.items():
        if len(tries) > 1:
            text = f"Task {place} was tried {len(tries)} times; the last try is {tries[-1].status}."
            refs = [event(one.attempts[0].seq) for one in tries if one.attempts]
            yield Repetition(text, refs, place, "task", len(tries))
        for one in tries:
            if (count := len(one.attempts)) > 1:
                text = f"Agent {one.agent} made {count} attempts at task {one.path} ({one.status})."
                yield Repetition(text, [event(attempt.seq) for attempt in one.attempts], place, "attempt", count)


def _repeated_calls(facts: RunFacts) -> Iterator[Repetition]:
    for task in facts.document.tasks:
        for name in dict.fromkeys(call.name for call in task.calls if call.failed):
            calls = [call for call in task.calls if call.name == name]
            if len(calls) > 1:
                states = ", ".join(call.status or "no answer" for call in calls)
                text = f"Agent {task.agent} called {name} {len(calls)} times in task {task.path}: {states}."
                yield Repetition(text, [Ref("call", call.id) for call in calls], task.place, "call", len(calls))


def _model_retries(facts: RunFacts) -> Iterator[Repetition]:
    failed = [call for call in facts.document.model_calls() if call.error]
    for path in dict.fromkeys(call.path for call in failed):
        calls = [call for call in failed if call.path == path]
        codes = ", ".join(sorted({call.error for call in calls}))
        text = f"A model of {_owner(facts, path)} failed {counted(len(calls), 'time')} at {path} ({codes})."
        yield Repetition(text, [Ref("step", str(call.step)) for call in calls], None, "model", len(calls))


def _takeovers(run: RunDocument) -> Iterator[Repetition]:
    """Yield how often another worker continued the run, beside the times when it went on after a question."""
    over = [one for one in run.interrupts if one.state != "open" and (one.state != "cancelled" or one.answered_by)]
    lost = run.claims - 1 - len(over)
    if lost > 0 and run.code != "cancelled":
        text = f"The worker of the run stopped {counted(lost, 'time')} in the middle of it, and another one continued."
        yield Repetition(text, [], None, "run", lost)


def degraded(facts: RunFacts) -> Iterator[DegradedNote]:
    """Yield the parts of the answer that are missing, each with its failed task, or with a reason of its own."""
    failed = {task.text: task.place for task in reversed(facts.failed()) if not task.star}
    for part, reason in facts.degraded.items():
        why = f", because task {failed[part]} failed" if part in failed else f": {said(reason, 400)}"
        yield DegradedNote(part, reason, f"{said(part, 160)} was not answered{why}.")


def waits(run: RunDocument, now: datetime) -> Iterator[Wait]:
    """Yield how long the run waited in the queue and for people."""
    seconds = ((run.started_at or run.ended_at or now) - run.created_at).total_seconds()
    if seconds >= _QUEUE_SECONDS:
        is_open = not run.started_at and not run.ended_at
        until = " before a worker began it" if run.started_at else ", and no worker began it"
        text = f"The run {'has waited' if is_open else 'waited'} {duration(seconds)} in the queue{until}."
        yield Wait("queue", "open" if is_open else "over", round(seconds, 3), text, [])
    for item in run.interrupts:
        over = item.answered_at or (now if item.state == "open" else item.expiresAt)
        seconds = max(0.0, (over - (item.createdAt or run.created_at)).total_seconds())
        end = {
            "open": f"; nobody has given it yet, and it expires at {moment(item.expiresAt)}",
            "resolved": f", until {item.answered_by or 'somebody'} answered",
            "cancelled": ", until the question was declined" if item.answered_by else ", until the run was ended",
            "expired": f", and nobody answered until {moment(item.expiresAt)}",
        }[item.state]
        what = f"{_WAITED_FOR[item.kind]}{f' of {item.call["name"]}' if item.call else ''}"
        at = f" ({item.path})" if item.path else ""
        text = f"The run {'has waited' if item.state == 'open' else 'waited'} {duration(seconds)} for {what}{at}{end}."
        yield Wait(item.kind, item.state, round(seconds, 3), text, [event(item.seq)] if item.seq else [])


def cost(facts: RunFacts, now: datetime) -> Cost:
    """Return what the run cost, in all and by agent; without a result, as far as its rows tell."""
    run, models = facts.document, list(facts.document.model_calls())
    costs: defaultdict[str, AgentCost] = defaultdict(lambda: AgentCost("", 0, 0, 0, 0.0))
    for call in models:
        cost = costs[name := _owner(facts, call.path)]
        costs[name] = replace(cost, agent=name, tokens=cost.tokens + call.tokens, model_calls=cost.model_calls + 1)
    for agent, call in ((task.agent, call) for task in run.tasks for call in task.calls):
        cost = costs[agent]
        seconds = round(cost.tool_seconds + (call.ms or 0.0) / 1000, 3)
        costs[agent] = replace(cost, agent=agent, tool_calls=cost.tool_calls + 1, tool_seconds=seconds)
    by_agent = sorted(costs.values(), key=lambda one: -one.tokens)
    tokens, read = sum(call.tokens for call in models), sum(call.input_tokens for call in models)
    so_far = {"tokens": tokens, "input_tokens": read, "output_tokens": tokens - read, "model_calls": len(models)}
    so_far["tool_calls"] = sum(one.tool_calls for one in by_agent)
    usage: Mapping[str, Any] = (run.result or {}).get("usage") or so_far
    numbers = {name: int(usage.get(name) or 0) for name in so_far}
    seconds = ((run.ended_at or now) - run.created_at).total_seconds()
    most = by_agent[0] if by_agent and by_agent[0].tokens else None
    by = f" Most of the tokens were used by {most.agent}: {most.tokens:,}." if most else ""
    calls = f"{counted(numbers['model_calls'], 'model call')} and {counted(numbers['tool_calls'], 'tool call')}"
    text = f"{numbers['tokens']:,} tokens in {calls}, in {duration(seconds)}.{by}"
    estimated = bool(usage.get("estimated"))
    return Cost(text=text, seconds=round(seconds, 3), estimated=estimated, by_agent=by_agent, **numbers)


def _owner(facts: RunFacts, path: str) -> str:
    """Return who asks a model at a path: an agent, the reviewer, the supervisor or the final answer."""
    place = without_numbers(path)
    nodes = place.split("/")[-2:]
    if path.endswith(REVIEWS):
        return "the reviewer"
    if place not in facts.tries and nodes[0] in _NODES:
        return _NODES[nodes[0]]
    tries = facts.tries.get(place) or facts.tries.get(place.rpartition("/")[0]) or ()
    return tries[-1].agent if tries else path or "the run"
