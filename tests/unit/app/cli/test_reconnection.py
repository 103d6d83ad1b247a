"""Requests to an API whose platform is started again."""

import json
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from starling.app.cli.platform.api_requests import ApiRequests, ApiUnavailableError
from starling.app.cli.platform.reconnection import ReconnectingApi, RetryTimes
from starling.core.errors import InvalidRequestError

_QUICK = RetryTimes(answered_before=20, never_answered=0.05, pause=0.01, notice=20)


class _Server(ThreadingHTTPServer):
    """Answers requests with these statuses, one after another, then with 200; `received` are their bodies."""

    def __init__(self, statuses: list[int]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.statuses = statuses
        self.received: list[Any] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_POST(self) -> None:
        self.server.received.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        self.send_response(self.server.statuses.pop(0) if self.server.statuses else 200)
        self.end_headers()
        self.wfile.write(b'{"detail": "no"}')

    def log_message(self, *_: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Say nothing."""


@contextmanager
def _server(*statuses: int) -> Generator[_Server]:
    with _Server([*statuses]) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def _closed_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        return f"http://127.0.0.1:{closed.getsockname()[1]}"


def test_request_is_repeated_after_503_until_it_is_answered() -> None:
    with _server(503, 503) as server:
        api = ReconnectingApi(ApiRequests(server.url), lambda: "", times=_QUICK)

        assert api.post("/v1/runs/r/resume", ["yes"]) == {"detail": "no"}

    assert server.received == [["yes"]] * 3


def test_request_goes_to_the_address_that_a_restart_led_to() -> None:
    addresses = [_closed_address()] * 3
    with _server() as server:
        api = ReconnectingApi(
            ApiRequests(addresses[0]), lambda: addresses.pop() if addresses else server.url, reached=True, times=_QUICK
        )

        api.post("/v1/runs/r/resume", ["yes"])

    assert server.received == [["yes"]]


def test_request_goes_to_the_new_address_though_another_server_took_the_former_one() -> None:
    with _server() as other, _server() as server:
        ReconnectingApi(ApiRequests(other.url), lambda: server.url).post("/v1/runs/r/resume", ["yes"])

    assert (other.received, server.received) == ([], [["yes"]])


@pytest.mark.parametrize("reached", [False, True])
def test_request_to_an_address_that_never_answers_ends_with_its_error(*, reached: bool) -> None:
    times = RetryTimes(answered_before=0.05, never_answered=20 if reached else 0.05, pause=0.01)
    api = ReconnectingApi(ApiRequests(_closed_address()), lambda: "", reached, times)

    with pytest.raises(ApiUnavailableError, match="Connection refused"):
        api.post("/v1/runs/r/resume", ["yes"])


def test_refused_request_is_not_repeated() -> None:
    with _server(422) as server, pytest.raises(InvalidRequestError):
        ReconnectingApi(ApiRequests(server.url), lambda: "", times=_QUICK).post("/v1/runs/r/resume", ["yes"])

    assert len(server.received) == 1
