"""The built-in tool `note`, by which an agent keeps a value for the tasks that depend on its own."""

from typing import Final

from brain.agents.tools.reading_tools import reading_tools
from brain.agents.tools.toolbox import Toolbox, not_made
from brain.agents.turn.agent_runtime import TaskExecution
from brain.blackboard import FACTS_PER_TASK, NAME_CHARS, TEXT_CHARS, fact_value, is_fact_name
from starling.core.json import JsonObject
from starling.core.llm import ToolSpec
from starling.core.tool_calls import Observation
from starling.core.tools import NOTE, ToolOutcome

NOTE_SPEC: Final = ToolSpec(
    NOTE,
    "Keep a value of a result that a later task needs; call `continue` beside the tool to see its result first.",
    {
        "type": "object",
        "properties": {
            "key": {"type": "string", "description": "Its short name."},
            "value": {"type": ["string", "number", "boolean"], "description": "Without any words around it."},
        },
        "required": ["key", "value"],
    },
)
_MEMBERS: Final = 2
_RULES: Final = (
    f"{NOTE} takes a `key` of at most {NAME_CHARS} letters, digits, `_`, `.` and `-`, and a `value`: a number, true, "
    f"false or a text of at most {TEXT_CHARS} characters."
)
_TOO_MANY: Final = f"Not kept: a task keeps at most {FACTS_PER_TASK} values."
_KEPT: Final = "Kept for the tasks that depend on yours."


def offers_note(execution: TaskExecution, toolbox: Toolbox) -> bool:
    """Whether a later task depends on this one, the agent uses tools, and the name means none of these."""
    return execution.may_note and bool(toolbox.specs) and NOTE not in toolbox.tools


def extra_tools(execution: TaskExecution, toolbox: Toolbox) -> tuple[ToolSpec, ...]:
    """Return the built-in tools that an agent has besides its own: to read what was left out, and to keep values."""
    own = (NOTE_SPEC,) if offers_note(execution, toolbox) else ()
    return (*reading_tools(execution, toolbox), *own)


def note_outcome(execution: TaskExecution, arguments: JsonObject | None) -> ToolOutcome:
    """Return whether a note is kept. Failures are outcomes."""
    given = arguments or {}
    key, value = given.get("key"), fact_value(given.get("value"))
    if not isinstance(key, str) or not is_fact_name(key) or value is None or len(given) > _MEMBERS:
        return not_made(_RULES)
    names = {str(use.arguments["key"]) for use in execution.notes} | {key}
    return not_made(_TOO_MANY) if len(names) > FACTS_PER_TASK else ToolOutcome(Observation.COMPLETED, _KEPT)
