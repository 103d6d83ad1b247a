"""Inputs and outputs in spans: converted to text and shortened."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final, cast

import orjson

from starling.core.json import storable_text
from starling.core.secrets.look_alikes import mask_keys, may_have_keys

_TEXT_CHARS = 4_000
_ALL_CHARS = 40_000
_DEPTH = 20
_CONTAINERS: Final = (dict, list, tuple, Mapping, Sequence)
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False)


def content_text(value: object) -> str:
    """Return a string as it is and any other value as JSON, with long strings cut; the result is valid UTF-8.

    What looks like a key is masked.
    """
    if isinstance(value, str):
        return storable_text(_cut(mask_keys(value), _TEXT_CHARS))
    text = _short_json(value)
    if text and not may_have_keys(text):
        return text
    text = _ENCODER.encode(_shorten(value, lambda text: _cut(text, _TEXT_CHARS)))
    if may_have_keys(text):  # one look at the whole, since most have none
        text = _ENCODER.encode(_shorten(value, lambda text: _cut(mask_keys(text), _TEXT_CHARS)))
    return storable_text(_cut(text, _ALL_CHARS))


def _short_json(value: object) -> str:
    """Return a value as JSON if there is nothing to shorten; else, and for what orjson can't write, an empty string."""
    try:
        text = orjson.dumps(value).decode()
    except TypeError:
        return ""
    return text if len(text) <= _TEXT_CHARS else ""


def _shorten(value: object, text_of: Callable[[str], str], depth: int = _DEPTH) -> object:
    """Return a value with `text_of` of its strings, keys included, and without what is deeper than twenty levels."""
    if type(value) is str:  # most are
        return text_of(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if not isinstance(value, _CONTAINERS):
        return text_of(str(value))
    if depth == 0:
        return "…"
    if isinstance(value, Mapping):
        items = cast("Mapping[object, object]", value).items()
        return {text_of(str(key)): _shorten(item, text_of, depth - 1) for key, item in items}
    return [_shorten(item, text_of, depth - 1) for item in cast("Sequence[object]", value)]


def _cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else f"{text[:characters]}… [{len(text):,} characters]"
