"""Texts of pydantic's validation errors and patterns of names, the same for files, settings, requests and commands."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from starling.core.errors import ConfigurationError

AGENT_NAME: Final = r"^[a-z0-9][a-z0-9_-]{0,47}$"
MEMBER_NAME: Final = r"^[a-z0-9][a-z0-9_]{0,31}$"
TOOL_NAME: Final = r"^[^.\s]+\.\S+$"
PRINTABLE_NAME: Final = r"^[^\x00-\x1f\x7f]+$"

_NAME: Final = "must be at most {} lower-case letters, digits{} and {}, and begin with a letter or a digit"
IN_WORDS: Final[Mapping[str, str]] = {
    AGENT_NAME: _NAME.format(48, ", _", "-"),
    MEMBER_NAME: _NAME.format(32, "", "_"),
    TOOL_NAME: "must be the full name of a tool, `server.tool`",
    PRINTABLE_NAME: "must not have control characters",
}
"""What is wrong with a text that doesn't match a pattern."""


MOST_FAULTS: Final = 20  # errors of one document that are shown
_PATH_CHARS: Final = 200
_TEXTS: Final[Mapping[str, str]] = {
    "missing": "is missing",
    "string_type": "must be a text",
    "string_unicode": "must be valid Unicode",
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "must be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "must be a number"),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "must be an object"),
    **dict.fromkeys(("list_type", "tuple_type"), "must be a list"),
    **dict.fromkeys(("uuid_type", "uuid_parsing"), "must be a UUID"),
}
_SUBJECT: Final = re.compile(r"^(?:Input|Value|String|List|Tuple|Dictionary) should ")
_PREFIXES: Final = re.compile(r"^(?:Value|Assertion) error, | after validation")


def fault_text(fault: Mapping[str, Any], thing: str = "field") -> str:
    """Return the reason of one of pydantic's errors, to be written after its location.

    `thing` is the noun for an unknown name: field, setting or key.
    """
    if fault["type"] == "extra_forbidden":
        return f"there is no such {thing}"
    if fault["type"] == "string_too_short" and fault.get("ctx", {}).get("min_length") == 1:
        return "must not be empty"
    if fault["type"] == "too_long" and isinstance(fault.get("input"), str):  # checked after a change of the text
        return "must have at most {max_length} characters, not {actual_length}".format_map(fault["ctx"])
    if fault["type"] == "string_pattern_mismatch" and (text := IN_WORDS.get(fault["ctx"]["pattern"])):
        return text
    return _TEXTS.get(fault["type"]) or _SUBJECT.sub("must ", _PREFIXES.sub("", fault["msg"]))


def fault_list(faults: Sequence[Mapping[str, Any]]) -> str:
    """Return pydantic's first errors as `location: reason`, such as `limits.run_seconds: must be greater than 0; …`."""
    shown = (": ".join(filter(None, (location_path(one["loc"]), fault_text(one)))) for one in faults[:MOST_FAULTS])
    return "; ".join(shown) + (f"; and {more:,} more" if (more := len(faults) - MOST_FAULTS) > 0 else "")


def location_path(location: tuple[int | str, ...]) -> str:
    """Return the location of a pydantic error as a path, such as `tools.0`; of a long one the beginning."""
    return ".".join(map(str, location))[:_PATH_CHARS]


def http_address(setting: str, url: str, example: str) -> str:
    """Return an address without a slash at its end. Raises ConfigurationError unless it is one of HTTP(S)."""
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        valid = False
    if not valid:
        raise ConfigurationError(f"{setting} is not an http(s) address.", f"Write for example {example}.")
    return url.rstrip("/")
