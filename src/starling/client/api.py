"""The client of the HTTP API: requests, pages of lists, and streams of events, also across a restart of the API."""

import json
import ssl
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import quote

import httpx
from httpx_sse import connect_sse

from starling.client.api_errors import ONCE, TEMPORARY, ApiUnavailableError, Outage, RetryTimes, no_answer, refusal
from starling.core.errors import ConfigurationError, InvalidRequestError
from starling.core.ids import new_id
from starling.core.run_document.rows import EventRow

type Document = Mapping[str, Any]

_JSON_LINES: Final = {"Content-Type": "application/jsonl"}
_CONNECT_SECONDS: Final = 5.0
_READ_SECONDS: Final = 60.0  # in a stream the server sends a ping every 15 s
_PROBE_SECONDS: Final = 2.0
_STABLE_SECONDS: Final = 5.0  # a stream that was open for longer ended an outage, with or without an event


def path_of(*names: str) -> str:
    """Return the path of what names lead to: `/v1/teams/a%2Fb/graph` for `teams`, `a/b` and `graph`."""
    return "/".join(("/v1", *(quote(name, safe="") for name in names)))


class Api:
    """The API at `url`, called with `key` if there is one.

    `times` says how long requests are repeated: once by default; those that are repeated must be safe to repeat. Raises
    ApiUnavailableError, and what the API refuses as InvalidRequestError, ForbiddenError, ConflictError, StarlingError.
    """

    in_process = False  # whether its routes are called in this process, without a platform

    def __init__(
        self, url: str, key: str = "", *, times: RetryTimes = ONCE, transport: httpx.BaseTransport | None = None
    ) -> None:
        self.url = url.rstrip("/")
        self.key = key
        self.run_id = ""  # of the stream that was opened last
        self._times = times
        self._reached = False  # whether the API has answered, or at least accepted a connection
        self._opened: float | None = None  # when the last stream began
        self._client = httpx.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx.Timeout(_READ_SECONDS, connect=_CONNECT_SECONDS),
            trust_env=False,
            transport=transport or _connection_to(self.url),
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def answers(self) -> bool:
        """Return whether Starling answers at the address."""
        try:
            answer = self._client.get("/health", timeout=_PROBE_SECONDS)
            return answer.is_success and answer.json() == {"status": "ok"}
        except (httpx.TransportError, ValueError):
            return False

    def get(self, path: str, **query: str | int | None) -> Any:
        """Return the JSON document at `path`; values of the query that are None are left out."""
        return self.document(self.send("GET", path, query=query))

    def put(self, path: str, body: object) -> Any:
        """Store a JSON document at `path` and return the answer."""
        return self.document(self.send("PUT", path, body))

    def post(self, path: str, body: object = None, *, seconds: float = _READ_SECONDS, **query: str | int | None) -> Any:
        """Send a document to `path`, as `send` does, and return the answer."""
        return self.document(self.send("POST", path, body, seconds=seconds, query=query))

    def delete(self, path: str, **query: str | int | None) -> httpx.Response:
        """Delete what is at `path` and return the answer."""
        return self.send("DELETE", path, query=query)

    def send(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        seconds: float = _READ_SECONDS,
        query: Mapping[str, str | int | None] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """Return the answer to a request that was not refused.

        A body is sent as JSON, bytes as the JSON lines that they are. `seconds` is how long the answer may take.
        """
        request: dict[str, Any] = {"json": body, "headers": headers}
        if isinstance(body, bytes):
            request = {"content": body, "headers": _JSON_LINES}
        request["params"] = {name: value for name, value in (query or {}).items() if value is not None}
        request["timeout"] = httpx.Timeout(seconds, connect=min(seconds, _CONNECT_SECONDS))
        outage = Outage(self._times)
        while True:
            self._check_open()
            try:
                with self._answered():
                    return self._checked(self._client.request(method, path, **request))
            except TEMPORARY as error:
                outage.wait(error, reached=self._reached)

    def document(self, answer: httpx.Response) -> Any:
        """Return the JSON of an answer. Raises ApiUnavailableError for what Starling can't have answered."""
        try:
            return answer.json()
        except ValueError:
            said = f"What answers at {self.url} is not the API: it sends no JSON."
            raise ApiUnavailableError(said, "Give the address of the API, not of what stands before it.") from None

    def pages(
        self,
        path: str,
        items: str,
        query: Mapping[str, str | int | None],
        *,
        most: int,
        limit: int | None = None,
        cursor: str = "before",
    ) -> Iterator[Document]:
        """Yield the `items` of a list, up to `limit`, read in pages of `most` when they are needed."""
        left, given = limit, dict(query)
        while left is None or left > 0:
            page = self.get(path, **given, limit=min(most, left or most))
            yield from page[items]
            if page["next"] is None:
                return
            given[cursor] = page["next"]
            left = None if left is None else left - len(page[items])

    def start(self, path: str, body: Document) -> Document:
        """Send a request for a run to `path` and return the answer; a repeated one leads to the same run."""
        return self.document(self.send("POST", path, body, headers={"Idempotency-Key": new_id()}))

    def ask(self, request: Document) -> Iterator[EventRow]:
        """Send a request and yield its events up to `done`, also across a restart of the API."""
        self.run_id, last = "", EventRow(0, "", {})
        headers = {"Idempotency-Key": new_id()}  # repeated requests lead to one run
        outage = Outage(self._times)
        while True:
            try:
                for last in self._events("POST", "/v1/agent/run", json=request, headers=headers):
                    self.run_id = self.run_id or last.data.get("run_id", "")
                    yield last
            except TEMPORARY as error:
                if not self.run_id:
                    outage.wait(error, reached=self._reached)
                    continue
            break
        if last.type != "done":
            yield from self._go_on(self.run_id, last.seq)

    def watch(self, run_id: str, after: int, on_event: Callable[[EventRow], None]) -> None:
        """Pass on each event after number `after`, up to `done`; return at once if there is none and the run ended."""
        self.run_id = run_id
        for event in self._go_on(run_id, after):
            on_event(event)

    def _go_on(self, run_id: str, after: int) -> Iterator[EventRow]:
        """Yield the rest of a stream, once the API answers again where it was broken off."""
        outage = Outage(self._times)
        while True:
            try:
                for event in self._events("GET", f"/v1/runs/{run_id}/events", headers={"Last-Event-ID": str(after)}):
                    after = event.seq
                    outage.end()
                    yield event
                    if event.type == "done":
                        return
                if self._has_ended(run_id, after):
                    return
            except TEMPORARY as error:
                if self._opened is not None and time.monotonic() - self._opened > _STABLE_SECONDS:
                    outage.end()
                error.remedy = f"`starling run tail {run_id} --after {after}` continues the stream."
                outage.wait(error, reached=True)
            else:
                time.sleep(self._times.pause)

    def _has_ended(self, run_id: str, after: int) -> bool:
        """Return whether a run has ended and has no event after number `after`."""
        with self._answered():
            state = self._client.get(f"/v1/runs/{run_id}")
        return state.is_success and state.json()["ended_at"] is not None and state.json()["events"] <= after

    def _events(self, method: str, path: str, **request: Any) -> Iterator[EventRow]:
        self._opened = None
        self._check_open()
        with self._answered(), connect_sse(self._client, method, path, **request) as source:
            self._reached = True
            if source.response.is_error:
                source.response.read()
            self._checked(source.response)
            self._opened = time.monotonic()
            self.run_id = source.response.headers.get("X-Run-Id", self.run_id)
            for item in source.iter_sse():
                if item.data:
                    yield EventRow(int(item.id or 0), item.event, json.loads(item.data))

    def _check_open(self) -> None:
        if self._client.is_closed:
            raise ApiUnavailableError(f"The client of {self.url} was closed.", "Open another one.")

    @contextmanager
    def _answered(self) -> Generator[None]:
        """Raise ApiUnavailableError for a request of the block without an answer; note if a connection was accepted.

        Raises InvalidRequestError for a text that can't be sent.
        """
        try:
            yield
        except UnicodeEncodeError:
            said = "The request has half of a surrogate pair, which no encoding can write."
            raise InvalidRequestError(said, "Leave such characters out, or replace them.") from None
        except httpx.TransportError as error:
            self._reached = self._reached or not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
            raise no_answer(self.url, error) from error

    def _checked(self, answer: httpx.Response) -> httpx.Response:
        """Return an answer. Raises what it refuses."""
        self._reached = True
        if answer.is_error:
            raise refusal(str(answer.url), answer.status_code, answer.content)
        return answer


def _connection_to(url: str) -> httpx.HTTPTransport:
    """Return what connects to an address. A TLS context, which takes milliseconds to make, is made for https alone."""
    try:
        parts = httpx.URL(url)
    except httpx.InvalidURL:
        parts = httpx.URL()
    if parts.scheme not in ("http", "https") or not parts.host:
        raise ConfigurationError(f"{url!r} is not the address of an API.", "Write one like http://host:8000.")
    return httpx.HTTPTransport(verify=ssl.create_default_context() if parts.scheme == "https" else False)
