"""The shared blackboard, `global_state`: facts that approved tasks found, each with its source.

A fact has a short name and one value. On the blackboard it is named `t1.name`: facts of two tasks never replace each
other. A task keeps at most 16 facts, a name has at most 64 characters and a text 200.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, cast

from brain.state import FactRecord, TaskOutcome
from starling.core.json import as_read, canonical, is_64_bit, storable_text

FACTS_PER_TASK: Final = 16
NAME_CHARS: Final = 64
TEXT_CHARS: Final = 200
_NAME: Final = re.compile(r"\w[\w.-]*")
_WRAPPED: Final = ["result"]  # MCP servers name a result so that is one value alone

type Scalar = str | int | float | bool


def fact_value(value: object) -> Scalar | None:
    """Return a value as a fact has it, None where it can't be one: a number, a truth value or a short text can."""
    match value:
        case bool():
            return value
        case int():
            return value if is_64_bit(value) else None
        case float():
            return cast("Scalar", as_read(value)) if math.isfinite(value) else None
        case str():
            return storable_text(value) if 0 < len(value) <= TEXT_CHARS else None
        case _:
            return None


def is_fact_name(name: str) -> bool:
    """Whether a fact may have this name: letters, digits, `_`, `.` and `-`."""
    return len(name) <= NAME_CHARS and _NAME.fullmatch(name) is not None


def fields_of(data: Mapping[str, Any] | None, text: str) -> Iterator[tuple[str, Scalar]]:
    """Yield the facts in the object that a result is, by `data` or as JSON: the outermost first, `disk.free` inside.

    Long texts, lists and odd names are no facts; they stay in the result. The order is that of the text, else that of
    the names: a journal keeps none of `data`.
    """
    read = _read_object(text)
    is_read = data is None or data == read
    found = read if data is None or is_read else data
    level = [("", found)] if list(found) != _WRAPPED or isinstance(found["result"], Mapping) else []
    while level:
        inside: list[tuple[str, Mapping[str, Any]]] = []
        for above, members in level:
            for name, value in members.items() if is_read else sorted(members.items()):
                if isinstance(value, Mapping):
                    inside.append((f"{above}{name}.", cast("Mapping[str, Any]", value)))
                elif is_fact_name(f"{above}{name}") and (known := fact_value(value)) is not None:
                    yield f"{above}{name}", known
        level = inside


def _read_object(text: str) -> Mapping[str, Any]:
    try:
        found: object = json.loads(text) if text.lstrip().startswith("{") else None
    except (ValueError, RecursionError):
        return {}
    return cast("Mapping[str, Any]", found) if isinstance(found, dict) else {}


def kept_facts(notes: Iterable[FactRecord], found: Iterable[FactRecord]) -> tuple[list[FactRecord], int]:
    """Return the facts of a task, and how many of them are dropped: what its agent noted comes first.

    The last note of a name counts. Of other facts of one name each value is kept, as `free`, `free.2`.
    """
    kept = {note["key"]: note for note in notes}
    for fact in found:
        name, number = fact["key"], 1
        while name in kept and canonical(kept[name]["value"]) != canonical(fact["value"]):
            number += 1
            name = f"{fact['key']}.{number}"
        kept.setdefault(name, {**fact, "key": name})
    facts = list(kept.values())
    return facts[:FACTS_PER_TASK], max(0, len(facts) - FACTS_PER_TASK)


def board_of(outcomes: Iterable[TaskOutcome]) -> dict[str, Any]:
    """Return what outcomes add to the blackboard: facts with their source, the task, its agent and the call."""
    return {
        f"{outcome['task_id']}.{fact['key']}": {
            "value": fact["value"],
            "task_id": outcome["task_id"],
            "agent": outcome["agent"],
            "call": fact["call"],
        }
        for outcome in outcomes
        for fact in outcome.get("facts", ())
    }


def shown_board(board: Mapping[str, Any]) -> dict[str, dict[str, Scalar]]:
    """Return a blackboard as models are shown it: values by task and name; the plan names the agents."""
    shown: dict[str, dict[str, Scalar]] = {}
    for name, fact in board.items():
        task_id = fact["task_id"]
        shown.setdefault(task_id, {})[name.removeprefix(f"{task_id}.")] = fact["value"]
    return shown
