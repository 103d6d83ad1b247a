"""Detects errors in results by their first words and JSON keys, not by words inside the text."""

import re
from collections.abc import Mapping
from typing import cast

from starling.infra.llm.offline.prompt_parsing import leaves, parse_json

_ERROR_START = re.compile(
    r"""^\W*(?:
        (?:[\w.]*(?:Error|Exception)|error|fatal|failure|panic|fehler|erreur)\b
            \s*(?:[:(\[-]|\d|executing|while|in\b|occurred|calling)
      | traceback\s\(most
      | (?-i:E[A-Z]{3,}):
      | (?:http(?:/[\d.]+)?\s)?[45]\d\d\s+
            (?:bad|unauthori|payment|forbidden|not\s|method|request|conflict|gone|too\s|internal|service|gateway)
      | (?:failed|unable)(?:\sto\b|:)
      | (?:couldn['’]?t|could\snot|cannot|can['’]?t)\b
      | (?:invalid|unauthorized|unsupported|access\sdenied|permission\sdenied|no\ssuch|timed?\s?out)\b
      | missing\s(?:required|argument|param|property|field)
      | unknown\s(?:tool|method|argument|option|command|error)
      | (?:[\w'"`./:-]+\s){1,6}
            (?:not\sfound|does\snot\sexist|doesn['’]t\sexist|is\snot\s(?:a\svalid|available)|failed|is\sinvalid|timed\sout)\b
    )""",
    re.VERBOSE | re.IGNORECASE,
)
_ERROR_KEYS = ("error", "errors", "iserror", "exception", "traceback", "error_message", "errormessage")
_STATUS_KEYS = ("status", "statuscode", "status_code", "code", "httpcode")
_LOWEST_ERROR = 400
_FAILING = ("error", "failed", "failure", "fail")
_EMPTY = ("", "null", "none", "undefined", '""')
_LINE_CHARS = 300


def error_line(text: str) -> str:
    """Return the line that identifies a result as an error, or an empty string."""
    data = parse_json(text)
    if isinstance(data, Mapping):
        return _json_error(cast("Mapping[str, object]", data))
    first = text.strip().split("\n", 1)[0][:_LINE_CHARS]
    return first if _ERROR_START.match(first) else ""


def is_empty(text: str) -> bool:
    """Return whether a text has no content. An empty JSON list counts as content."""
    return text.strip().casefold() in _EMPTY


def _json_error(data: Mapping[str, object]) -> str:
    for path, leaf in leaves(data):
        key = path[-1].casefold() if path else ""
        inside = any(step.casefold() in _ERROR_KEYS for step in path[:2])
        if inside and leaf not in (None, False, 0, "", "0"):
            return f"{key}: {leaf}"
        if len(path) == 1 and key in _STATUS_KEYS and _is_error_status(leaf):
            return f"{key}: {leaf}"
    ok = data.get("success", data.get("ok"))
    return "success: false" if ok is False else ""


def _is_error_status(leaf: object) -> bool:
    if isinstance(leaf, str):
        return leaf.casefold() in _FAILING or (leaf.isdigit() and len(leaf) == 3 and int(leaf) >= _LOWEST_ERROR)
    return isinstance(leaf, int) and not isinstance(leaf, bool) and _LOWEST_ERROR <= leaf < 600
