"""What pydantic finds wrong, in our words: one place for files, settings, requests and the command line."""

import re
from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError

_SAID: Final[Mapping[str, str]] = {
    "missing": "is missing",
    "string_type": "must be a text",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "uuid_parsing": "must be a UUID",
    "uuid_type": "must be a UUID",
}
_SUBJECT: Final = re.compile(r"^(?:Input|Value|String|List|Tuple|Dictionary) should ")
_ASIDES: Final = re.compile(r"^(?:Value|Assertion) error, | after validation")


def said(fault: Mapping[str, Any], thing: str = "field") -> str:
    """Return what one of pydantic's errors says is wrong, to stand after its place.

    `thing` is what the place would be called if there were it.
    """
    if fault["type"] == "extra_forbidden":
        return f"there is no such {thing}"
    if fault["type"] == "string_too_short" and fault.get("ctx", {}).get("min_length") == 1:
        return "must not be empty"
    return _SAID.get(fault["type"]) or _SUBJECT.sub("must ", _ASIDES.sub("", fault["msg"]))


def listed(error: ValidationError) -> str:
    """Return all that is wrong, each after its place: `limits.run_seconds: must be greater than 0; …`."""
    return "; ".join(": ".join(filter(None, (place(fault["loc"]), said(fault)))) for fault in error.errors())


def place(location: tuple[int | str, ...]) -> str:
    """Return a pydantic error's location as a path: `tools.0`."""
    return ".".join(map(str, location))
