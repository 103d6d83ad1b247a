"""Interrupts as text, with the commands that answer them."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from starling.app.cli.terminal.build_text import activation_lines
from starling.app.cli.terminal.formats import moment
from starling.app.cli.terminal.output import escaped, json_text
from starling.core.json import canonical
from starling.core.principal import DEFAULT_TENANT

_ARGUMENTS_CHARS = 2_000  # who approves a call has to see all of it
_HOW = {
    "approval": "--id {id}` approves it, with `--reject` it isn't made",
    "clarification": '--id {id} --payload \'{{"answer": "…"}}\'` answers, as does a message on its thread',
    "budget": "--id {id} --payload '{{\"tokens\": 10000}}'` gives more, with `--reject` it answers with less",
    "in_doubt": '--id {id} --payload \'{{"resolution": "done"}}\'` decides (done, not_done or give_up)',
}
_REQUIRED: Final = "_required"  # how the names of some events end, after the kind
INTERRUPT_EVENTS: Final = frozenset({"approval_required", "clarification", "budget_required", "in_doubt"})
ACTIVATE_TEAM = "architect.activate_team"  # starling.core.teams.building has it, and imports pydantic


def run_reference(run_id: str, tenant: str) -> str:
    """Return the arguments that name a run in a command."""
    return run_id if tenant == DEFAULT_TENANT else f"{run_id} --tenant {tenant}"


def interrupt_lines(kind: str, data: Mapping[str, Any], run: str, *, commands: bool = True) -> Iterator[str]:
    """Yield the lines that describe an interrupt of a kind or event; `run` comes from `run_reference`.

    With `commands` also what can be answered and the command that does, for whom no prompt asks.
    """
    yield f"Waits: {data['message']}"
    if call := data.get("call"):
        if call["name"] == ACTIVATE_TEAM:
            yield from activation_lines(call["args"])
        else:
            shown = escaped(canonical(call["args"]))
            cut = f"… ({len(shown)} characters)" if len(shown) > _ARGUMENTS_CHARS else ""
            yield f"  {call['name']} {shown[:_ARGUMENTS_CHARS]}{cut}"
    options = data["responseSchema"].get("properties", {}).get("answer", {}).get("examples", [])
    if options and commands:
        yield f"  Maybe: {' | '.join(json_text(option) for option in options)}"
    yield f"  {data['reason']}"
    if commands:
        yield f"  {answer_line(kind, data, run)}"


def answer_line(kind: str, data: Mapping[str, Any], run: str) -> str:
    """Return the command that answers an interrupt, and until when."""
    how = _HOW[kind.removesuffix(_REQUIRED)].format(id=data["id"])
    return f"`starling run approve {run or '<run>'} {how}; until {moment(data['expiresAt'])}."


def behind_line(run_id: str, status: str) -> str:
    """Return the line that says which run a queued run waits for."""
    look = f" `starling run show {run_id}` shows what it waits for." if status == "waiting" else ""
    return f"Behind {run_id}, which is {status}: this run begins once that has ended.{look}"
