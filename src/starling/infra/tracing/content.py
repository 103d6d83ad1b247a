"""What of inputs and outputs is shown in a trace: the beginning of each text."""

import json
from collections.abc import Mapping, Sequence
from typing import cast

from starling.core.json import storable_text

_TEXT_CHARS = 4_000
_ALL_CHARS = 40_000
_DEPTH = 20


def shown(value: object) -> str:
    """Return a text as it is, anything else as JSON, with long texts cut. Whatever it is, it can be sent."""
    if isinstance(value, str):
        return storable_text(_cut(value, _TEXT_CHARS))
    text = json.dumps(_shortened(value), default=str, ensure_ascii=False)
    return storable_text(_cut(text, _ALL_CHARS))


def _shortened(value: object, depth: int = _DEPTH) -> object:
    if isinstance(value, str):
        return _cut(value, _TEXT_CHARS)
    if depth == 0 and isinstance(value, Mapping | Sequence):
        return "…"
    if isinstance(value, Mapping):
        return {str(key): _shortened(item, depth - 1) for key, item in cast("Mapping[object, object]", value).items()}
    if isinstance(value, Sequence):
        return [_shortened(item, depth - 1) for item in cast("Sequence[object]", value)]
    return value


def _cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else f"{text[:characters]}… [{len(text):,} characters]"
