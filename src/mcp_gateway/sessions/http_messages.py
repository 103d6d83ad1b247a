"""HTTP answers of MCP servers: decoded within bounds and read by the inbox before the SDK sees them."""

import re
import zlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from typing import Any, Final

import anyio.lowlevel
import httpx
from mcp.types import JSONRPCMessage, JSONRPCRequest
from pydantic import ValidationError

from mcp_gateway.sessions.inbox import TOO_LONG, Inbox
from mcp_gateway.sessions.messages import MESSAGE_BYTES, UnreadableError
from starling.core.json import as_object

ENCODINGS: Final = "gzip, deflate"
_CHUNK: Final = 2**16  # bytes that are decoded at once
_END: Final = re.compile(rb"\r\n\r\n|\n\n|\r\r")  # of an event
_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
_NOTHING: Final = b": nothing\n\n"
_OF_THE_BODY: Final = ("content-encoding", "content-length", "transfer-encoding", "content-type")  # as it came
_WINDOW_BITS: Final = {"gzip": 31, "x-gzip": 31, "deflate": 15}


class InboxClient(httpx.AsyncClient):
    """Gives the SDK only messages that the inbox has read.

    An answer that can't be read becomes an error of its request. Bodies that aren't messages are cut off.
    """

    def __init__(self, inbox: Inbox, **options: Any) -> None:
        super().__init__(**options)
        self.headers["accept-encoding"] = ENCODINGS
        self._inbox = inbox

    async def send(self, request: httpx.Request, *, stream: bool = False, **options: Any) -> httpx.Response:
        await request.aread()  # one that follows a redirect is made of a stream
        asked: JSONRPCMessage | None = None
        if request.method == "POST":
            with suppress(ValidationError):
                asked = JSONRPCMessage.model_validate_json(request.content)
        if asked is not None:
            self._inbox.pending.sent(asked)
        call = asked.root if asked is not None and isinstance(asked.root, JSONRPCRequest) else None
        if trace := as_object(as_object(call and call.params).get("_meta")).get("traceparent"):
            request.headers["traceparent"] = str(trace)  # the session's task has the span that opened it
        number = call.id if call else None
        response = self._read(await super().send(request, stream=True, **options), number)
        if not stream:
            try:
                await response.aread()
            finally:
                await response.aclose()
        return response

    def _read(self, response: httpx.Response, number: int | str | None) -> httpx.Response:
        """Return the answer as the SDK may read it."""
        media = response.headers.get("content-type", "").lower()
        body: AsyncGenerator[bytes]
        if response.status_code == 200 and media.startswith("text/event-stream"):
            body = self._events(response, number)
        elif response.status_code == 200 and number is not None:
            body, media = self._answer(response, number, media), "application/json"
        else:
            body = _bounded(response)
        headers = {name: value for name, value in response.headers.items() if name.lower() not in _OF_THE_BODY}
        headers["content-type"] = media
        read = httpx.Response(
            response.status_code, headers=headers, stream=_Body(body, response), request=response.request
        )
        read.next_request = response.next_request
        return read

    async def _answer(self, response: httpx.Response, number: int | str, media: str) -> AsyncGenerator[bytes]:
        """Yield the answer to a request that is the whole body."""
        raw = b""
        try:
            if not media.startswith("application/json"):
                raise UnreadableError(f"its content type is {media[:100]!r}")
            raw = await _joined(_decoded(response))
        except UnreadableError as error:
            yield _json(self._inbox.refused(raw, str(error), number))
            return
        first, _, rest = raw.partition(b"\n")
        if rest and first.rstrip().endswith(b"}"):  # several messages, a line each
            raw = first
        try:
            message = await self._inbox.take(raw, number)
        except UnreadableError:
            message = None
        if message is None or self._inbox.pending.has(number):
            message = self._inbox.refused(b"", "it is not an answer", number)
        yield _json(message)

    async def _events(self, response: httpx.Response, number: int | str | None) -> AsyncGenerator[bytes]:
        """Yield the events of a stream. One that answers a request ends with an answer, unless it can be resumed."""
        resumable, reason = False, "its stream ended without it"
        try:
            async with aclosing(_split(_decoded(response))) as events:
                async for event in events:
                    resumable = resumable or event.startswith(b"id:") or b"\nid:" in event
                    yield await self._event(event, number)
        except UnreadableError as error:
            resumable, reason = False, str(error)
            if number is None and len(error.args) > 1:
                try:
                    yield _event_of(self._inbox.refused(error.args[1], reason))
                except UnreadableError:
                    yield _NOTHING
        if number is not None and not resumable and self._inbox.pending.has(number):
            yield _event_of(self._inbox.refused(b"", reason, number))

    async def _event(self, event: bytes, number: int | str | None) -> bytes:
        """Return an event as the SDK may have it; without its data if there is nothing to hand on."""
        lines = _LINE_END.split(event) if b"\r" in event else event.split(b"\n")
        data = b"\n".join(_value(line) for line in lines if line.startswith(b"data:"))
        kind = next((_value(line) for line in lines if line.startswith(b"event:")), b"message")
        if kind != b"message" or not data:
            return event + b"\n\n"
        others = b"".join(line + b"\n" for line in lines if line.startswith((b"id:", b"retry:")))
        try:
            message = await self._inbox.take(data, number)
        except UnreadableError:
            message = None
        return others + (_NOTHING if message is None else _event_of(message))


class _Body(httpx.AsyncByteStream):
    def __init__(self, chunks: AsyncGenerator[bytes], response: httpx.Response) -> None:
        self._chunks = chunks
        self._response = response

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._chunks

    async def aclose(self) -> None:
        await self._chunks.aclose()
        await self._response.aclose()


async def _decoded(response: httpx.Response) -> AsyncGenerator[bytes]:
    """Yield the decoded body in small pieces, so that other tasks have their turn. Raises UnreadableError."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding == "identity":
        async for chunk in response.aiter_raw():
            yield chunk
        return
    if encoding not in _WINDOW_BITS:
        raise UnreadableError(f"its content encoding {encoding[:50]!r} was not asked for")
    decoder = zlib.decompressobj(_WINDOW_BITS[encoding])
    try:
        async for chunk in response.aiter_raw():
            piece, rest = b".", chunk
            while (rest or len(piece) == _CHUNK) and not decoder.eof:
                piece = decoder.decompress(rest, _CHUNK)
                rest = decoder.unconsumed_tail
                yield piece
                await anyio.lowlevel.checkpoint()
    except zlib.error as error:
        raise UnreadableError(f"it can't be decoded: {error}") from None


async def _joined(chunks: AsyncGenerator[bytes]) -> bytes:
    whole = bytearray()
    async with aclosing(chunks):
        async for chunk in chunks:
            whole += chunk
            if len(whole) > MESSAGE_BYTES:
                raise UnreadableError(TOO_LONG)
    return bytes(whole)


async def read_body(response: httpx.Response, *, whole: bool = True) -> bytes:
    """Return a decoded body or its beginning. Raises UnreadableError, or httpx.DecodingError for a beginning."""
    return await _joined(_decoded(response) if whole else _bounded(response))


async def _split(chunks: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """Yield each event without its end. Raises UnreadableError for one that is too long."""
    buffer = bytearray()
    looked = 0
    async with aclosing(chunks):
        async for chunk in chunks:
            buffer += chunk
            while (end := _end(buffer, max(0, looked - 3))) is not None:
                yield bytes(buffer[: end[0]])
                del buffer[: end[1]]
                looked = 0
            looked = len(buffer)
            if looked > MESSAGE_BYTES:
                raise UnreadableError(TOO_LONG, bytes(buffer[:_CHUNK]).partition(b"data:")[2].lstrip())


def _end(buffer: bytearray, start: int) -> tuple[int, int] | None:
    """Return where the end of the first event begins and ends."""
    if buffer.find(b"\r", start) < 0:
        end = buffer.find(b"\n\n", start)
        return (end, end + 2) if end >= 0 else None
    found = _END.search(buffer, start)
    return found.span() if found else None


async def _bounded(response: httpx.Response) -> AsyncGenerator[bytes]:
    """Yield the beginning of a body that isn't a message."""
    left = _CHUNK
    try:
        async with aclosing(_decoded(response)) as chunks:
            async for chunk in chunks:
                yield chunk[:left]
                left -= len(chunk)
                if left <= 0:
                    return
    except UnreadableError as error:
        raise httpx.DecodingError(str(error)) from None


def _value(line: bytes) -> bytes:
    return line.partition(b":")[2].removeprefix(b" ")


def _event_of(message: JSONRPCMessage) -> bytes:
    return b"event: message\ndata: " + _json(message) + b"\n\n"


def _json(message: JSONRPCMessage) -> bytes:
    return message.model_dump_json(by_alias=True, exclude_none=True).encode()
