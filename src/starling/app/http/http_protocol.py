"""The HTTP protocol of uvicorn with limits for connections: their number, and the time and size of headers."""

import asyncio
import logging
import resource
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final, cast

import orjson
from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

_ABORT: Final = "starling.abort"  # the extension of a request's scope that drops the connection
_OTHER_FILES: Final = 256  # descriptors that the process needs besides those of connections
_LEAST_CONNECTIONS: Final = 32
_OVERHEAD: Final = 4  # bytes of a header line besides name and value
_log = logging.getLogger(__name__)


def abort_connection(scope: Scope) -> bool:
    """Drop a request's connection and what was not sent of its response; return False where the server can't."""
    abort: Callable[[], None] | None = scope.get("extensions", {}).get(_ABORT)
    if abort is None:
        return False
    abort()
    return True


class LimitedHttpProtocol(HttpToolsProtocol):
    """Refuses connections beyond a number, and closes those whose headers are too slow or too large.

    A connection without an open response has `header_seconds` for the headers of a request from its first byte on, a
    new one from its start on. After a response uvicorn waits for that byte as long as its own setting says. The body of
    a request that was answered already is dropped for `header_seconds`, so that its client gets to read the answer.
    """

    most_connections = 2_048  # open at a time in one process, if its limit of open files allows; further ones get 503
    header_seconds = 10.0  # then the connection is closed
    header_bytes = 2**15  # larger headers get 431

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        left = self.most_connections if files == resource.RLIM_INFINITY else files - _OTHER_FILES
        self._most = min(self.most_connections, max(_LEAST_CONNECTIONS, left))
        self._timer: asyncio.TimerHandle | None = None
        self._header_bytes = self._unread_bytes = 0
        self._refused = self._in_body = False

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        if len(self.connections) > self._most:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, f"{self._most} connections are open, as many as may be.")
        else:
            self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        if isinstance(exc, TimeoutError):  # TCP_USER_TIMEOUT
            _log.warning("the client %s took nothing of a response for too long and was disconnected", self.client)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        if self._timer is None and not self._responding:
            self._expect_headers()
        self._unread_bytes += len(data)
        super().data_received(data)
        is_header = self._timer is not None and not self._in_body
        if is_header and self._unread_bytes > self.header_bytes and not self._refused:
            self._refuse_headers()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._header_bytes = 0
        if self._timer is None:
            self._expect_headers()
        self.scope["extensions"] = {_ABORT: cast("dict[object, object]", self.transport.abort)}

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._header_bytes += len(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._header_bytes += len(name) + len(value) + _OVERHEAD

    def on_headers_complete(self) -> None:
        self._stop_timer()
        self._in_body = True
        if self._header_bytes > self.header_bytes:
            self._refuse_headers()
        elif not self._refused:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._stop_timer()
        self._in_body = False
        if not self._refused:
            super().on_message_complete()

    @property
    def _responding(self) -> bool:
        cycle = cast("RequestResponseCycle | None", self.cycle)  # None before the first request
        return cycle is not None and not cycle.response_complete

    def _expect_headers(self) -> None:
        self._unread_bytes = 0
        self._timer = self.loop.call_later(self.header_seconds, self._headers_are_late)

    def _headers_are_late(self) -> None:
        self._timer = None
        if self._responding:  # of a request that was sent before the one before it was answered
            self._expect_headers()
        elif self._unread_bytes and not self._in_body:
            seconds = self.header_seconds
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, f"The headers of the request took more than {seconds:g} s.")
        else:
            self.transport.close()

    def _refuse_headers(self) -> None:
        most = self.header_bytes
        self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"The headers have more than {most} bytes.")

    def _refuse(self, status: HTTPStatus, detail: str) -> None:
        """Answer without a request, and close."""
        self._refused = True
        self._stop_timer()
        if self._responding:  # the answer would stand in the middle of another one
            self.transport.abort()
        elif not self.transport.is_closing():
            self.transport.write(_answer(status, detail))
            self.transport.close()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _answer(status: HTTPStatus, detail: str) -> bytes:
    problem = {"type": "about:blank", "title": status.phrase, "status": status, "detail": detail, "code": "http"}
    body = orjson.dumps(problem)
    lines = [
        f"HTTP/1.1 {status:d} {status.phrase}",
        "content-type: application/problem+json",
        f"content-length: {len(body)}",
        "connection: close",
        *(["retry-after: 1"] if status is HTTPStatus.SERVICE_UNAVAILABLE else []),
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body
