"""Limits of bodies: their bytes, and what is in them before it is parsed, so that no request stops the process."""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from starling.app.http.problems import BodyTooLargeError

_BYTES: Final = 3 * 2**19
_LOOP_BYTES: Final = 2**18  # of a body whose structure is counted in the event loop
_VALUES: Final = 10_000  # pydantic collects every error: so many take about 40 ms
_LEVELS: Final = 64
_LINES: Final = 5_000
_LINE_BYTES: Final = 2**19
_BRACKET: Final = re.compile(rb"[\[{\]}]")
_EMPTY: Final = re.compile(rb"\[\s*\]|\{\s*\}")


@dataclass(frozen=True, slots=True)
class _Limits:
    """What a route reads: bytes, keys and items, and whether each line is JSON."""

    bytes: int = _BYTES
    values: int = _VALUES
    by_line: bool = False


_CHATS: Final = _Limits(3 * 2**20, 20_000)  # validated up to the first error
_OF_ROUTES: Final[Mapping[str, _Limits]] = {
    "/v1/chat/completions": _CHATS,
    "/v1/responses": _CHATS,
    "/v1/registry/plan": _Limits(values=20_000),  # validated in a thread, server by server
    "/v1/registry/reload": _Limits(values=20_000),
    "/v1/skills/import": _Limits(2**23, by_line=True),
}


class BodyLimitMiddleware:
    """Answers a body that is too large, or that has too much in it, with 413; its route gets it in one piece."""

    def __init__(self, app: ASGIApp, input_chars: int) -> None:
        self._app = app
        self._limits = _Limits(max(_BYTES, 15 * input_chars))  # in JSON a character takes up to 12: two \uXXXX

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; reading a body beyond its limits raises HTTPException."""
        limits = _OF_ROUTES.get(scope.get("path", ""), self._limits)
        most = max(limits.bytes, self._limits.bytes)

        async def checked() -> Message:
            body = bytearray()
            while (message := await receive())["type"] == "http.request":
                body += message.get("body", b"")
                if len(body) > most:
                    raise BodyTooLargeError(f"more than {most} bytes", "limits.input_chars")
                if not message.get("more_body", False):
                    await _check(bytes(body), limits)
                    return {**message, "body": bytes(body)}
            return message

        await self._app(scope, checked if scope["type"] == "http" else receive, send)


async def _check(body: bytes, limits: _Limits) -> None:
    """Raise HTTPException for a body with too much in it, or in another encoding than is counted here."""
    if b"\0" in body:
        raise HTTPException(400) from ValueError("it has NUL bytes, as text in UTF-16 does")
    if len(body) <= _LOOP_BYTES:
        found = excess(body, limits.values, by_line=limits.by_line)
    else:
        found = await asyncio.to_thread(excess, body, limits.values, by_line=limits.by_line)
    if found:
        raise BodyTooLargeError(found)


def excess(body: bytes, values: int, *, by_line: bool) -> str:
    """Return which limit a body of JSON exceeds, empty for none; `values` are the keys and items of a text.

    With `by_line` each line is a text. What is not JSON is counted up to its fault, where parsing it ends as well.
    """
    if not by_line:
        return _excess(body, values)
    if body.count(b"\n") > _LINES:
        return f"more than {_LINES:,} lines"
    for number, line in enumerate(body.split(b"\n"), 1):
        found = f"more than {_LINE_BYTES:,} bytes" if len(line) > _LINE_BYTES else _excess(line, values)
        if found:
            return f"{found} in line {number}"
    return ""


def _excess(text: bytes, values: int) -> str:
    """Count without parsing, which would make an object of each value: only what stands outside of strings counts."""
    unescaped = text.replace(rb"\\", b"").replace(rb"\"", b"")
    too_many = f"more than {values:,} keys and items"
    if unescaped.count(b'"') > 4 * values + 2:  # a key and its value have four
        return too_many
    structure = b'"'.join(unescaped.split(b'"')[::2])  # a quotation mark for each string
    opened = structure.count(b"[") + structure.count(b"{")
    further = structure.count(b",")
    if max(further, opened - 1) > values or further + opened - len(_EMPTY.findall(structure)) > values:
        return too_many
    if structure.count(b"]") + structure.count(b"}") > opened:
        return ""  # not JSON, as its route says
    levels = accumulate(1 if bracket in b"[{" else -1 for bracket in _BRACKET.findall(structure))
    return f"more than {_LEVELS} levels of lists and objects" if max(levels, default=0) > _LEVELS else ""
