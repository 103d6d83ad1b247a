"""Interrupts as text, with the commands that answer them."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from starling.app.cli.terminal.build_text import activation_lines
from starling.app.cli.terminal.moments import moment
from starling.core.json import canonical
from starling.core.principal import DEFAULT_TENANT

_ARGUMENTS_CHARS = 2_000  # who approves a call has to see all of it
_HOW = {
    "approval_required": "--id {id}` approves it, with `--reject` it isn't made",
    "clarification": '--id {id} --payload \'{{"answer": "…"}}\'` answers, as does a message on its thread',
    "budget_required": "--id {id} --payload '{{\"tokens\": 10000}}'` gives more, with `--reject` it answers with less",
    "in_doubt": '--id {id} --payload \'{{"resolution": "done"}}\'` decides (done, not_done or give_up)',
}
ACTIVATE_TEAM = "architect.activate_team"  # starling.core.teams.building has it, and imports pydantic
_EVENTS = {"approval": "approval_required", "budget": "budget_required"}


def event_of(kind: str) -> str:
    """Return the event type for a kind of interrupt."""
    return _EVENTS.get(kind, kind)


def run_reference(run_id: str, tenant: str) -> str:
    """Return the arguments that name a run in a command."""
    return run_id if tenant == DEFAULT_TENANT else f"{run_id} --tenant {tenant}"


def interrupt_lines(event: str, data: Mapping[str, Any], run: str, *, commands: bool = True) -> Iterator[str]:
    """Yield the lines that describe an interrupt; `run` comes from `run_reference`.

    With `commands` also what can be answered and the command that does, for whom no prompt asks.
    """
    yield f"Waits: {data['message']}"
    if call := data.get("call"):
        yield from _call_lines(call)
    options = _options(data)
    if options and commands:
        yield f"  Maybe: {' | '.join(options)}"
    yield f"  {data['reason']}"
    if not commands:
        return
    yield f"  {answer_line(event, data, run)}"


def answer_line(event: str, data: Mapping[str, Any], run: str) -> str:
    """Return the command that answers an interrupt, and until when."""
    how = _HOW[event].format(id=data["id"])
    return f"`starling run approve {run or '<run>'} {how}; until {moment(data['expiresAt'])}."


def _call_lines(call: Mapping[str, Any]) -> Iterator[str]:
    if call["name"] == ACTIVATE_TEAM:
        yield from activation_lines(call["args"])
        return
    shown = canonical(call["args"])
    cut = f"… ({len(shown)} characters)" if len(shown) > _ARGUMENTS_CHARS else ""
    yield f"  {call['name']} {shown[:_ARGUMENTS_CHARS]}{cut}"


def behind_line(run_id: str, status: str) -> str:
    """Return the line that says which run a queued run waits for."""
    look = f" `starling run show {run_id}` shows what it waits for." if status == "waiting" else ""
    return f"Behind {run_id}, which is {status}: this run begins once that has ended.{look}"


def _options(data: Mapping[str, Any]) -> list[str]:
    properties = data["responseSchema"].get("properties", {})
    return [json.dumps(option, ensure_ascii=False) for option in properties.get("answer", {}).get("examples", [])]
