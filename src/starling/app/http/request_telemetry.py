"""Logs and metrics of HTTP requests."""

import logging
from time import perf_counter
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from starling.app.telemetry.log_context import bound_log_context
from starling.app.telemetry.metrics import Metrics
from starling.core.ids import new_id
from starling.core.principal import Principal
from starling.core.tracing import CALLER_SPAN
from starling.infra.postgres.connections import answers_within
from starling.infra.tracing.factory import caller_span

_ANSWER_SECONDS: Final = 10.0  # a frozen Postgres answers nothing, also not that a statement takes too long
_log = logging.getLogger(__name__)
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
        request = _Request(self._metrics, send)
        begun = perf_counter()
        CALLER_SPAN.set(caller_span(Headers(scope=scope)))
        with answers_within(self._answer_seconds), bound_log_context(request_id=new_id()):
            try:
                await self._app(scope, receive, request.send)
            finally:
                request.over(scope, perf_counter() - begun)


class _Request:
    def __init__(self, metrics: Metrics, send: Send) -> None:
        self._metrics = metrics
        self._send = send
        self._status = 0  # nothing was sent: the caller disconnected, or an error
        self._streams = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            if Headers(raw=message["headers"]).get("content-type", "").startswith("text/event-stream"):
                self._streams = True
                self._metrics.streams.inc()
        await self._send(message)

    def over(self, scope: Scope, seconds: float) -> None:
        if self._streams:
            self._metrics.streams.dec()
        method = scope["method"] if scope["method"] in _METHODS else "other"
        route = getattr(scope.get("route"), "path", "none")  # the template: paths contain ids and arbitrary text
        self._metrics.requests.labels(method, route, self._status).inc()
        more = {"method": method, "path": scope["path"], "status": self._status, "ms": round(seconds * 1000, 1)}
        principal: Principal | None = scope.get("state", {}).get("principal")
        if principal is not None:
            more |= {"tenant": principal.tenant, "key_id": principal.key_id}
        _log.debug("request", extra=more)
