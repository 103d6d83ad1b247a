"""Inputs and outputs in spans: converted to text and shortened."""

import json
from collections.abc import Mapping, Sequence
from typing import cast

from starling.core.json import storable_text
from starling.core.secrets.look_alikes import mask_keys

_TEXT_CHARS = 4_000
_ALL_CHARS = 40_000
_DEPTH = 20


def content_text(value: object) -> str:
    """Return a string unchanged and any other value as JSON, with long strings cut; the result is valid UTF-8."""
    if isinstance(value, str):
        return storable_text(_cut(mask_keys(value), _TEXT_CHARS))
    text = json.dumps(_shorten(value), default=str, ensure_ascii=False)
    return storable_text(_cut(text, _ALL_CHARS))


def _shorten(value: object, depth: int = _DEPTH) -> object:
    if isinstance(value, str):
        return _cut(mask_keys(value), _TEXT_CHARS)
    if depth == 0 and isinstance(value, Mapping | Sequence):
        return "…"
    if isinstance(value, Mapping):
        return {str(key): _shorten(item, depth - 1) for key, item in cast("Mapping[object, object]", value).items()}
    if isinstance(value, Sequence):
        return [_shorten(item, depth - 1) for item in cast("Sequence[object]", value)]
    return value


def _cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else f"{text[:characters]}… [{len(text):,} characters]"
