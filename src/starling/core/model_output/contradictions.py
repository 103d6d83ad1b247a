"""Contradictions of a document by the rest of its answer: by objects that don't fit its type, or can't be read.

A document type names in `MUST_AGREE` the members in which nothing else in the answer may contradict it.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from pydantic import BaseModel, ValidationError

_VALUE: Final = r"""[\s"'*_”]*+[:=][\s"'*_“]*+(\w++)"""


def agreed_members(kind: type[BaseModel]) -> Sequence[str]:
    """Return the members in which all documents of this type in one answer have to be equal."""
    return getattr(kind, "MUST_AGREE", ())


def is_contradicted(found: BaseModel, objects: Iterable[Mapping[str, Any]], prose: str) -> bool:
    """Whether one of these objects, none of which is a document, or the text around them contradicts `found`."""
    parts = [part for value in objects for part in _parts(value)]
    return any(
        any(_disagrees(found, name, part) for part in parts) or _prose_disagrees(found, name, prose)
        for name in agreed_members(type(found))
    )


def has_two_values(text: str, found: BaseModel) -> bool:
    """Whether the text of a document has a member twice, with values that contradict each other."""
    names = [name for name in agreed_members(type(found)) if text.count(name) > 1]
    repeated = False

    def object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal repeated
        value = dict(pairs)
        repeated = repeated or any(key in names and value[key] != own for key, own in pairs)
        return value

    if not names:
        return False
    try:
        json.loads(text, object_pairs_hook=object_of)
    except (ValueError, RecursionError):  # it was read in another syntax
        return any(_prose_disagrees(found, name, text) for name in names)
    return repeated


def _parts(value: object) -> Iterator[Mapping[str, Any]]:
    """Yield the objects in a JSON value, itself among them."""
    left = [value]
    while left:
        part = left.pop()
        if isinstance(part, dict):
            yield cast("dict[str, Any]", part)
            left.extend(cast("dict[str, object]", part).values())
        elif isinstance(part, list):
            left.extend(cast("list[object]", part))


def _disagrees(found: BaseModel, name: str, part: Mapping[str, Any]) -> bool:
    """Whether an object has another value for a member.

    A value that the member can't have counts if the object looks like a document otherwise.
    """
    plain = {key.casefold(): value for key, value in part.items()}
    fields = type(found).model_fields.keys()
    known = plain.keys() & fields
    for key in (name, type(found).__name__.casefold()):
        if key not in plain or isinstance(plain[key], (dict, list)):
            continue
        own = _value(type(found), name, plain[key])
        if own is None:
            if name in known and (len(known) > 1 or len(known) == len(plain)):
                return True
        elif own != getattr(found, name):
            return True
    return False


def _prose_disagrees(found: BaseModel, name: str, prose: str) -> bool:
    values = re.findall(rf"\b(?:{name}|{type(found).__name__}){_VALUE}", prose, re.IGNORECASE)
    return any(_value(type(found), name, value) not in (None, getattr(found, name)) for value in values)


def _value(kind: type[BaseModel], name: str, value: object) -> Any:
    """Return a value as the member takes it, None where it doesn't."""
    try:
        return getattr(kind.model_validate({name: value}), name)
    except ValidationError:
        return None
