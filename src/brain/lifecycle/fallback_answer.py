"""Answers without a model: the results as they are, the parts that are missing, and why there is no result."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, cast

from brain.interrupts.budget import OUT_OF_TIME
from brain.lifecycle.citations import citations_of
from brain.planning.plan_validation import degraded_parts
from brain.state import DegradedPart, GraphState, TaskOutcome, approved
from starling.core.events.run_events import Change
from starling.core.json import canonical
from starling.core.teams.building import NOT_BUILT
from starling.core.tool_calls import CallState

_REASON_CHARS = 1_000
_ARGUMENT_CHARS = 300
_MOST_CHANGES = 20
_CUT_OFF = f"{OUT_OF_TIME} It was being worked on: check what it may have changed before you ask for it again."


def plain_answer(outcomes: Sequence[TaskOutcome], degraded: Sequence[DegradedPart]) -> str:
    """Return the approved results one after another, then the parts that were not answered."""
    parts = [
        f"{one['output'].strip() or 'Nothing was found.'} [{number}]" for number, one in enumerate(outcomes, start=1)
    ]
    missing = map(degraded_line, degraded)
    parts += [line for line in missing if not any(line in part for part in parts)]  # a team names some
    return "\n\n".join(parts) or "There is no result, and no model is available to explain why."


def degraded_line(part: DegradedPart) -> str:
    """Return a part that was not answered, with the reason, of which a long one is shortened."""
    reason = part["reason"] if len(part["reason"]) <= _REASON_CHARS else f"{part['reason'][:_REASON_CHARS]}…"
    return f"Not answered: {part['part']} ({reason})"


def with_changes(reply: str, changes: Iterable[Change], *, approved: bool = False) -> str:
    """Return the reply with a line for each of the first 20 changes that it doesn't name yet.

    They are those of tasks whose result was not approved, with `approved` all.
    """
    shown = (_change_line(change) for change in changes if approved or not change.approved)
    named = [line for line in shown if line not in reply]
    if len(named) > _MOST_CHANGES:
        named = [*named[:_MOST_CHANGES], f"… and {len(named) - _MOST_CHANGES} more changes"]
    return "\n\n".join([reply, *named]) if named else reply


def _change_line(change: Change) -> str:
    did = "Changed" if change.declared and change.state is CallState.SUCCEEDED else "May have changed something"
    return f"{did}: {change.name} {canonical(change.args)[:_ARGUMENT_CHARS]}"


def state_at_timeout(state: GraphState) -> GraphState:
    """Return where a run stood when its time ran out, with an answer if anything was approved or replied."""
    running: list[DegradedPart] = [
        {"part": task["task"], "reason": _CUT_OFF, "task_id": task["id"]}
        for task in state["tasks"]
        if task["status"] == "running"
    ]
    reached = cast("GraphState", {**state, "degraded": [*state["degraded"], *running]})
    degraded = degraded_parts(reached, OUT_OF_TIME)
    outcomes = list(approved(state).values())
    reply = state["reply"] or (plain_answer(outcomes, degraded) if outcomes else "")
    return cast("GraphState", {**state, "degraded": degraded, "reply": reply, "citations": citations_of(outcomes)})


NO_RESULT: Final = "no_result"
_SHOWN_TOOLS = 5
_OTHER_SERVER = (
    "a server with a tool for it (`starling server add`); `starling server show NAME` lists what a server can do"
)
_MODEL = "a look at the model: `starling doctor` checks its endpoint"
_SERVER = "a look at the server: `starling server test NAME` starts it and lists its tools"
_SMALLER = "a smaller request, or a higher limit (`limits` in starling.yaml)"
_CHECK_FIRST = "a look at what the call may have changed, before the request is sent again"
_REMEDIES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "": _OTHER_SERVER,
        "unable": _OTHER_SERVER,
        "unknown_agent": _OTHER_SERVER,
        "able": "other words for it, or a stronger model: an agent may have a tool for it",
        "not_granted": "a key and a mode that allow the agent",
        "bad_dependency": "a stronger model",
        "dependency": "what helps the part that it depends on, or a smaller request",
        "not_allowed": f"{_OTHER_SERVER}, or a key that may call the tool",
        "invalid_arguments": "a request that names every value that the tool needs, or a stronger model",
        "tool_error": "a request with other values, if the tool's message says what is wrong with them",
        "timeout": "more time for the tool (`timeout` under `x-starling`), or a smaller request",
        "server_unavailable": _SERVER,
        "agent_unavailable": _SERVER,
        "memory_limit": "a smaller request, or more memory for the server (`limits.memory_bytes_per_server`)",
        "invalid_result": f"{_SERVER}; what it answered can't be used",
        "removed": "a new request: the server's tools changed during this one",
        "quarantined": "an admin who approves the tool (`starling server approve NAME`)",
        "switched_off": "an admin who switches it on again (`starling switch list`)",
        "not_approved": "an approval of the call",
        "not_repeated": _CHECK_FIRST,
        "repeat_refused": "an approval of the call, or a request that goes on from what was done",
        "interrupted": _CHECK_FIRST,
        "lease_lost": _CHECK_FIRST,
        "outcome_unknown": _CHECK_FIRST,
        "over_limit": _SMALLER,
        "deadline_exceeded": _SMALLER,
        "budget_exhausted": _SMALLER,
        "rejected": "a request that settles what the reviewer says, or a stronger model",
        "empty_plan": "a request that says in a whole sentence what is wanted, or a stronger model",
        "llm_invalid_response": f"a stronger model, or {_MODEL}",
        "llm_timeout": _MODEL,
        "llm_connection_error": _MODEL,
        "llm_server_error": _MODEL,
        "journal_diverged": "a new request for what is missing; what this run has changed stays changed",
    }
)
_WITHOUT_TOOL: Final = frozenset({"", "unable", "unknown_agent", "not_allowed"})  # perhaps there is none
_UNKNOWN_CODE = "the log of the worker, which has the details"


def reply_without_results(state: GraphState, known: Callable[[str], str] = lambda _: "") -> str:
    """Return the reply of a run without results. `known` says what keeps agents with tools for a text from use."""
    parts = degraded_parts(state)
    results = state["results"]
    if len(state["tasks"]) == 1 and results and results[-1]["reason"] and results[-1].get("code") in NOT_BUILT:
        return results[-1]["reason"]
    opening = "There is no answer: no task gave a result." if state["tasks"] else "There is no answer."
    if state["failure"]:
        code = state.get("failure_code")
        opening = f"{state['failure']}\nWhat would help: {_remedy(code)}." if code else state["failure"]
    return "\n\n".join([opening, *(_row(state, part, known) for part in parts)])


def _row(state: GraphState, part: DegradedPart, known: Callable[[str], str]) -> str:
    """Return why a part was not answered, who tried it and what would help."""
    tries = [result for result in state["results"] if result["task_id"] == part.get("task_id")]
    code = tries[-1].get("code", "rejected") if tries else part.get("code", "dependency" if "task_id" in part else "")
    wanted = tries[-1]["tools"][-1]["tool"] if code == "not_allowed" and tries[-1]["tools"] else part["part"]
    code = (known(wanted) or code) if code in _WITHOUT_TOOL else code
    said = f": “{part['reason'][:_ARGUMENT_CHARS]}”" if code in ("rejected", "switched_off") else ""
    rows = [degraded_line(part)]
    if tries:
        agents = ", ".join(dict.fromkeys(result["agent"] for result in tries))
        attempts = sum(result["attempts"] for result in tries)
        used = [use["tool"] for result in tries for use in result["tools"]]
        names = list(dict.fromkeys(used))
        shown = ", ".join([*names[:_SHOWN_TOOLS], *(["…"] if len(names) > _SHOWN_TOOLS else [])])
        calls = f"{_counted(len(used), 'tool call')} ({shown})" if used else "no tool call"
        rows.append(f"  Tried: {agents}, {_counted(attempts, 'attempt')}, {calls}.")
    return "\n".join([*rows, f"  What would help: {_remedy(code)}{said}."])


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _remedy(code: str) -> str:
    return _REMEDIES.get(code, _UNKNOWN_CODE)
