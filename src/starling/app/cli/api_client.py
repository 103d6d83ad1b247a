"""A client of the HTTP API."""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx
from httpx_sse import ServerSentEvent, connect_sse

from starling.core.errors import DatabaseUnavailableError, InvalidRequestError, StarlingError
from starling.core.ids import new_id

_CONNECT_SECONDS = 5.0
_READ_SECONDS = 60.0  # the server sends a ping every 15 s
_RECONNECT_SECONDS = 60.0  # how long to reconnect after the API went away
_PAUSE_SECONDS = 0.5
_TRIES = 4  # to have a request accepted


class ApiUnavailableError(StarlingError):
    """The API at the address does not answer."""

    code = "api_unavailable"


@dataclass(frozen=True, slots=True)
class StreamedEvent:
    """One event of a run's stream."""

    seq: int
    type: str
    data: Mapping[str, Any]


class ApiClient:
    """The API at `url`, called with `key` if there is one.

    Raises ApiUnavailableError; InvalidRequestError and StarlingError with the message of the API.
    """

    def __init__(self, url: str, key: str = "") -> None:
        self.run_id = ""  # of the last request's run
        self._url = url.rstrip("/")
        timeout = httpx.Timeout(_CONNECT_SECONDS, read=_READ_SECONDS)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._client = httpx.Client(base_url=self._url, headers=headers, timeout=timeout, trust_env=False)

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
            except httpx.TransportError as error:
                if time.monotonic() > end:
                    raise self._away(
                        error, f"`starling run tail {run_id} --after {after}` continues the stream."
                    ) from error
            time.sleep(_PAUSE_SECONDS)

    def _events(self, method: str, path: str, **request: Any) -> Iterator[StreamedEvent]:
        with connect_sse(self._client, method, path, **request) as source:
            if source.response.is_error:
                source.response.read()
                raise _refusal(source.response)
            self.run_id = source.response.headers.get("X-Run-Id", self.run_id)
            yield from (_event(item) for item in source.iter_sse() if item.data)

    def _away(self, error: httpx.TransportError, remedy: str = "") -> ApiUnavailableError:
        reason = str(error).rstrip(".") or type(error).__name__
        remedy = remedy or "Start it with `starling up`, or give its address with --url."
        return ApiUnavailableError(f"The API at {self._url} does not answer: {reason}.", remedy)


def _event(item: ServerSentEvent) -> StreamedEvent:
    return StreamedEvent(int(item.id or 0), item.event, json.loads(item.data))


def _refusal(response: httpx.Response) -> StarlingError:
    try:
        problem = response.json()
        detail, remedy = str(problem["detail"]), str(problem.get("remedy", ""))
    except (ValueError, KeyError, TypeError):
        detail, remedy = (
            f"{response.url} answered {response.status_code}.",
            "Check that --url is the address of Starling's API.",
        )
    if response.status_code == 503:
        return DatabaseUnavailableError(detail, remedy)
    return InvalidRequestError(detail, remedy) if response.is_client_error else StarlingError(detail, remedy)
