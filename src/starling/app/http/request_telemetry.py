"""Logs and metrics of HTTP requests."""

import logging
import re
from time import perf_counter
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from starling.app.http.app_state import state_of
from starling.app.telemetry.log_context import bound_log_context
from starling.app.telemetry.metrics import Metrics
from starling.core.ids import new_id
from starling.core.principal import Principal
from starling.core.tracing import CALLER_SPAN, caller_span
from starling.infra.postgres.connections import answers_within

_ANSWER_SECONDS: Final = 10.0  # a frozen Postgres answers nothing, also not that a statement takes too long
_log = logging.getLogger(__name__)
_OF_RUNS: Final = re.compile(
    "POST/(process|execute|v1/(agent/run|runs(/[^/]+/(fork|resume))?|approvals/[^/]+|chat/completions|responses"
    "|teams(/[^/]+/(prove|versions))?))"
)
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class TelemetryMiddleware:
    """Logs each request at DEBUG when its response has ended, counts it by route, and counts open streams.

    Every line that is logged meanwhile carries the same `request_id`. Postgres has `answer_seconds` for each answer.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, answer_seconds: float = _ANSWER_SECONDS) -> None:
        self._app = app
        self._metrics = metrics
        self._answer_seconds = answer_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = perf_counter()
        CALLER_SPAN.set(caller_span(Headers(scope=scope).get("traceparent", "")))
        request = _Request(self._metrics, scope, send)
        with answers_within(self._answer_seconds), bound_log_context(request_id=new_id()):
            try:
                await self._app(scope, receive, request.send)
            except Exception:
                request.status = request.status or 500  # the server's answer
                raise
            finally:
                request.over(perf_counter() - begun)


class _Request:
    def __init__(self, metrics: Metrics, scope: Scope, send: Send) -> None:
        self._metrics = metrics
        self._scope, self._send = scope, send
        services = state_of(scope["app"]).services if _OF_RUNS.fullmatch(scope["method"] + scope["path"]) else None
        self._end_span = services.tracer.request() if services else None
        self.status = 0  # nothing was sent: the caller disconnected
        self._streams = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            if Headers(raw=message["headers"]).get("content-type", "").startswith("text/event-stream"):
                self._streams = True
                self._metrics.streams.inc()
            self._end_of_span()
        await self._send(message)

    def _end_of_span(self) -> None:
        """Send the span of a request with a valid key, so that callers without one can't write into traces."""
        end, self._end_span = self._end_span, None
        principal: Principal | None = self._scope.get("state", {}).get("principal")
        if end is not None and principal is not None:
            route = getattr(self._scope.get("route"), "path", self._scope["path"])
            attributes = {"http.request.method": "POST", "http.route": route, "tenant": principal.tenant}
            end(f"POST {route}", self.status, attributes)

    def over(self, seconds: float) -> None:
        if self._streams:
            self._metrics.streams.dec()
        self._end_of_span()
        scope = self._scope
        method = scope["method"] if scope["method"] in _METHODS else "other"
        route = getattr(scope.get("route"), "path", "none")  # the template: paths contain ids and arbitrary text
        self._metrics.requests.labels(method, route, self.status).inc()
        more = {"method": method, "path": scope["path"], "status": self.status, "ms": round(seconds * 1000, 1)}
        principal: Principal | None = scope.get("state", {}).get("principal")
        if principal is not None:
            more |= {"tenant": principal.tenant, "key_id": principal.key_id}
        _log.debug("request", extra=more)
