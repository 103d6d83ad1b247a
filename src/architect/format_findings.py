"""Findings for what breaks the format of a team spec."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from pydantic import BaseModel, ValidationError

from architect.near_names import did_you_mean
from starling.core.teams.findings import Finding
from starling.core.teams.spec import Criterion, Example, Fixture, TeamGrants, TeamLimits, TeamMember, TeamSpec
from starling.core.validation_errors import fault_text

_SHOWN: Final = 60  # characters of a wrong value or key
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
        location = _location(fault["loc"])
        # pydantic counts only the valid items of a list: one with wrong items isn't too short as well
        if location in seen or (fault["type"] == "too_short" and fault["input"]):
            continue
        seen.add(location)
        names = tuple(part for part in location if isinstance(part, str))
        yield Finding(_path(location), "format", _reason(fault, names), _remedy(fault, names, whole))


def _location(location: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Return where a fault is, without the types that pydantic tried for a field of any JSON."""
    end = next((place + 1 for place, part in enumerate(location) if part in _FREE), len(location))
    return location[:end]


def _path(location: tuple[int | str, ...]) -> str:
    parts = (f"[{part}]" if isinstance(part, int) else f".{_shortened(part)}" for part in location)
    return "".join(parts).removeprefix(".")


def _reason(fault: Mapping[str, Any], names: tuple[str, ...]) -> str:
    text = fault_text(fault)
    if fault["type"] == "string_pattern_mismatch" and names == _CRITERIA:
        text = "must be the id of a criterion"
    elif names and names[-1] in _FREE:
        text = "must be JSON"
    if not text.startswith(("must ", "is ")):
        return f"{text[:1].upper()}{text[1:]}."
    return f"The value{_shown(fault['input']) if text.startswith('must ') else ''} {text}."


def _shown(value: object) -> str:
    if not isinstance(value, (str, int, float)):
        return ""
    return f" {_shortened(repr(value))}"


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _remedy(fault: Mapping[str, Any], names: tuple[str, ...], whole: type[BaseModel]) -> str:
    part = _PARTS.get(names[:-1]) if names[:-1] else whole
    field = part.model_fields.get(names[-1]) if part and names else None
    if part and names and fault["type"] == "extra_forbidden":
        return did_you_mean(names[-1], part.model_fields, f"Remove it. {_SCHEMA}")
    about = field.description if field and field.description else _SCHEMA
    return f"Add it. {about}" if fault["type"] == "missing" else f"Correct it. {about}"
