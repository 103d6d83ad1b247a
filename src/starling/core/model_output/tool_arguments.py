"""Arguments of tool calls as JSON text."""

import json
import re
from typing import Final, cast

from starling.core.json import JsonObject, depth_of, is_64_bit, unsendable
from starling.core.model_output.json_document import loads_object, whole_object

_MAX_DEPTH: Final = 100  # orjson, which writes the journal, ends at 254
# In JSON text: NUL, half of a surrogate pair, and integers that may have more than 64 bits.
_SUSPECT: Final = re.compile(r"\\u(?:0000|d[89a-f])|\d{19}", re.IGNORECASE)


def loads_arguments(raw: str) -> JsonObject | None:
    """Return the arguments in JSON text, which may be empty.

    None if it isn't an object, is nested too deeply, or contains what can't be sent unchanged.
    """
    found = None if is_too_deep(raw) else loads_object(raw or "{}")
    if found is None or not _SUSPECT.search(raw):
        return found
    exact = _loads_exactly(raw)
    return None if exact is None or unsendable(exact) else exact


def is_too_deep(raw: str) -> bool:
    """Whether JSON text is nested more deeply than arguments may be."""
    return raw.count("[") + raw.count("{") > _MAX_DEPTH and depth_of(raw) > _MAX_DEPTH


def sending_fault(raw: str) -> str:
    """Return what of the arguments in a text can't be sent unchanged, empty if nothing or if they aren't read."""
    return unsendable(_loads_exactly(raw) or whole_object(raw))


def what_is_wrong(raw: str) -> str:
    """Return what the model is told about arguments that could not be read."""
    if is_too_deep(raw):
        return f"The arguments are nested more than {_MAX_DEPTH} levels deep."
    if fault := sending_fault(raw):
        return f"The arguments can't be sent unchanged: they contain {fault}."
    return "The arguments weren't a JSON object."


def _loads_exactly(raw: str) -> JsonObject | None:
    """Return the object in JSON text with its integers as they are written, None if it isn't one."""
    try:
        value = json.loads(raw, parse_int=_integer)
    except (ValueError, RecursionError):
        return None
    return cast("JsonObject", value) if isinstance(value, dict) else None


def _integer(text: str) -> float:
    """Return an integer, as a float if it has more than 64 bits and a double holds it."""
    number = int(text)
    return number if is_64_bit(number) or unsendable(number) else float(number)
