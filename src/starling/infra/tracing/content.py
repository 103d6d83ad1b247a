"""What of inputs and outputs is shown in a trace: the beginning of each text."""

from collections.abc import Mapping, Sequence
from typing import cast

import orjson

_TEXT_CHARS = 4_000
_ALL_CHARS = 40_000


def shown(value: object) -> str:
    """Return a text as it is, anything else as JSON, with long texts cut."""
    if isinstance(value, str):
        return _cut(value, _TEXT_CHARS)
    text = orjson.dumps(_shortened(value), default=str, option=orjson.OPT_NON_STR_KEYS).decode()
    return _cut(text, _ALL_CHARS)


def _shortened(value: object) -> object:
    if isinstance(value, str):
        return _cut(value, _TEXT_CHARS)
    if isinstance(value, Mapping):
        return {key: _shortened(item) for key, item in cast("Mapping[object, object]", value).items()}
    if isinstance(value, Sequence):
        return [_shortened(item) for item in cast("Sequence[object]", value)]
    return value


def _cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else f"{text[:characters]}… [{len(text):,} characters]"
