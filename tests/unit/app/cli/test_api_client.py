"""The API's client, against a server that breaks off, refuses or isn't there."""

import json
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from starling.app.cli.api_client import ApiClient, ApiUnavailableError
from starling.core.errors import DatabaseUnavailableError, InvalidRequestError, StarlingError

_EVENTS = [
    ("run_started", {"run_id": "r1"}),
    ("thinking", {"content": "a\u2028b", "message_id": "m"}),
    ("done", {"status": "succeeded", "reply": "a"}),
]


class _Handler(BaseHTTPRequestHandler):
    """Sends two events to who asks, and the rest to who reads on. Breaks off before that as often as is said."""

    asked_after: ClassVar[list[str]] = []
    keys: ClassVar[list[str]] = []
    breaks: ClassVar[int] = 0

    def do_POST(self) -> None:
        self.keys.append(self.headers["Idempotency-Key"])
        if len(self.keys) <= self.breaks:
            return
        if self.path != "/v1/agent/run":
            self._refuse(int(self.path.strip("/").partition("/")[0]))
            return
        self._begin(200, "text/event-stream")
        self._send(0, 2)

    def do_GET(self) -> None:
        self.asked_after.append(f"{self.path} {self.headers['Last-Event-ID']}")
        self._begin(200, "text/event-stream")
        self._send(2, 3)

    def log_message(self, *_: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Say nothing."""

    def _begin(self, status: int, kind: str) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        self.send_response(status)
        self.send_header("content-type", kind)
        self.end_headers()

    def _send(self, first: int, last: int) -> None:
        for number, (kind, data) in list(enumerate(_EVENTS, start=1))[first:last]:
            text = json.dumps({"type": kind, **data}, ensure_ascii=False)
            self.wfile.write(f": ping\n\nid: {number}\nevent: {kind}\ndata: {text}\n\n".encode())

    def _refuse(self, status: int) -> None:
        self._begin(status, "application/problem+json")
        self.wfile.write(json.dumps({"detail": "no", "remedy": "ask again"}).encode())


@contextmanager
def _serving(breaks: int = 0) -> Generator[str]:
    _Handler.asked_after.clear()
    _Handler.keys.clear()
    _Handler.breaks = breaks
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_a_stream_that_breaks_off_is_read_on_where_it_ended() -> None:
    with _serving() as url:
        events = list(ApiClient(url).ask({"input": "x", "thread_id": "t"}))

    assert [(event.seq, event.type) for event in events] == [(1, "run_started"), (2, "thinking"), (3, "done")]
    assert events[1].data["content"] == "a\u2028b"
    assert _Handler.asked_after == ["/v1/runs/r1/events 2"]
    assert len(_Handler.keys) == 1


def test_a_request_whose_connection_breaks_is_sent_again_under_the_same_key() -> None:
    with _serving(breaks=2) as url:
        api = ApiClient(url)
        asked = [[event.seq for event in api.ask({"input": "x", "thread_id": "t"})] for _ in range(2)]

    assert asked == [[1, 2, 3]] * 2
    first, second, third, next_request = _Handler.keys
    assert first == second == third != next_request


def test_a_connection_that_always_breaks_is_told() -> None:
    with _serving(breaks=100) as url, pytest.raises(ApiUnavailableError, match="does not answer"):
        list(ApiClient(url).ask({"input": "x", "thread_id": "t"}))

    assert len(set(_Handler.keys)) == 1
    assert len(_Handler.keys) > 1


def test_address_where_nothing_listens_is_told_without_the_number_of_the_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"

    with pytest.raises(ApiUnavailableError) as refused:
        list(ApiClient(url).ask({"input": "x", "thread_id": "t"}))

    assert refused.value.message == f"The API at {url} does not answer: Connection refused."


@pytest.mark.parametrize(
    ("status", "error"), [(422, InvalidRequestError), (503, DatabaseUnavailableError), (500, StarlingError)]
)
def test_a_refusal_says_what_the_api_says(status: int, error: type[StarlingError]) -> None:
    with _serving() as url, pytest.raises(error) as raised:
        list(ApiClient(f"{url}/{status}").ask({"input": "x"}))

    assert type(raised.value) is error
    assert (raised.value.message, raised.value.remedy) == ("no", "ask again")


def test_nobody_there_is_told_with_what_to_do() -> None:
    with _serving() as url:
        pass

    with pytest.raises(ApiUnavailableError, match="starling up"):
        list(ApiClient(url).ask({"input": "x"}))
