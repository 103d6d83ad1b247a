"""Arguments of tool calls as JSON text."""

import re
from typing import Final

from starling.core.json import JsonObject
from starling.core.model_output.json_document import loads_object

_MAX_DEPTH: Final = 100  # orjson, which writes the journal, ends at 254
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\Z)|[\[{]|[\]}]', re.DOTALL)


def loads_arguments(raw: str) -> JsonObject | None:
    """Return the arguments in JSON text, which may be empty; None if it is no object, or nested too deeply."""
    return None if is_too_deep(raw) else loads_object(raw or "{}")


def is_too_deep(raw: str) -> bool:
    """Whether JSON text is nested more deeply than arguments may be."""
    if raw.count("[") + raw.count("{") <= _MAX_DEPTH:
        return False
    depth = deepest = 0
    for token in _TOKEN.finditer(raw):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token.group(), 0)
        deepest = max(deepest, depth)
    return deepest > _MAX_DEPTH


def what_is_wrong(raw: str) -> str:
    """Return what the model is told about arguments that could not be read."""
    if is_too_deep(raw):
        return f"The arguments are nested more than {_MAX_DEPTH} levels deep."
    return "The arguments weren't a JSON object."
