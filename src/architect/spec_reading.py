"""Team specs from YAML, JSON or plain data."""

import json
import re
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, Final, cast

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from architect.near_names import did_you_mean
from starling.core.teams import (
    Criterion,
    Example,
    Finding,
    Fixture,
    TeamGrants,
    TeamInvalidError,
    TeamLimits,
    TeamMember,
    TeamSpec,
)
from starling.core.validation_errors import fault_text

MAX_CHARS: Final = 200_000
"""The longest document that is read; the slowest one of this length takes a second of processor time."""
_DEEPEST: Final = 50  # objects and lists inside one another
_TAG: Final = "tag:yaml.org,2002:"
_SHOWN: Final = 60  # characters of a wrong value
_SCHEMA: Final = "`starling team schema` prints the format."
_PARTS: Final[Mapping[tuple[str, ...], type[BaseModel]]] = {
    (): TeamSpec,
    ("members",): TeamMember,
    ("criteria",): Criterion,
    ("examples",): Example,
    ("examples", "fixtures"): Fixture,
    ("limits",): TeamLimits,
    ("grants",): TeamGrants,
}
_PATTERNS: Final[Mapping[str, str]] = {
    "name": "must be lower-case letters, digits and _, beginning with a letter or a digit",
    "team": "must be lower-case letters, digits, _ and -, beginning with a letter or a digit",
    "id": "must be lower-case letters, digits, _ and -, beginning with a letter or a digit",
    "tool": "must be the full name of a tool, `server.tool`",
}


def read_team(text: str) -> TeamSpec:
    """Return the team spec of a document: JSON if it begins with a brace, else YAML.

    Of YAML only what JSON has is read: no aliases, tags or dates, and `yes` is a text. Raises TeamInvalidError.
    """
    text = text.removeprefix("\ufeff")
    if len(text) > MAX_CHARS:
        reason = f"The document has {len(text):,} characters, and {MAX_CHARS:,} are read."
        raise _unreadable(reason, "Shorten its texts and examples.")
    return team_of(_json(text) if text.lstrip().startswith("{") else _yaml(text))


def team_of(document: object) -> TeamSpec:
    """Return the team spec that plain data describe. Raises TeamInvalidError with all that breaks the format."""
    try:
        return TeamSpec.model_validate(document)
    except ValidationError as error:
        raise TeamInvalidError(list(_format_findings(error))) from None


def _json(text: str) -> object:
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise _unreadable(f"This is not JSON: {error.msg} at line {error.lineno}, column {error.colno}.") from None
    except (ValueError, RecursionError) as error:  # ours, numbers of thousands of digits, objects a thousand deep
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


def _yaml(text: str) -> object:
    try:
        return yaml.load(text, _Loader)  # noqa: S506 - it constructs fewer types than the SafeLoader that it is made of
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise _unreadable(f"This YAML can't be read: {error.problem or error.context}{place}.") from None
    except (yaml.YAMLError, ValueError) as error:  # characters that YAML doesn't have, numbers that are none
        raise _unreadable(f"This YAML can't be read: {' '.join(str(error).split())}.") from None


def _unreadable(reason: str, remedy: str = "Correct the document at that place.") -> TeamInvalidError:
    return TeamInvalidError([Finding("", "document", reason, remedy)])


def _fault(problem: str, place: yaml.Node | yaml.Event) -> yaml.MarkedYAMLError:
    mark = cast("yaml.Mark | None", place.start_mark)
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)


class _Loader(yaml.SafeLoader):
    """Reads the part of YAML that JSON has too."""

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise _fault("aliases are not allowed", cast("yaml.Event", self.peek_event()))
        if self._depth == _DEEPEST:
            raise _fault("it is nested too deeply", cast("yaml.Event", self.peek_event()))
        self._depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys: set[str] = set()
        for key, _ in cast("list[tuple[yaml.Node, yaml.Node]]", node.value):
            if key.tag != f"{_TAG}str":
                raise _fault("a key must be a text", key)
            if key.value in keys:
                raise _fault(f"the key {key.value!r} is used twice", key)
            keys.add(key.value)
        return super().construct_mapping(node, deep)


_Loader.yaml_constructors = {
    tag: construct
    for tag, construct in yaml.SafeLoader.yaml_constructors.items()
    if tag is None or tag.removeprefix(_TAG) in ("null", "bool", "int", "float", "str", "seq", "map")
}
_Loader.yaml_implicit_resolvers = {}
for _name, _pattern, _first in (
    ("null", r"^(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", list("tTfF")),
    ("int", r"^[-+]?(?:0|[1-9][0-9]{0,17})$", list("-+0123456789")),
    ("float", r"^[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?$", list("-+.0123456789")),
):
    _Loader.add_implicit_resolver(f"{_TAG}{_name}", re.compile(_pattern), _first)


def _format_findings(error: ValidationError) -> Iterator[Finding]:
    seen: set[str] = set()
    for fault in error.errors(include_url=False, include_context=True):
        path = _path(fault["loc"])
        if path not in seen:
            seen.add(path)
            yield Finding(path, "format", _reason(fault), _remedy(fault))


def _path(location: tuple[int | str, ...]) -> str:
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return "".join(parts).removeprefix(".")


def _reason(fault: ErrorDetails) -> str:
    text = fault_text(cast("Mapping[str, Any]", fault))
    if fault["type"] == "string_pattern_mismatch":
        names = [part for part in fault["loc"] if isinstance(part, str)]
        text = _PATTERNS.get(names[-1], _PATTERNS["tool"])
    if not text.startswith(("must ", "is ")):
        return f"{text[:1].upper()}{text[1:]}."
    value = fault["input"]
    shown = f" {value!r:.{_SHOWN}}" if isinstance(value, (str, int, float)) and text.startswith("must ") else ""
    return f"The value{shown} {text}."


def _remedy(fault: ErrorDetails) -> str:
    names = tuple(part for part in fault["loc"] if isinstance(part, str))
    part = _PARTS.get(names[:-1])
    if not names or part is None:
        return _SCHEMA
    if fault["type"] == "extra_forbidden":
        return did_you_mean(names[-1], part.model_fields, f"Remove it. {_SCHEMA}")
    field = part.model_fields.get(names[-1])
    return field.description if field and field.description else _SCHEMA
