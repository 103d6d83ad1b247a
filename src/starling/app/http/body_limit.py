"""The largest request body that is read."""

from typing import Final

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_BYTES: Final = 8 * 1024 * 1024
_BYTES_PER_CHARACTER: Final = 12  # the longest way to write one in JSON: two \uXXXX


def largest_body(input_chars: int) -> int:
    """Return how many bytes a body may have where a request may have so many characters."""
    return max(_BYTES, 2 * _BYTES_PER_CHARACTER * input_chars)


class BodyLimitMiddleware:
    """Answers a body that is too large with 413, without reading all of it."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app = app
        self._most = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; reading more than the limit raises HTTPException."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        left = self._most

        async def bounded() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise HTTPException(413, f"The body has more than {self._most} bytes")
            return message

        await self._app(scope, bounded, send)
