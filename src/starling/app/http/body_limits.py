"""Limits of bodies: their bytes, and what is in them before it is validated, so that no request stops the process."""

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mcp_gateway.helper_process import helper_output
from starling.app.http import body_check
from starling.app.http.problems import BodyTooLargeError

_BYTES: Final = 3 * 2**19
_LOOP_BYTES: Final = 2**18  # of a body that is read in the event loop
_VALUES: Final = 10_000  # pydantic collects every error: so many take about 40 ms
_SECONDS: Final = 10


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
        self._slots = asyncio.Semaphore(2)  # of helper processes: others are for large answers of servers

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
                    if found := await self._excess(bytes(body), limits):
                        raise BodyTooLargeError(found)
                    return {**message, "body": bytes(body)}
            return message

        await self._app(scope, checked if scope["type"] == "http" else receive, send)

    async def _excess(self, body: bytes, limits: _Limits) -> str:
        """Return which limit a body exceeds, empty for none. Raises HTTPException for one that can't be read."""
        separators = sum(map(body.count, (b",", b"[", b"{", b"\n")))  # no fewer than keys and items
        if len(body) <= _LOOP_BYTES and separators <= _VALUES:
            with suppress(ValueError):  # its route says what it is
                return body_check.excess(body, limits.values, by_line=limits.by_line)
            return ""
        given = json.dumps([limits.values, limits.by_line]).encode() + b"\n" + body
        try:
            async with self._slots:
                output = await helper_output(body_check.__name__, given, _SECONDS, "-S")
        except OSError as error:  # too many processes or open files
            reason = f"The body is large, and can't be handed to a process: {error.strerror}"
            raise HTTPException(503, reason) from None
        found: str | list[str] = json.loads(output or f'"more than can be read in {_SECONDS} s"')
        if isinstance(found, list):
            raise HTTPException(400) from ValueError(*found)
        return found
