"""JSON schemas of tools: checked once, compiled once; references to other documents are never fetched."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from typing import Any, Final, cast

from jsonschema import Draft202012Validator, FormatChecker, SchemaError, ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import extend, validator_for  # pyright: ignore[reportUnknownVariableType]
from referencing import Registry
from referencing.exceptions import Unresolvable

from starling.core.json import Json

_CLOSED: Final[Registry[Any]] = Registry()  # resolves within the document; anything else is an error, not a request
_ANY_FORMAT: Final = FormatChecker(())  # patterns written for JavaScript are no fault
_MOST = 4_096
_SHOWN = 5


class Validators:
    """Compiled validators by a key that changes with the schema."""

    def __init__(self) -> None:
        self._compiled: dict[tuple[str, str], Validator] = {}

    def get(self, pin: str, part: str, schema: Mapping[str, Any]) -> Validator:
        """Return the validator of one part (`input`, `output`) of the definition with this hash."""
        found = self._compiled.get((pin, part))
        if found is None:
            if len(self._compiled) >= _MOST:
                self._compiled.clear()
            found = self._compiled[pin, part] = _validator(schema)
        return found


def _validator(schema: Mapping[str, Any]) -> Validator:
    return _tolerant(_dialect(schema))(schema, registry=_CLOSED)


def _dialect(schema: Mapping[str, Any]) -> type[Validator]:
    named = isinstance(schema.get("$schema"), str)
    return validator_for(schema, default=Draft202012Validator) if named else Draft202012Validator


@cache
def _tolerant(kind: type[Validator]) -> type[Validator]:
    """Return the dialect without the patterns that only JavaScript understands; the server checks those."""

    def lenient(keyword: str) -> Callable[..., Iterator[ValidationError]]:
        def check(*arguments: Any) -> Iterator[ValidationError]:
            with suppress(re.error):
                yield from kind.VALIDATORS[keyword](*arguments) or ()

        return check

    keywords = {keyword: lenient(keyword) for keyword in ("pattern", "patternProperties")}
    return cast("type[Validator]", extend(kind, keywords))


def schema_fault(schema: object) -> str | None:
    """Return why this can't be the schema of a JSON object, None where it can."""
    if not isinstance(schema, dict):
        return "is no object"
    if schema.get("type", "object") != "object":
        return "doesn't describe an object"
    document = cast("dict[str, Any]", schema)
    try:
        _dialect(document).check_schema(document, format_checker=_ANY_FORMAT)  # pyright: ignore[reportCallIssue]
    except SchemaError as error:
        return f"is no valid JSON schema: {_line(error)}"
    except (Unresolvable, RecursionError) as error:
        return f"is no valid JSON schema: {str(error)[:200]}"
    return None


def faults(validator: Validator, value: Json, root: str) -> list[str]:
    """Return what is wrong with a value, one line a fault, in words that its author can act on.

    A schema that refers to something outside of itself is a fault too.
    """
    try:
        found = sorted(validator.iter_errors(value), key=lambda error: len(error.absolute_path))
    except (Unresolvable, RecursionError):
        return ["the tool's schema refers to something that can't be resolved"]
    return [_fault(error, root) for error in found[:_SHOWN]]


def fits(validator: Validator, value: Json) -> bool:
    """Whether a value has no faults. Raises RecursionError for a schema that refers to itself without end."""
    try:
        return validator.is_valid(value)
    except Unresolvable:
        return False


def _fault(error: ValidationError, root: str) -> str:
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path)
    return f"{root}{''.join(parts)}: {_line(error)}{_expected(error)}"


def _expected(error: ValidationError) -> str:
    """Return the schema's type and description of the missing or wrong value."""
    schema: Any = error.schema
    if not isinstance(schema, dict):
        return ""
    document = cast("dict[str, Any]", schema)
    if error.validator == "required":
        known: dict[str, Any] = document.get("properties", {})
        missing = set(cast("list[str]", error.validator_value)).difference(cast("dict[str, Any]", error.instance))
        return f" ({', '.join(_about(name, known.get(name)) for name in sorted(missing))})"
    about = document.get("description")
    return f" ({about[:200]})" if isinstance(about, str) else ""


def _about(name: str, schema: object) -> str:
    document = cast("dict[str, Any]", schema) if isinstance(schema, dict) else {}
    words = filter(None, (str(document.get("type", "")), str(document.get("description", ""))[:200]))
    return f"{name}: {', '.join(words) or 'any value'}"


def _line(error: SchemaError | ValidationError) -> str:
    return (error.message.splitlines() or [""])[0][:300]
