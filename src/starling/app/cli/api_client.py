"""A client of the HTTP API's event streams."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import httpx
from httpx_sse import ServerSentEvent, connect_sse

from starling.app.cli.api_requests import ApiUnavailableError, refusal
from starling.app.cli.run_source import StreamedEvent
from starling.core.ids import new_id

_CONNECT_SECONDS = 5.0
_READ_SECONDS = 60.0  # the server sends a ping every 15 s
_RECONNECT_SECONDS = 60.0  # how long to reconnect after the API went away
_PAUSE_SECONDS = 0.5
_TRIES = 4  # to have a request accepted


class ApiClient:
    """The API at `url`, called with `key` if there is one.

    `relocate` returns the address of the API now: a platform that was started again may have another one.
    Raises ApiUnavailableError; InvalidRequestError and StarlingError with the message of the API.
    """

    def __init__(self, url: str, key: str = "", relocate: Callable[[], str] | None = None) -> None:
        self.run_id = ""  # of the last request's run
        self.url = url.rstrip("/")
        self._relocate = relocate
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
        for tries_left in reversed(range(_TRIES)):
            try:
                for event in self._events("POST", "/v1/agent/run", json=request, headers=headers):
                    self.run_id = self.run_id or event.data.get("run_id", "")
                    yield event
            except httpx.TransportError as error:
                if not self.run_id and not tries_left:
                    raise self._away(error) from error
            else:
                return
            if self.run_id:
                return
            time.sleep(_PAUSE_SECONDS)

    def _go_on(self, run_id: str, after: int) -> Iterator[StreamedEvent]:
        """Yield the rest of a broken stream once the API answers again."""
        end = time.monotonic() + _RECONNECT_SECONDS
        while True:
            try:
                for event in self._events("GET", f"/v1/runs/{run_id}/events", headers={"Last-Event-ID": str(after)}):
                    after, end = event.seq, time.monotonic() + _RECONNECT_SECONDS
                    yield event
                    if event.type == "done":
                        return
                if self._has_ended(run_id, after):
                    return
            except httpx.TransportError as error:
                if time.monotonic() > end:
                    raise self._away(
                        error, f"`starling run tail {run_id} --after {after}` continues the stream."
                    ) from error
            time.sleep(_PAUSE_SECONDS)
            self._find_again()

    def _has_ended(self, run_id: str, after: int) -> bool:
        """Return whether a run has ended and has no event after number `after`."""
        state = self._client.get(f"/v1/runs/{run_id}")
        return state.is_success and state.json()["ended_at"] is not None and state.json()["events"] <= after

    def _find_again(self) -> None:
        if self._relocate is not None and (url := self._relocate().rstrip("/")):
            self.url = url
            self._client.base_url = url

    def _events(self, method: str, path: str, **request: Any) -> Iterator[StreamedEvent]:
        with connect_sse(self._client, method, path, **request) as source:
            if source.response.is_error:
                source.response.read()
                raise refusal(str(source.response.url), source.response.status_code, source.response.content)
            self.run_id = source.response.headers.get("X-Run-Id", self.run_id)
            yield from (_event(item) for item in source.iter_sse() if item.data)

    def _away(self, error: httpx.TransportError, remedy: str = "") -> ApiUnavailableError:
        return ApiUnavailableError(self.url, error, remedy) if remedy else ApiUnavailableError(self.url, error)


def _event(item: ServerSentEvent) -> StreamedEvent:
    return StreamedEvent(int(item.id or 0), item.event, json.loads(item.data))
