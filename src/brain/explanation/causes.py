"""The causes of a run's outcome, by codes, states and the order of events; none if it answered everything."""

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Final

from brain.explanation.facts import RunFacts, call_text, counted, duration, event, moment, said, task_text, uncorrected
from brain.explanation.shape import Cause, CauseCode, Ref
from starling.core.artifacts import READ_ARTIFACT
from starling.core.run_document.document import Call, LeftOutTask, Notice, TaskRecord
from starling.core.run_status import RunStatus
from starling.core.task_paths import is_within, without_numbers
from starling.core.teams.building import NOT_BUILT
from starling.core.tool_calls import UNCERTAIN, CallState

type _Meaning = tuple[CauseCode, str]

_DOUBT: Final[_Meaning] = "effect_in_doubt", "it is unknown whether the call was done"
_SILENT: Final = ("llm_timeout", "llm_connection_error", "llm_server_error", "model_error")
_MEANINGS: Final[Mapping[str, _Meaning]] = {
    # of calls
    "tool_error": ("tool_failed", "the tool answered with an error"),
    "invalid_arguments": ("wrong_argument", "the arguments were refused"),
    "secret_in_arguments": ("wrong_argument", "an argument looks like a key"),
    "not_allowed": ("unknown_tool", "the agent has no tool of this name that the run may call"),
    "timeout": ("call_timed_out", "there was no answer in time"),
    "memory_limit": ("degraded_server", "the server used too much memory and was ended"),
    "invalid_result": ("invalid_result", "the answer is malformed or violates the tool's output schema"),
    "removed": ("changed_tool", "the tool is no longer offered as it was when the run began"),
    "quarantined": ("changed_tool", "the tool is not offered as it was approved"),
    "over_limit": ("limit_reached", "a limit on tool calls was reached"),
    **dict.fromkeys(("not_approved", "repeat_refused"), ("refused_approval", "the call was not approved")),
    "not_repeated": ("effect_in_doubt", "an earlier equal call may have been done, so it was not repeated"),
    "interrupted": _DOUBT,
    "lease_lost": _DOUBT,
    # of calls, of tasks, and of tasks that could not be planned
    "outcome_unknown": _DOUBT,
    "server_unavailable": ("degraded_server", "the server could not be used"),
    "switched_off": ("switched_off", "a kill switch stopped it"),
    "agent_unavailable": ("agent_unavailable", "the agent could not be used"),
    "unknown_agent": ("unknown_agent", "there is no such agent"),
    "not_granted": ("not_allowed", "the key or the mode of the run does not allow this agent"),
    "bad_dependency": ("bad_plan_order", "it depends on a task that is not in the plan, or on itself"),
    "limit_reached": ("limit_reached", "the plan had more tasks than a run may have"),
    # of tasks
    "unable": ("unable_agent", "the agent gave no result"),
    "llm_invalid_response": ("unreadable_model_output", "the model wrote something that can't be read"),
    **dict.fromkeys(_SILENT, ("model_unavailable", "no model answered")),
    "runtime_failed": ("runtime_failed", "the agent runtime failed"),
    **dict.fromkeys(NOT_BUILT, ("build_failed", "no team was built")),
}
"""What the code of a failed call or task means, or of one that could not be planned."""

_ENDS: Final[Mapping[str, _Meaning]] = {
    "cancelled": ("cancelled_by_user", "it was cancelled"),
    "parked": ("parked_run", "its workers ended in the middle of it"),
    "budget_exhausted": ("lost_budget", "its tokens were used up"),
    "deadline_exceeded": ("deadline_exceeded", "its time ran out"),
    "internal": ("internal_error", "a fault of the platform itself ended it"),
    "journal_diverged": ("journal_diverged", "its wording, tools or settings changed after it began"),
    "runtime_unavailable": ("runtime_failed", "the worker lacks a runtime that it needs"),
}
"""What the code of a run or task means that was ended by what is outside of its tasks."""

_CODES: Final = {**_MEANINGS, **_ENDS}
_MODELS: Final = ("llm_invalid_response", *_SILENT)
_LIMITS: Final = ("limit_reached", "circuit_breaker")


def find_causes(facts: RunFacts) -> list[Cause]:
    """Return what went wrong and was not made up for: what ended the run first, then in the order of events.

    Of each code and task the first is kept.
    """
    document = facts.document
    if document.status is RunStatus.SUCCEEDED and not facts.degraded:
        return []
    ended, found = list(_end_of_run(facts)), sorted(_incidents(facts), key=_first_event)
    if any(one.what == "events" for one in document.pruned):  # only the result of the run is left
        parts = [(said(part, 120), said(reason)) for part, reason in facts.degraded.items()]
        found = [Cause(f"The part {part} was not answered: {why}.", [], None, "failed_task") for part, why in parts]
    if not ended and not found and facts.ended:
        named = f" with the code {document.code}" if document.code else ""
        text = f"The run ended as {document.status}{named}: {said(facts.reply)}."
        found = [Cause(text, [event(document.events)], None, "failed_run")]
    first: dict[tuple[str, str | None, str], Cause] = {}
    for cause in (*ended, *found):
        text = "" if cause.task or cause.code == "limit_reached" else cause.text
        first.setdefault((cause.code, cause.task, text), cause)
    return list(first.values())


def _end_of_run(facts: RunFacts) -> Iterator[Cause]:
    """Yield why the run ended where no task ended it: it was cancelled, or its time, tokens or steps were used up."""
    run = facts.document
    if run.code not in _ENDS:
        return
    code, what = _ENDS[run.code]
    took = duration((run.ended_at - run.created_at).total_seconds()) if run.ended_at else ""
    cut_off = [task for task in facts.main_tasks if task.status == "running" or task.code == run.code]
    cut = ", ".join(f"{task_text(task)} of agent {task.agent}" for task in cut_off)
    withdrawn = [item for item in run.interrupts if item.state == "cancelled" and item.answered_by is None]
    refused = [item for item in run.interrupts if item.kind == "budget" and item.state != "resolved"]
    parts = [f"The run ended early{took and f', {took} after it was accepted'}: {what} ({run.code})."]
    parts += [f"It cut off {cut}."] if cut else []
    parts += [f"It waited for an answer to: {said(item.message, 120)}." for item in withdrawn[:3]]
    parts += [f"{item.reason.rstrip('.')}; the question for more tokens is {item.state}." for item in refused[:1]]
    parts += [f"The message was {said(run.why.message)}."] if run.why else []
    refs = [event(item.seq) for item in (*refused, *withdrawn) if item.seq] or [event(run.events)]
    yield Cause(" ".join(parts), refs, None, code)


def _incidents(facts: RunFacts) -> Iterator[Cause]:
    answered = [task for task in facts.tasks.values() if task.status == "approved"]
    members = {member.path for task in answered for member in facts.members(task)}
    unplanned = next(facts.notices("unplanned"), None)  # what failed after it had the wrong agent
    for task in (one for one in facts.failed() if unplanned is None or one.seq < unplanned.seq):
        is_missing = not task.star or (task.path in members and task.text in facts.degraded)
        if is_missing and (task.code != facts.document.code or task.code not in _ENDS):  # else the end cut it off
            yield from task_causes(facts, task)
    if not facts.ended:
        return
    tried = {task.text for task in facts.tasks.values() if task.status != "approved"}
    parts = {text: reason for text, reason in facts.degraded.items() if text not in tried}
    left_out = {item.task: item for item in facts.document.left_out if item.task in parts}
    yield from _left_out(facts, list(left_out.values()))
    doubtful: list[Cause] = []
    for task in answered:
        done = [(call.name, call.args) for call in task.calls if call.status == "succeeded"]
        uncertain = (call for call in task.calls if call.state in UNCERTAIN and (call.name, call.args) not in done)
        doubtful += [_of_call(task, call, _DOUBT) for call in uncertain]
    yield from doubtful
    rest = [text for text in parts if text not in left_out]
    for text in rest[: len(rest) - len(doubtful)]:  # those about doubtful calls come last
        yield _unserved(facts, text, parts[text])
    undecided = list(_undecided(facts))
    yield from undecided
    yield from () if undecided or facts.document.code in _ENDS else _unreached(facts)


def task_causes(facts: RunFacts, task: TaskRecord) -> Iterator[Cause]:
    """Yield why each failed try of a task failed; of a team's task, why its members failed or could not be used."""
    for one in (one for one in facts.tries[task.place] if one.status == "failed"):
        members = [other for other in facts.members(one) if other.status == "failed"]
        left_out = facts.left_out(one)
        if (members or left_out) and _rejected(one) is None:
            for member in members:
                yield from task_causes(facts, member)
            yield from _left_out(facts, left_out)
        else:
            yield _cause(facts, one)


def _left_out(facts: RunFacts, items: Sequence[LeftOutTask]) -> Iterator[Cause]:
    """Yield why tasks that a supervisor decided on could not be planned."""
    plans = {(plan.star, plan.version): plan.seq for plan in facts.document.plans}
    for item in items:
        if item.code != "dependency":  # it follows from another one
            seq, place = plans.get((item.star, item.version), 0), without_numbers(item.path)
            code, what = _MEANINGS[item.code]
            reason = facts.degraded.get(item.task, "")
            more = f", {said(reason)}" if reason and item.code not in ("unknown_agent", "not_granted") else ""
            text = f"Task {place} ({said(item.task, 100)}) was not given to agent {item.agent}: {what}{more}."
            yield Cause(text, [event(seq)], place, code)


def _cause(facts: RunFacts, task: TaskRecord) -> Cause:
    """Return why a try of a task failed: a doubtful call, its reviewer, a failed call, else the code of its failure."""
    calls = uncorrected(list(task.calls))
    call = next((call for call in calls if call.code == task.code), calls[0] if calls else None)
    code = task.code or (call.code if call else "")
    if doubtful := _doubtful(facts, task, call):
        return _of_call(task, doubtful, _DOUBT)
    last = task.attempts[-1].calls if task.attempts else ()
    if (rejected := _rejected(task)) and (call is None or (last and not any(one.failed for one in last))):
        return rejected
    if call and (code == call.code or code not in _CODES):
        if code in ("not_approved", "repeat_refused"):
            return _of_call(task, call, *_approval(facts, call))
        if call.malformed and code == "invalid_arguments":
            return _of_call(task, call, ("unreadable_model_output", "the model wrote arguments that can't be read"))
        failed: _Meaning = "tool_failed", "the call failed"
        own = call.name == READ_ARTIFACT  # of the platform: no server offers it
        return _of_call(task, call, failed if own else _MEANINGS.get(call.code, failed))
    meaning, what = _CODES.get(code, ("failed_task", "it failed"))
    models = [one for attempt in task.attempts for one in attempt.model_calls if one.error and code in _MODELS][:5]
    asked = f" Failed requests: {', '.join(f'{one.model} ({one.error})' for one in models)}." if models else ""
    text = f"Agent {task.agent} failed at {task_text(task)}: {what}{_named(code)}, {said(task.summary)}.{asked}"
    refs = [*_task_refs(task), *(Ref("step", str(one.step)) for one in models)]
    return Cause(text, refs, task.place, meaning)


def _of_call(task: TaskRecord, call: Call, meaning: _Meaning, refs: Sequence[Ref] = ()) -> Cause:
    code, what = meaning
    after = f" after {duration(call.ms / 1000)}" if code == "call_timed_out" and call.ms else ""
    uncertain = " The call may have been done." if call.state in UNCERTAIN and code != "effect_in_doubt" else ""
    made = f"Agent {task.agent} called {call_text(call)} in {task_text(task)}"
    text = f"{made}: {what}{after}{_named(call.code)}, {said(call.result)}.{uncertain}"
    return Cause(text, [*_task_refs(task), Ref("call", call.id), event(call.seq), *refs], task.place, code)


def _rejected(task: TaskRecord) -> Cause | None:
    """Return that the reviewer rejected a try, if it rejected the last attempt at it."""
    verdicts = [one.verdict for one in task.attempts if one.verdict]
    rejected = [verdict for verdict in verdicts if verdict.status == "REJECTED"]
    if not rejected or task.attempts[-1].verdict is not rejected[-1]:
        return None
    made, count = len(task.attempts), len(rejected)
    which = f"all {made} attempts" if count == made > 1 else counted(count, "attempt")
    reasons = " ".join(dict.fromkeys(reason for verdict in verdicts for reason in verdict.reasons))
    text = f"The reviewer rejected {which} of agent {task.agent} at {task_text(task)}: {said(reasons)}."
    refs = [*_task_refs(task), *(event(verdict.seq) for verdict in rejected[:3])]
    return Cause(text, refs, task.place, "rejected_result")


def _doubtful(facts: RunFacts, task: TaskRecord, call: Call | None) -> Call | None:
    """Return a call of a task, or of its team, of which nobody knows whether it was done.

    The server may recognize a repetition of an idempotent call, so that one is not in doubt.
    """
    inside = [one for other in facts.document.tasks if is_within(other.path, task.path) for one in other.calls]
    states = (CallState.IN_DOUBT, CallState.DISPATCHED)
    found = next((one for one in inside if one.state in states and one.effect == "unsafe" and one.failed), None)
    return found or (call if call and call.code in ("interrupted", "lease_lost", "not_repeated") else None)


def _approval(facts: RunFacts, call: Call) -> tuple[_Meaning, list[Ref]]:
    """Return why a call was not approved, as far as the answer to the question is kept."""
    asked = [(item, item.call) for item in facts.document.interrupts if item.kind == "approval" and item.call]
    same = [(about["call_id"] != call.id, item) for item, about in asked if about["name"] == call.name]
    _, item = min(same, key=itemgetter(0), default=(True, None))  # of this call, else of an equal one
    if item is None or item.state == "open":
        return _MEANINGS["not_approved"], []
    refs = [event(item.seq)] if item.seq else []
    if item.state == "expired":
        return ("expired_approval", f"nobody answered the question for approval until {moment(item.expiresAt)}"), refs
    how = "refused" if item.state == "resolved" else "withdrawn"
    return ("refused_approval", f"the approval was {' by '.join(filter(None, (how, item.answered_by)))}"), refs


def _unserved(facts: RunFacts, part: str, reason: str) -> Cause:
    """Return a part of the request that the supervisor gave to no agent, perhaps after a question without an answer."""
    text = f"The supervisor gave the part {said(part, 120)} to no agent: {said(reason)}."
    seq = max((plan.seq for plan in facts.document.plans if not plan.star), default=facts.document.events)
    for item in facts.document.interrupts:
        if item.kind == "clarification" and item.state in ("cancelled", "expired"):
            how = "was declined" if item.state == "cancelled" else "was not answered in time"
            text = f"The question {said(item.message)} {how}. {text}"
            return Cause(text, [event(item.seq or seq)], None, "unanswered_question")
    return Cause(text, [event(seq)], None, "unserved_part")


def _undecided(facts: RunFacts) -> Iterator[Cause]:
    """Yield why the supervisor could not decide: no model answered, or with nothing that can be read."""
    if found := model_notices(facts, undecided=True):
        code, what = _MEANINGS[found[-1].code]
        text = f"The supervisor could not plan: {what}{_named(found[-1].code)}, {said(found[-1].message)}."
        yield Cause(text, [event(one.seq) for one in found[:3]], None, code)
    if facts.document.code == "empty_plan":
        text = f"The supervisor planned nothing: {said(facts.reply)}."
        yield Cause(text, [event(facts.document.events)], None, "empty_plan")


def model_notices(facts: RunFacts, *, undecided: bool) -> list[Notice]:
    """Return the model failures after the last plan and task: of a last decision, or else of the final answer.

    The supervisor still had to decide if nothing was planned, or nothing since a task failed, and no limit was reached;
    where it decided nothing and the generalist got the request, its failures come before that.
    """
    plan = max((plan.seq for plan in facts.document.plans if not plan.star), default=0)
    failed = max((task.seq for task in facts.failed() if not task.star), default=0)
    ended = max((task.seq for task in facts.main_tasks), default=0)
    planned_by_none = next(facts.notices("unplanned"), None)
    if planned_by_none:
        return [one for one in facts.notices(*_MODELS) if undecided == (one.seq < planned_by_none.seq)]
    if undecided != (not any(facts.notices(*_LIMITS)) and (failed > plan or not plan)):
        return []
    return [one for one in facts.notices(*_MODELS) if one.seq > max(plan, ended)]


def _unreached(facts: RunFacts) -> Iterator[Cause]:
    """Yield the limit at which planning ended, else the tasks that only a lack of time kept from beginning."""
    limits = list(facts.notices(*_LIMITS))
    for one in limits:
        text = f"Planning ended at a limit{_named(one.code)}: {said(one.message)}."
        yield Cause(text, [event(one.seq)], None, "limit_reached")
    missing = [task for task in facts.main_tasks if task.status == "pending" and task.text in facts.degraded]
    waiting = [task for task in missing if facts.blocked_by(task) is None]
    if waiting and not limits:
        seq, names = facts.document.events, ", ".join(task_text(task) for task in waiting[:5])
        text = f"The run's time ran out before these tasks could begin: {names}."
        yield Cause(text, [event(seq)], waiting[0].place, "deadline_exceeded")


def _first_event(cause: Cause) -> int:
    return min((int(ref.id) for ref in cause.refs if ref.kind == "event"), default=0)


def _named(code: str) -> str:
    return f" ({code})" if code else ""


def _task_refs(task: TaskRecord) -> list[Ref]:
    return [Ref("task", task.place), *([event(task.seq)] if task.seq else [])]
