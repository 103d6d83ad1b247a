"""JSON text where there is much of it: written by orjson, which can't write everything that JSON can."""

import json
import re
from typing import Final

import orjson

from starling.core.json import Json, storable

# In the JSON text of a value: what may be NUL, or an integer of more than 64 bits. To begin with a set makes it fast.
_SUSPECT: Final = re.compile(rb"[\\0-9](?:u0000|[0-9]{18})")
_NATIVE_TYPES_ONLY: Final = (
    orjson.OPT_PASSTHROUGH_SUBCLASS | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
)
_STRICT: Final = json.JSONEncoder(allow_nan=False)


def dumps(value: object) -> bytes:
    """Return `value` as UTF-8 JSON; text that UTF-8 can't hold is replaced."""
    try:
        return orjson.dumps(value)
    except TypeError:  # a lone surrogate, an integer beyond 64 bits, a mapping that isn't a dict, a key of str's kin
        return orjson.dumps(storable(value), option=orjson.OPT_NON_STR_KEYS)


def storable_json(value: object) -> bytes:
    """Return `storable(value)` as UTF-8 JSON, in one pass where there is nothing to replace."""
    return storable_with_json(value)[1]


def storable_with_json[T](value: T) -> tuple[T | Json, bytes]:
    """Return `storable(value)`, which is `value` itself where there is nothing to replace, and its UTF-8 JSON."""
    try:
        text = orjson.dumps(value, option=_NATIVE_TYPES_ONLY)
        if not _SUSPECT.search(text) and not (b"null" in text and _has_nan(value)):
            return value, text
    except TypeError:
        pass
    replaced = storable(value)
    return replaced, dumps(replaced)


def _has_nan(value: object) -> bool:
    """Whether `value` may contain a number that is infinite or none, for which orjson writes null."""
    try:
        _STRICT.encode(value)
    except (TypeError, ValueError):
        return True
    return False
