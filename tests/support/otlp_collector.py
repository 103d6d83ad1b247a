"""A collector for tests: takes OTLP over HTTP in its real encoding, and Langfuse's scores, and keeps what it got.

What comes to Langfuse's addresses is checked against its schemas; what doesn't fit them is answered with HTTP 400.
"""

import asyncio
import gzip
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2

from tests.support import http_server
from tests.support.langfuse_schemas import attribute_errors, score_errors

BAD_REQUEST, REJECTED_SCORES = 400, 207

type Attributes = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ReceivedSpan:
    """One span, its ids in hexadecimal; `parent` is empty for a root."""

    name: str
    trace_id: str
    id: str
    parent: str
    attributes: Attributes
    links: Sequence[str]
    events: Mapping[str, Attributes]
    failed: bool
    resource: Attributes  # the attributes of what sent it
    kind: str

    def __getitem__(self, name: str) -> Any:
        return self.attributes[name]


class Collector:
    """Serves `/v1/traces` and Langfuse's `/api/public/otel/v1/traces` and `/api/public/scores`."""

    def __init__(self) -> None:
        self.spans: list[ReceivedSpan] = []
        self.scores: list[dict[str, Any]] = []
        self.headers: list[Mapping[str, str]] = []
        self.bodies: list[bytes] = []
        self.paths: set[str] = set()
        self.refused: list[str] = []
        self.score_answers: list[tuple[int, object]] = []  # to the next requests, instead of taking the scores
        self.refused_traces: dict[str, int] = {}  # statuses by trace: 400 refuses whole requests, 207 single scores
        self._news = asyncio.Condition()
        app = web.Application(client_max_size=64 * 1024**2)
        app.router.add_post("/v1/traces", self._take_traces)
        app.router.add_post("/api/public/otel/v1/traces", self._take_traces)
        app.router.add_post("/api/public/scores", self._take_scores)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)

    async def __aenter__(self) -> Self:
        self._listening = await http_server.start(self._runner)
        return self

    async def __aexit__(self, *_: object) -> None:
        await http_server.stop(self._runner, self._listening)

    @property
    def url(self) -> str:
        host, port = self._runner.addresses[0][:2]
        return f"http://{host}:{port}"

    async def until(self, arrived: Callable[[Self], bool]) -> None:
        """Wait until what arrived is as it should be."""
        async with self._news:
            await self._news.wait_for(lambda: arrived(self))

    def named(self, name: str) -> list[ReceivedSpan]:
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> ReceivedSpan:
        (span,) = self.named(name)
        return span

    def children(self, parent: ReceivedSpan) -> list[ReceivedSpan]:
        return [span for span in self.spans if span.parent == parent.id]

    async def _take_traces(self, request: web.Request) -> web.Response:
        found: list[ReceivedSpan] = []
        for resource in ExportTraceServiceRequest.FromString(await self._body(request)).resource_spans:
            sender = decoded_attributes(resource.resource.attributes)
            for scope in resource.scope_spans:
                found += [_span(span, sender) for span in scope.spans]
        if request.path.startswith("/api/public/"):
            wrong = [f"{span.name}: {text}" for span in found for text in attribute_errors(span.attributes)]
            if wrong:
                return self._refuse(wrong)
        self.spans += found
        await self._tell()
        return web.Response(
            body=ExportTraceServiceResponse().SerializeToString(), content_type="application/x-protobuf"
        )

    async def _take_scores(self, request: web.Request) -> web.Response:
        await self._body(request)
        body = await request.json()
        if self.score_answers:
            status, answer = self.score_answers.pop(0)
            return web.json_response(answer, status=status)
        if wrong := score_errors(body):
            return self._refuse(wrong)
        statuses = {self.refused_traces.get(score["traceId"], 202) for score in body}
        if BAD_REQUEST in statuses:
            return web.json_response({"message": "Invalid request data"}, status=BAD_REQUEST)
        taken = [score for score in body if score["traceId"] not in self.refused_traces]
        self.scores += taken
        await self._tell()
        if len(taken) == len(body):
            return web.json_response({"message": "Accepted"}, status=202)
        counts = {"accepted": len(taken), "rejected": len(body) - len(taken)}
        return web.json_response({**counts, "errors": [{"message": "no such trace"}]}, status=REJECTED_SCORES)

    def _refuse(self, wrong: Sequence[str]) -> web.Response:
        self.refused += wrong
        return web.json_response({"message": "Invalid request data", "error": list(wrong)}, status=400)

    async def _body(self, request: web.Request) -> bytes:
        """Return the body; aiohttp has taken its compression off already."""
        body = await request.read()
        self.paths.add(request.path)
        self.headers.append(dict(request.headers))
        self.bodies.append(body)
        return gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body

    async def _tell(self) -> None:
        async with self._news:
            self._news.notify_all()


def _span(span: trace_pb2.Span, resource: Attributes) -> ReceivedSpan:
    return ReceivedSpan(
        name=span.name,
        trace_id=span.trace_id.hex(),
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        attributes=decoded_attributes(span.attributes),
        links=[link.span_id.hex() for link in span.links],
        events={event.name: decoded_attributes(event.attributes) for event in span.events},
        failed=span.status.code == trace_pb2.Status.STATUS_CODE_ERROR,
        resource=resource,
        kind=trace_pb2.Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
    )


def decoded_attributes(pairs: Sequence[KeyValue]) -> Attributes:
    """Return attributes by name."""
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    return getattr(value, kind) if kind else None
