"""Reads the document of a run from its JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

from starling.core.run_document.document import RunDocument


def load(document: Mapping[str, Any]) -> RunDocument:
    """Return the document whose JSON the API gave. Parts that it lacks are empty; unknown fields are left out."""
    return cast("RunDocument", _record(RunDocument, document))


def _record(kind: type[Any], data: Mapping[str, Any]) -> object:
    return kind(**{name: _value(hint, data[name]) for name, hint in _hints(kind).items() if name in data})


@cache
def _hints(kind: type[Any]) -> Mapping[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


def _value(kind: Any, value: Any) -> Any:
    """Return a value of JSON as a field of this type has it."""
    if value is None:
        return None
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (UnionType, Union):
        return _value(next(one for one in arguments if one is not NoneType), value)
    if origin is Sequence:
        return tuple(_value(arguments[0], item) for item in value)
    if not isinstance(kind, type):  # a name of a type that is the same in JSON
        return value
    if is_dataclass(kind):
        return _record(kind, value)
    if issubclass(kind, datetime):
        return datetime.fromisoformat(value)
    return kind(value) if issubclass(kind, StrEnum) else value
