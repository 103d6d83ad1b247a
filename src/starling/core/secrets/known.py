"""Known secrets: found in texts and replaced, also where they are encoded or split over lines."""

import asyncio
import html
import json
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Self, cast
from urllib.parse import quote, quote_plus, unquote, urlsplit

from pydantic import BaseModel, SecretStr

from starling.core.settings.schema import Settings

_BITS, _SIX = 8, 6


def forms_of(secret: str) -> set[str]:
    """Return a secret, for an address its password too, and the encodings of both."""
    return {form for text in {secret, *passwords_of(secret)} for form in _encodings(text)}


def passwords_of(address: str) -> set[str]:
    """Return the password in an address, as written and decoded; nothing where there is none.

    A password that is the name of its user, or the word itself, isn't a secret: other texts have it too.
    """
    try:
        parts = urlsplit(address)
        password = parts.password
    except ValueError:
        return set()
    return {password, unquote(password)} if password and password not in (parts.username, "password") else set()


def _encodings(text: str) -> Iterator[str]:
    quoted = {quote(text, safe=""), quote(text), quote_plus(text)}
    marked = html.escape(text)
    yield from (text, marked, html.escape(text, quote=False), *quoted)
    for double, single in (("&#34;", "&#39;"), ("&quot;", "&#039;"), ("&quot;", "&apos;")):
        yield marked.replace("&quot;", double).replace("&#x27;", single)
    yield from (re.sub("%..", lambda found: found[0].lower(), one) for one in quoted)
    for ascii_only in (True, False):
        escaped = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
        yield from (escaped, json.dumps(escaped)[1:-1], escaped.replace("/", "\\/"))
        for special in ("<>&", "<>&='"):  # of Go, and of Gson
            yield re.sub(f"[{special}]", lambda found: f"\\u{ord(found[0]):04x}", escaped)
    upper = re.sub(r"\\u....", lambda found: f"\\u{found[0][2:].upper()}", json.dumps(text)[1:-1])  # as .NET has it
    yield re.sub("[<>&'+`]", lambda found: f"\\u{ord(found[0]):04X}", upper.replace('\\"', "\\u0022"))
    data = text.encode("utf-8", "surrogatepass")
    yield from (data.hex(), data.hex().upper())
    for offset in range(3):
        # what base64 of a longer text contains where the data begins `offset` bytes after a group of three
        encoded = b64encode(bytes(offset) + data).decode()
        within = encoded[-(-offset * _BITS // _SIX) : (offset + len(data)) * _BITS // _SIX]
        yield from (within, within.replace("+", "-").replace("/", "_"))


HIDDEN: Final = "***"
SHORTEST: Final = 8  # characters of a known secret; shorter ones are parts of ordinary texts
_WINDOW: Final = 65_536  # characters that are searched without a pause
_LONGEST_GAP: Final = 4_096  # white space within a secret that is still found
_WHITESPACE: Final = " \t\n\r\x0b\x0c"
_REMOVED: Final = dict.fromkeys(map(ord, _WHITESPACE))
_GAP: Final = re.compile(rf"\\n|[{_WHITESPACE}]+")

type Span = tuple[int, int]


class KnownSecrets:
    """Finds secrets in time that grows with the length of the text.

    White space and escaped line breaks don't hide a secret: results come in parts, and long lines are broken.
    """

    def __init__(self, named: Iterable[tuple[str, str]] = (), shortest: int = SHORTEST) -> None:
        self._names: dict[str, set[str]] = {}
        for name, secret in named:
            if len(secret) >= shortest:
                for form in forms_of(secret):
                    for compact in {_compact(form), form.translate(_REMOVED)}:
                        if len(compact) >= shortest:
                            self._names.setdefault(compact, set()).add(name)
        self._forms = sorted(self._names, key=len, reverse=True)
        self._reach = 2 * len(self._forms[0]) + _LONGEST_GAP if self._forms else 0

    @classmethod
    def of(cls, values: Mapping[str, str]) -> Self:
        """Return the secrets of these values by name."""
        return cls(values.items())

    def mask(self, text: str) -> str:
        """Return a text with `***` where a secret was."""
        return _masked(text, [span for span in self._spans(text) if span])

    def mask_beginning(self, text: str) -> str:
        """Return the beginning of a longer text, masked; most of a secret at its very end counts as one."""
        masked = self.mask(text)
        compact = _compact(masked[-self._reach :])
        for form in self._forms:
            for size in range(len(form) - 1, max(SHORTEST, len(form) // 2) - 1, -1):
                if compact.endswith(form[:size]):
                    return f"{masked[: _positions(masked)[-size]]}{HIDDEN}"
        return masked

    def names_in(self, text: str) -> frozenset[str]:
        """Return the names of the secrets in a text."""
        compact = _compact(text)
        return frozenset(name for form in self._forms if form in compact for name in self._names[form])

    def stand_in(self, content: bytes) -> bool:
        """Return whether bytes contain a secret as text in UTF-8; what is compressed or encrypted is not seen."""
        compact = content.replace(b"\\n", b"").translate(None, _WHITESPACE.encode())
        return any(form.encode() in compact for form in self._forms)

    async def mask_all(self, texts: Sequence[str]) -> list[str]:
        """Return texts masked, also where a secret is split over several; lets other tasks run meanwhile."""
        if not self._forms:
            return list(texts)
        spans: list[Span] = []
        for span in self._spans("\n".join(texts)):
            if span:
                spans.append(span)
            else:
                await asyncio.sleep(0)
        if not spans:
            return list(texts)
        found, begin, first = list[str](), 0, 0
        merged = _merged(spans)
        for text in texts:
            end = begin + len(text)
            while first < len(merged) and merged[first][1] <= begin:
                first += 1
            last = first
            while last < len(merged) and merged[last][0] < end:
                last += 1
            own = [(max(a, begin) - begin, min(b, end) - begin) for a, b in merged[first:last]]
            found.append(_masked(text, own))
            begin = end + 1
        return found

    def _spans(self, text: str) -> Iterator[Span | None]:
        """Yield where secrets are, and None after each window."""
        for start in range(0, len(text) if self._forms else 0, _WINDOW):
            window = text[start : start + _WINDOW + self._reach]
            compact = _compact(window)
            if hits := [form for form in self._forms if form in compact]:
                positions = _positions(window)
                for form in hits:
                    at = compact.find(form)
                    while at >= 0:
                        yield start + positions[at], start + positions[at + len(form) - 1] + 1
                        at = compact.find(form, at + len(form))
            yield None


def settings_secrets(settings: Settings) -> dict[str, str]:
    """Return the secrets of the settings by name, with the passwords in addresses."""
    return dict(_secrets("", settings))


def _secrets(name: str, value: object) -> Iterator[tuple[str, str]]:
    match value:
        case SecretStr():
            yield name, value.get_secret_value()
        case str():
            yield from ((name, password) for password in passwords_of(value))
        case BaseModel():
            for key, item in value:
                yield from _secrets(f"{name}.{key}".lstrip("."), item)
        case Mapping():
            for key, item in cast("Mapping[Any, Any]", value).items():
                yield from _secrets(f"{name}.{key}", item)
        case list() | tuple():
            for item in cast("Iterable[Any]", value):
                yield from _secrets(name, item)
        case _:
            pass


def _compact(text: str) -> str:
    return text.replace("\\n", "").translate(_REMOVED)


def _positions(text: str) -> list[int]:
    """Return where each character of the compact form is."""
    found: list[int] = []
    begin = 0
    for gap in _GAP.finditer(text):
        found += range(begin, gap.start())
        begin = gap.end()
    found += range(begin, len(text))
    return found


def _merged(spans: Iterable[Span]) -> list[Span]:
    """Return spans in order, as one where they overlap."""
    merged: list[Span] = []
    for begin, end in sorted(spans):
        if merged and begin < merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((begin, end))
    return merged


def _masked(text: str, spans: Iterable[Span]) -> str:
    pieces: list[str] = []
    done = 0
    for begin, end in sorted(spans):
        if begin >= done:
            pieces += (text[done:begin], HIDDEN)
        done = max(done, end)
    return "".join((*pieces, text[done:])) if pieces else text
