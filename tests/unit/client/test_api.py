"""The client of the API, against a server that breaks off, refuses, is started again or doesn't listen."""

import json
import re
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import httpx
import pytest

from starling.client.api import Api
from starling.client.api_errors import ApiUnavailableError, RetryTimes
from starling.core.errors import (
    ConfigurationError,
    ConflictError,
    DatabaseUnavailableError,
    DatabaseUnsuitableError,
    ForbiddenError,
    InvalidRequestError,
    StarlingError,
)

_EVENTS = [
    ("run_started", {"run_id": "r1"}),
    ("thinking", {"content": "a\u2028b", "message_id": "m"}),
    ("done", {"status": "succeeded", "reply": "a"}),
]


_QUICK = RetryTimes(answered_before=20, never_answered=0.2, pause=0.01, notice=20)


class _Handler(BaseHTTPRequestHandler):
    """Sends two events to a request, and the rest to a reader. Before that it does what is in `faults`.

    A fault is `break` (the connection is closed without an answer), or the status of a refusal with its code.
    """

    asked_after: ClassVar[list[str]] = []
    keys: ClassVar[list[str]] = []
    bodies: ClassVar[list[object]] = []
    faults: ClassVar[dict[str, list[str]]] = {}

    def do_POST(self) -> None:
        self.keys.append(self.headers["Idempotency-Key"])
        if self._failed("POST"):
            return
        if self.path == "/v1/teams":
            self._begin(202, "application/json")
            self.wfile.write(json.dumps({"run_id": "r1"}).encode())
            return
        self._begin(200, "text/event-stream")
        self._send(0, 2)

    def do_GET(self) -> None:
        self.asked_after.append(f"{self.path} {self.headers['Last-Event-ID']}")
        if not self._failed("GET"):
            self._begin(200, "text/event-stream")
            self._send(2, 3)

    def _failed(self, method: str) -> bool:
        if not (faults := self.faults.get(method, [])):
            return False
        fault = faults[0] if faults[0].endswith("always") else faults.pop(0)
        status, _, code = fault.partition(" ")
        if status != "break":
            self._begin(int(status), "application/problem+json")
            self.wfile.write(json.dumps({"detail": "no", "remedy": "ask again", "code": code}).encode())
        return True

    def log_message(self, *_: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Say nothing."""

    def _begin(self, status: int, kind: str) -> None:
        if content := self.rfile.read(int(self.headers.get("content-length") or 0)):
            self.bodies.append(json.loads(content))
        self.send_response(status)
        self.send_header("content-type", kind)
        self.end_headers()

    def _send(self, first: int, last: int) -> None:
        for number, (kind, data) in list(enumerate(_EVENTS, start=1))[first:last]:
            text = json.dumps({"type": kind, **data}, ensure_ascii=False)
            self.wfile.write(f": ping\n\nid: {number}\nevent: {kind}\ndata: {text}\n\n".encode())


@contextmanager
def _serving(**faults: list[str]) -> Generator[str]:
    _Handler.asked_after.clear()
    _Handler.keys.clear()
    _Handler.bodies.clear()
    _Handler.faults = faults
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def _asked(url: str, times: RetryTimes = _QUICK) -> list[int]:
    """Return the numbers of the events of a request."""
    return [event.seq for event in Api(url, times=times).ask({"input": "x"})]


def test_broken_stream_continues_after_its_last_event() -> None:
    with _serving() as url:
        events = list(Api(url, times=_QUICK).ask({"input": "x", "thread_id": "t"}))

    assert [(event.seq, event.type) for event in events] == [(1, "run_started"), (2, "thinking"), (3, "done")]
    assert events[1].data["content"] == "a\u2028b"
    assert _Handler.asked_after == ["/v1/runs/r1/events 2"]
    assert len(_Handler.keys) == 1


def asked(api: Api) -> list[int]:
    return [event.seq for event in api.ask({"input": "x", "thread_id": "t"})]


def started(api: Api) -> object:
    return api.start("/v1/teams", {"goal": "x"})


@pytest.mark.parametrize("fault", ["break", "503 database_unavailable", "503 draining"])
@pytest.mark.parametrize(("request_of", "answer"), [(asked, [1, 2, 3]), (started, {"run_id": "r1"})])
def test_request_that_gets_no_answer_or_503_is_repeated_under_the_same_key(
    request_of: Callable[[Api], object], answer: object, fault: str
) -> None:
    with _serving(POST=[fault] * 3) as url:
        api = Api(url, times=_QUICK)
        answers = [request_of(api) for _ in range(2)]

    assert answers == [answer] * 2
    *repeated, next_request = _Handler.keys
    assert len(repeated) == 4
    assert len({*repeated}) == 1
    assert next_request not in repeated


def test_refused_request_is_not_repeated() -> None:
    with _serving(POST=["409 conflict"]) as url, pytest.raises(ConflictError, match="no ask again"):
        Api(url, times=_QUICK).start("/v1/teams", {"goal": "x"})

    assert len(_Handler.keys) == 1


def test_request_is_sent_once_where_no_times_are_given() -> None:
    with _serving(POST=["503 database_unavailable"]) as url, pytest.raises(DatabaseUnavailableError):
        Api(url).post("/v1/teams", {"goal": "x"})

    assert len(_Handler.keys) == 1


@pytest.mark.parametrize("fault", ["break", "503 database_unavailable"])
def test_stream_continues_after_breaks_and_503(fault: str) -> None:
    with _serving(GET=[fault] * 3) as url:
        assert _asked(url) == [1, 2, 3]

    assert _Handler.asked_after == ["/v1/runs/r1/events 2"] * 4


@pytest.mark.parametrize(
    ("faults", "error", "message"),
    [
        ({"POST": ["break always"]}, ApiUnavailableError, "does not answer"),
        ({"POST": ["503 always"]}, DatabaseUnavailableError, "no"),
        ({"GET": ["503 always"]}, DatabaseUnavailableError, "no `starling run tail r1 --after 2` continues the stream"),
    ],
)
def test_outage_that_lasts_ends_with_its_error(
    faults: dict[str, list[str]], error: type[StarlingError], message: str
) -> None:
    times = RetryTimes(answered_before=0.5, pause=0.01)

    with _serving(**faults) as url, pytest.raises(error, match=message):
        _asked(url, times=times)

    assert len(set(_Handler.keys)) == 1
    assert len(_Handler.asked_after or _Handler.keys) > 1


def test_user_is_told_once_that_requests_are_repeated() -> None:
    told: list[str] = []
    with _serving(POST=["503 draining"] * 5) as url:
        _asked(url, times=RetryTimes(answered_before=20, pause=0.01, notice=0.02, tell=told.append))

    [said] = told
    assert re.fullmatch(r"no Trying again for up to \d+ s\.", said)


def test_address_where_nothing_listens_is_named_with_the_remedy() -> None:
    url = "http://127.0.0.1:9"

    with pytest.raises(ApiUnavailableError) as refused:
        _asked(url)

    assert refused.value.message == f"The API at {url} does not answer: Connection refused."
    assert "starling up" in refused.value.remedy


@pytest.mark.parametrize("url", ["ftp://host", "host:8000", "http://", "http://host:port"])
def test_text_that_is_not_an_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="is not the address of an API"):
        Api(url)


def test_lists_are_read_page_by_page_as_far_as_they_are_wanted() -> None:
    asked: list[tuple[str | None, int]] = []

    def page(request: httpx.Request) -> httpx.Response:
        query = request.url.params
        begin, limit = int(query.get("before", "0")), int(query["limit"])
        asked.append((query.get("status"), limit))
        found = [{"run_id": number} for number in range(begin, min(begin + limit, 25))]
        return httpx.Response(200, json={"records": found, "next": begin + limit if begin + limit < 25 else None})

    api = Api("http://test", transport=httpx.MockTransport(page))
    query = {"status": "failed", "thread_id": None}

    def numbers(limit: int | None) -> list[int]:
        asked.clear()
        return [record["run_id"] for record in api.pages("/v1/records", "records", query, most=10, limit=limit)]

    assert (numbers(None), asked) == ([*range(25)], [("failed", 10)] * 3)
    assert (numbers(12), asked) == ([*range(12)], [("failed", 10), ("failed", 2)])
    asked.clear()
    next(api.pages("/v1/records", "records", query, most=10))
    assert len(asked) == 1


def test_refused_key_names_the_variable_to_set() -> None:
    with (
        _serving(POST=["401 unauthorized"]) as url,
        pytest.raises(InvalidRequestError, match="no Set STARLING_API_KEY"),
    ):
        Api(url, times=_QUICK).start("/v1/teams", {"goal": "x"})


@pytest.mark.parametrize(
    ("refused", "error"),
    [
        ("422 invalid_request", InvalidRequestError),
        ("403 forbidden", ForbiddenError),
        ("503 database_unsuitable", DatabaseUnsuitableError),
        ("500 internal", StarlingError),
    ],
)
def test_refusal_is_raised_at_once_with_the_message_of_the_api(refused: str, error: type[StarlingError]) -> None:
    with _serving(POST=[refused]) as url, pytest.raises(error) as raised:
        _asked(url)

    assert type(raised.value) is error
    assert (raised.value.message, raised.value.remedy) == ("no", "ask again")
