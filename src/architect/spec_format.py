"""Team specs as documents: read from YAML or JSON, with findings for what breaks the format, written, and compared."""

import json
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from difflib import unified_diff
from itertools import islice, zip_longest
from typing import Any, Final, cast

import yaml
from pydantic import BaseModel, TypeAdapter, ValidationError

from architect.wording import did_you_mean
from starling.core.json import Json, canonical, without_repeated_names
from starling.core.teams.building import BuildCase
from starling.core.teams.spec import (
    MOST_FINDINGS,
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
from starling.core.text import one_line
from starling.core.validation_errors import fault_text

DEEPEST: Final = 50
"""How many objects and lists may be inside one another."""
DIGITS: Final = 19
"""How many digits an integer may have; a longer one is a text."""
_ESCAPED: Final = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\U000e0000-\U000e007f]")
_TAG: Final = "tag:yaml.org,2002:"


def load_yaml(text: str) -> object:
    """Return the data of a document; `yes`, `2026-01-01` and `010` are texts. Raises YAMLError."""
    return yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader that takes less


def dump_yaml(document: object) -> str:
    """Return a document that `load_yaml` reads as the same data."""
    as_it_is = not _ESCAPED.search(canonical(document))  # of these some would be line breaks, others hide or reorder
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=as_it_is, width=100)


def _fault(problem: str, place: yaml.Node | yaml.Event) -> yaml.MarkedYAMLError:
    mark = cast("yaml.Mark | None", place.start_mark)
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)


class _Loader(yaml.SafeLoader):
    """Reads the part of YAML that JSON has too."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event = cast("yaml.Event", self.peek_event())
        if isinstance(event, yaml.AliasEvent):
            raise _fault("aliases are not allowed", event)
        if getattr(event, "tag", None) is not None:
            raise _fault("tags are not allowed", event)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys: set[str] = set()
        for key, _ in cast("list[tuple[yaml.Node, yaml.Node]]", node.value):
            if key.tag != f"{_TAG}str":
                raise _fault("a key must be a text", key)
            if key.value in keys:
                raise _fault(f"the key {key.value!r} is used twice", key)
            keys.add(key.value)
        return super().construct_mapping(node, deep)


# no more than those of PyYAML, so that what it writes without quotes is read as what it was
_Loader.yaml_implicit_resolvers = {}
for _name, _pattern, _first in (
    ("null", r"^(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", list("tTfF")),
    ("int", rf"^[-+]?(?:0|[1-9][0-9]{{0,{DIGITS - 1}}})$", list("-+0123456789")),
    ("float", r"^[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+][0-9]+)?$", list("-+.0123456789")),
):
    _Loader.add_implicit_resolver(f"{_TAG}{_name}", re.compile(_pattern), _first)


_SHOWN: Final = 61  # characters of a wrong value or key
_SCHEMA: Final = "`starling team schema` prints the format."
_PARTS: Final[Mapping[tuple[str, ...], type[BaseModel]]] = {
    ("members",): TeamMember,
    ("criteria",): Criterion,
    ("examples",): Example,
    ("examples", "fixtures"): Fixture,
    ("fixtures",): Fixture,  # of a case of its own
    ("limits",): TeamLimits,
    ("grants",): TeamGrants,
}
_CRITERIA: Final = ("examples", "criteria")
_FREE: Final = ("arguments", "result")  # fields of a fixture that may have any JSON


def format_findings(error: ValidationError, whole: type[BaseModel] = TeamSpec) -> Iterator[Finding]:
    """Return one finding for each wrong, missing or unknown field of a document, or of one in a list of them."""
    seen: set[tuple[int | str, ...]] = set()
    for fault in cast("list[Mapping[str, Any]]", error.errors(include_url=False)):
        end = next((at + 1 for at, part in enumerate(fault["loc"]) if part in _FREE), None)
        location: tuple[int | str, ...] = fault["loc"][:end]  # without the types that pydantic tried for any JSON
        # pydantic counts only the valid items of a list: one with wrong items isn't too short as well
        if location in seen or (fault["type"] == "too_short" and fault["input"]):
            continue
        seen.add(location)
        names = tuple(part for part in location if isinstance(part, str))
        parts = (f"[{part}]" if isinstance(part, int) else f".{one_line(part, _SHOWN)}" for part in location)
        path = "".join(parts).removeprefix(".")
        yield Finding(path, "format", _reason(fault, names), _remedy(fault, names, whole))


def _reason(fault: Mapping[str, Any], names: tuple[str, ...]) -> str:
    text = fault_text(fault)
    if fault["type"] == "string_pattern_mismatch" and names == _CRITERIA:
        text = "must be the id of a criterion"
    elif names and names[-1] in _FREE:
        text = "must be JSON"
    if not text.startswith(("must ", "is ")):
        return f"{text[:1].upper()}{text[1:]}."
    is_shown = text.startswith("must ") and isinstance(fault["input"], (str, int, float))
    return f"The value{f' {one_line(repr(fault["input"]), _SHOWN)}' if is_shown else ''} {text}."


def _remedy(fault: Mapping[str, Any], names: tuple[str, ...], whole: type[BaseModel]) -> str:
    part = _PARTS.get(names[:-1]) if names[:-1] else whole
    field = part.model_fields.get(names[-1]) if part and names else None
    if part and names and fault["type"] == "extra_forbidden":
        return did_you_mean(names[-1], part.model_fields, f"Remove it. {_SCHEMA}")
    about = field.description if field and field.description else _SCHEMA
    return f"Add it. {about}" if fault["type"] == "missing" else f"Correct it. {about}"


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
    try:
        return _json(text) if text.lstrip().startswith("{") else _yaml(text)
    except RecursionError:
        raise _unreadable("This can't be read: it is nested too deeply.", "Shorten the fixtures.") from None


def _checked_size(document: object) -> object:
    try:
        length = len(json.dumps(document, separators=(",", ":"), ensure_ascii=False, default=str))
    except RecursionError:
        length = 0  # it is too deep, which is reported below
    if length > MAX_CHARS:
        raise _too_long(f"As JSON the document has {length:,} characters")
    level = [document]
    for _ in range(DEEPEST):
        objects = [cast("dict[object, object]", one).values() for one in level if isinstance(one, dict)]
        lists = [cast("Iterable[object]", one) for one in level if isinstance(one, (list, tuple))]
        level = [item for items in (*objects, *lists) for item in items]
    if level:
        raise _unreadable(f"More than {DEEPEST} objects and lists are inside one another.", "Shorten the fixtures.")
    return document


def _json(text: str) -> object:
    def integer(digits: str) -> int | str:
        return int(digits) if len(digits.removeprefix("-")) <= DIGITS else digits

    try:
        return json.loads(
            text, object_pairs_hook=without_repeated_names, parse_constant=_refuse_constant, parse_int=integer
        )
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise _unreadable(f"This is not JSON at {place}: {error.msg}.") from None
    except ValueError as error:
        raise _unreadable(f"This JSON can't be read: {error}.") from None


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not a number of JSON")


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


_NOTHING: Final = object()


def spec_diff(before: TeamSpec, after: TeamSpec, *, names: tuple[str, str]) -> tuple[str, tuple[str, ...]]:
    """Return a unified diff of two specs as YAML, and the paths, such as `members[0].role`, of what differs.

    `names` stand in the diff's first lines.
    """
    old, new = (spec_yaml(spec).splitlines(keepends=True) for spec in (before, after))
    text = "".join(unified_diff(old, new, fromfile=names[0], tofile=names[1]))
    written = [spec.model_dump(mode="json", exclude_defaults=True) for spec in (before, after)]
    return text, tuple(_paths("", *written))


def spec_yaml(spec: TeamSpec) -> str:
    """Return a spec as YAML without what is the default anyway."""
    return dump_yaml({"version": spec.version, **spec.model_dump(mode="json", exclude_defaults=True)})


def _paths(path: str, before: object, after: object) -> Iterator[str]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        old, new = cast("Mapping[str, Json]", before), cast("Mapping[str, Json]", after)
        for key in sorted({*old, *new}):
            yield from _paths(f"{path}.{key}".lstrip("."), old.get(key, _NOTHING), new.get(key, _NOTHING))
    elif isinstance(before, list) and isinstance(after, list):
        pairs = zip_longest(cast("Sequence[Json]", before), cast("Sequence[Json]", after), fillvalue=_NOTHING)
        for number, (old, new) in enumerate(pairs):
            yield from _paths(f"{path}[{number}]", old, new)
    elif before != after:
        yield path
