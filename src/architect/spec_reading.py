"""Team specs from YAML, JSON or plain data, and cases to try a team on."""

import json
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final, cast

import yaml
from pydantic import TypeAdapter, ValidationError

from architect.format_findings import format_findings
from architect.yaml_subset import DEEPEST, DIGITS, load_yaml
from starling.core.teams.building import BuildCase
from starling.core.teams.findings import MOST_FINDINGS, Finding, TeamInvalidError
from starling.core.teams.spec import TeamSpec

MAX_CHARS: Final = 200_000
"""The longest document that is read, as text and as JSON; the slowest one takes a second of processor time."""

_CASES: Final = TypeAdapter(list[BuildCase])


def read_team(text: str) -> TeamSpec:
    """Return the team spec of a document: JSON if it begins with a brace, else YAML.

    Of YAML only what JSON has is read: no aliases, tags or dates, and `yes` is a text. Raises TeamInvalidError.
    """
    return team_of(_document(text))


def read_cases(text: str) -> Sequence[BuildCase]:
    """Return the cases of a document, which is one case or a list of them, read as `read_team` reads a spec.

    Raises TeamInvalidError.
    """
    document = _checked_size(_document(text))
    if document in (None, []):
        raise _unreadable(
            "The document has no case.", "Write one: `input` is the request, `must_call` lists its tools."
        )
    try:
        return _CASES.validate_python(document) if isinstance(document, list) else [BuildCase.model_validate(document)]
    except ValidationError as error:
        raise TeamInvalidError(list(islice(format_findings(error, BuildCase), MOST_FINDINGS))) from None


def team_of(document: object) -> TeamSpec:
    """Return the team spec that plain data describe. Raises TeamInvalidError with all that breaks the format."""
    try:
        return TeamSpec.model_validate(_checked_size(document))
    except ValidationError as error:
        raise TeamInvalidError(list(islice(format_findings(error), MOST_FINDINGS))) from None


def _document(text: str) -> object:
    text = text.removeprefix("\ufeff")
    if len(text) > MAX_CHARS:
        raise _too_long(f"The document has {len(text):,} characters")
    return _json(text) if text.lstrip().startswith("{") else _yaml(text)


def _checked_size(document: object) -> object:
    if (length := _json_length(document)) > MAX_CHARS:
        raise _too_long(f"As JSON the document has {length:,} characters")
    if _is_too_deep(document):
        raise _unreadable(f"More than {DEEPEST} objects and lists are inside one another.", "Shorten the fixtures.")
    return document


def _json(text: str) -> object:
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_refuse_constant, parse_int=_integer)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise _unreadable(f"This is not JSON at {place}: {error.msg}.") from None
    except RecursionError:
        raise _unreadable("This JSON can't be read: it is nested too deeply.") from None
    except ValueError as error:
        raise _unreadable(f"This JSON can't be read: {error}.") from None


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key!r} is used twice in one object")
        found[key] = value
    return found


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not a number of JSON")


def _integer(digits: str) -> int | str:
    return int(digits) if len(digits.removeprefix("-")) <= DIGITS else digits


def _yaml(text: str) -> object:
    try:
        return load_yaml(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise _unreadable(f"This YAML can't be read{place}: {error.problem or error.context}.") from None
    except yaml.YAMLError as error:  # characters that YAML doesn't have
        raise _unreadable(f"This YAML can't be read: {' '.join(str(error).split())}.") from None


def _unreadable(reason: str, remedy: str = "Correct the document at that place.") -> TeamInvalidError:
    return TeamInvalidError([Finding("", "document", reason, remedy)])


def _too_long(length: str) -> TeamInvalidError:
    return _unreadable(f"{length}, and {MAX_CHARS:,} are read.", "Shorten its texts and examples.")


def _json_length(document: object) -> int:
    """Return the characters of a document as JSON without white space; 0 for one that is nested too deeply for that."""
    try:
        return len(json.dumps(document, separators=(",", ":"), ensure_ascii=False, default=str))
    except RecursionError:
        return 0


def _is_too_deep(document: object) -> bool:
    level = [document]
    for _ in range(DEEPEST):
        level = [item for value in level for item in _items(value)]
    return bool(level)


def _items(value: object) -> Iterable[object]:
    match value:
        case dict():
            return cast("dict[object, object]", value).values()
        case list() | tuple():
            return cast("Iterable[object]", value)
        case _:
            return ()
