"""The forms in which a secret may appear in a text."""

import html
import json
from base64 import b64encode
from collections.abc import Iterator
from urllib.parse import quote, quote_plus, unquote, urlsplit

_BITS, _SIX = 8, 6


def forms_of(secret: str) -> set[str]:
    """Return a secret, for an address its password too, and the encodings of both."""
    return {form for text in {secret, *passwords_of(secret)} for form in _encodings(text)}


def passwords_of(address: str) -> set[str]:
    """Return the password in an address, as written and decoded; nothing where there is none.

    A password that is the name of its user, or the word itself, is no secret: other texts have it too.
    """
    try:
        parts = urlsplit(address)
        password = parts.password
    except ValueError:
        return set()
    return {password, unquote(password)} if password and password not in (parts.username, "password") else set()


def _encodings(text: str) -> Iterator[str]:
    quoted = {quote(text, safe=""), quote(text), quote_plus(text)}
    yield from (text, html.escape(text), *quoted)
    yield from (one.replace("%2F", "%2f").replace("%3D", "%3d").replace("%2B", "%2b") for one in quoted)
    for ascii_only in (True, False):
        escaped = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
        yield from (escaped, json.dumps(escaped)[1:-1], escaped.replace("/", "\\/"))
    data = text.encode("utf-8", "surrogatepass")
    yield from (data.hex(), data.hex().upper())
    for offset in range(3):
        within = _base64_within(data, offset)
        yield from (within, within.replace("+", "-").replace("/", "_"))


def _base64_within(data: bytes, offset: int) -> str:
    """Return what base64 of a longer text contains where `data` begins `offset` bytes after a group of three."""
    encoded = b64encode(bytes(offset) + data).decode()
    first = -(-offset * _BITS // _SIX)
    return encoded[first : (offset + len(data)) * _BITS // _SIX]
