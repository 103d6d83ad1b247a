"""JSON text where there is much of it: written by orjson, which can't write everything that JSON can."""

import orjson

from starling.core.json import storable


def dumps(value: object) -> bytes:
    """Return `value` as UTF-8 JSON; text that UTF-8 can't hold is replaced."""
    try:
        return orjson.dumps(value)
    except TypeError:  # a lone surrogate, an integer beyond 64 bits, a mapping that is no dict, a key of str's kin
        return orjson.dumps(storable(value), option=orjson.OPT_NON_STR_KEYS)
