"""A client of the HTTP API's event streams."""

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
from httpx_sse import ServerSentEvent, connect_sse

from starling.app.cli.platform.api_requests import ApiUnavailableError, refusal
from starling.app.cli.platform.reconnection import DEFAULT_TIMES, TEMPORARY, Outage, Relocate, RetryTimes, same_address
from starling.app.cli.platform.run_source import StreamedEvent
from starling.core.ids import new_id

_CONNECT_SECONDS = 5.0
_READ_SECONDS = 60.0  # the server sends a ping every 15 s
_STABLE_SECONDS = 5.0  # a stream that was open for longer ended an outage, with or without an event


class ApiClient:
    """The API at `url`, called with `key` if there is one.

    `relocate` returns the address of the API now: a platform that was started again may have another one. `times` says
    how long requests are repeated. Raises ApiUnavailableError; InvalidRequestError and StarlingError with the message
    of the API.
    """

    def __init__(
        self, url: str, key: str = "", relocate: Relocate = same_address, times: RetryTimes = DEFAULT_TIMES
    ) -> None:
        self.run_id = ""  # of the last request's run
        self.url = url.rstrip("/")
        self._relocate = relocate
        self._times = times
        self._reached = False  # whether the API has answered, or at least accepted a connection
        self._opened: float | None = None  # when the last stream began
        timeout = httpx.Timeout(_CONNECT_SECONDS, read=_READ_SECONDS)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._client = httpx.Client(base_url=self.url, headers=headers, timeout=timeout, trust_env=False)

    def follow(self, run_id: str, after: int) -> Iterator[StreamedEvent]:
        """Yield the events of a run after number `after`, up to `done`; none if it ended with that event."""
        self.run_id = run_id
        yield from self._go_on(run_id, after)

    def ask(self, request: Mapping[str, Any]) -> Iterator[StreamedEvent]:
        """Send a request and yield its events up to `done`, also across a restart of the API."""
        self.run_id, last = "", StreamedEvent(0, "", {})
        for last in self._begin(request):
            yield last
        if last.type != "done":
            yield from self._go_on(self.run_id, last.seq)

    def start(self, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send a request for a run to `path` and return the answer; repeated while the API does not answer."""
        headers = {"Idempotency-Key": new_id()}
        outage = Outage(self._times)
        while True:
            try:
                return self._posted(path, json=body, headers=headers)
            except TEMPORARY as error:
                outage.wait(error, reached=self._reached)
            self._find_again()

    def ahead(self, run_id: str) -> tuple[str, str] | None:
        """Return id and status of the run that a queued run waits for, or None."""
        try:
            response = self._client.get(f"/v1/runs/{run_id}")
            found = response.json().get("behind")
        except (httpx.TransportError, ValueError):
            return None
        return (found["run_id"], found["status"]) if found else None

    def _begin(self, request: Mapping[str, Any]) -> Iterator[StreamedEvent]:
        """Yield events until the stream ends. The idempotency key makes repeated requests lead to one run."""
        headers = {"Idempotency-Key": new_id()}
        outage = Outage(self._times)
        while True:
            try:
                for event in self._events("POST", "/v1/agent/run", json=request, headers=headers):
                    self.run_id = self.run_id or event.data.get("run_id", "")
                    yield event
            except TEMPORARY as error:
                if self.run_id:
                    return
                outage.wait(error, reached=self._reached)
            else:
                return
            self._find_again()

    def _go_on(self, run_id: str, after: int) -> Iterator[StreamedEvent]:
        """Yield the rest of a broken stream once the API answers again."""
        outage = Outage(self._times)
        while True:
            self._find_again()
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

    def _posted(self, path: str, **request: Any) -> Mapping[str, Any]:
        try:
            response = self._client.post(path, **request)
        except httpx.TransportError as error:
            raise self._unanswered(error) from error
        self._reached = True
        if response.is_error:
            raise refusal(str(response.url), response.status_code, response.content)
        return response.json()

    def _has_ended(self, run_id: str, after: int) -> bool:
        """Return whether a run has ended and has no event after number `after`."""
        try:
            state = self._client.get(f"/v1/runs/{run_id}")
        except httpx.TransportError as error:
            raise ApiUnavailableError(self.url, error) from error
        return state.is_success and state.json()["ended_at"] is not None and state.json()["events"] <= after

    def _find_again(self) -> None:
        if url := self._relocate().rstrip("/"):
            self.url = url
            self._client.base_url = url

    def _events(self, method: str, path: str, **request: Any) -> Iterator[StreamedEvent]:
        self._opened = None
        try:
            with connect_sse(self._client, method, path, **request) as source:
                self._reached = True
                if source.response.is_error:
                    source.response.read()
                    raise refusal(str(source.response.url), source.response.status_code, source.response.content)
                self._opened = time.monotonic()
                self.run_id = source.response.headers.get("X-Run-Id", self.run_id)
                yield from (_event(item) for item in source.iter_sse() if item.data)
        except httpx.TransportError as error:
            raise self._unanswered(error) from error

    def _unanswered(self, error: httpx.TransportError) -> ApiUnavailableError:
        """Return the error for a request without an answer, and note whether the API accepted a connection."""
        self._reached = self._reached or not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
        return ApiUnavailableError(self.url, error)


def _event(item: ServerSentEvent) -> StreamedEvent:
    return StreamedEvent(int(item.id or 0), item.event, json.loads(item.data))
