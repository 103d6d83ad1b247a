"""Ended spans in the encoding of OTLP, with attribute names of OpenTelemetry and Langfuse."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, cast

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1 import trace_pb2 as otlp

from starling.core.json import is_64_bit, storable_text
from starling.core.tracing import SEARCHED, Attributes
from starling.infra.tracing.content import content_text
from starling.infra.tracing.spans import LEVEL, OpenSpan, SpanEvent, SpanLink

_CONTENT: Final = {"input": "langfuse.observation.input", "output": "langfuse.observation.output"}
_WARNINGS: Final = "starling.warnings"  # messages of errors, which may quote content
_TAGS: Final = "langfuse.trace.tags"
_TYPE: Final = "langfuse.observation.type"
_MESSAGE: Final = "langfuse.observation.status_message"
_SHARED: Final = ("langfuse.session.id", "langfuse.trace.name", "tenant", "correlation_id", "epoch")
_VERSION: Final = "langfuse.version"  # by which dashboards tell what a team's observations cost
_METADATA: Final = {name: f"langfuse.observation.metadata.{name}" for name in SEARCHED}
_LOCAL: Final = otlp.SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK
_REMOTE: Final = _LOCAL | otlp.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK
_SCOPE: Final = InstrumentationScope(name="starling")
_SHORT: Final = 100  # characters of values that other spans are likely to have, too

_PLAIN: Final = frozenset({str, bool, int, float})

type _Value = str | tuple[str, ...]


def export_request(spans: Sequence[OpenSpan], resource: Mapping[str, object], *, with_content: bool) -> bytes:
    """Return the body of a request to `/v1/traces`."""
    request = ExportTraceServiceRequest()
    of_resource = request.resource_spans.add(resource=Resource(attributes=_pairs(resource)))
    of_scope = of_resource.scope_spans.add(scope=_SCOPE)
    for span in spans:
        _write(span, of_scope.spans.add(), with_content=with_content)
    return request.SerializeToString()


def _write(span: OpenSpan, to: otlp.Span, *, with_content: bool) -> None:
    """Fill a message.

    Most attributes are the same in many spans. Each is encoded once, as a span that has nothing else: encoded messages
    may be concatenated, which merges them.
    """
    attributes = _attributes(span, with_content=with_content)
    to.MergeFromString(b"".join([_attribute(name, value) for name, value in attributes.items()]))
    to.trace_id = bytes.fromhex(span.trace_id)
    to.span_id = _id(span.span_id)
    if span.parent:
        to.parent_span_id = _id(span.parent.span_id)
    to.name = storable_text(span.name)
    to.kind = otlp.Span.SPAN_KIND_INTERNAL
    to.start_time_unix_nano, to.end_time_unix_nano = span.begun, span.ended
    to.flags = _LOCAL
    to.events.extend([_event(event) for event in span.events])
    to.links.extend([_link(span, link) for link in span.links])
    if span.failure is not None:
        to.status.code = otlp.Status.STATUS_CODE_ERROR
        to.status.message = cast("str", attributes[_MESSAGE])


def _attributes(span: OpenSpan, *, with_content: bool) -> dict[str, object]:
    """Return the attributes of a span, with content, metadata and tags under the names of Langfuse."""
    found: dict[str, object] = {_TYPE: span.kind.value}
    if span.parent is not None:
        run = span.root.described[0]
        found.update([(name, run[name]) for name in _SHARED])
    for described in span.described:
        found.update([(name, value) for name, value in described.items() if value is not None])
    content = [(name, found.pop(name)) for name in _CONTENT if name in found]
    warnings = cast("Sequence[str]", found.pop(_WARNINGS, ()))
    if with_content:
        found.update([(_CONTENT[name], content_text(value)) for name, value in content])
        if warnings:
            found[_WARNINGS] = tuple(map(content_text, warnings))
    found.update([(_METADATA[name], found[name]) for name in found.keys() & SEARCHED])
    if span.team_version is not None:
        found[_VERSION] = span.team_version
    found[_TAGS] = span.tags if span.parent else tuple(span.trace_tags)
    found.pop("tags", None)
    if span.failure is not None:
        found[LEVEL] = "ERROR"
        found[_MESSAGE] = content_text(span.failure) if with_content else ""
    return found


def _attribute(name: str, value: object) -> bytes:
    """Return the encoding of a span with one attribute."""
    if type(value) is str and len(value) > _SHORT:
        return _one_attribute(name, value)
    return _cached_attribute(name, value if type(value) in _PLAIN else _plain(value))


def _plain(value: object) -> _Value:
    """Return a hashable value of a type that attributes have."""
    if isinstance(value, list | tuple):
        return tuple([str(item) for item in cast("Sequence[object]", value)])
    return str(value)


def _one_attribute(name: str, value: object) -> bytes:
    return otlp.Span(attributes=[KeyValue(key=name, value=_any_value(value))]).SerializeToString()


_cached_attribute = lru_cache(4_096, typed=True)(_one_attribute)


def _any_value(value: object) -> AnyValue:
    """Return a value as OTLP has it. UTF-8 has no lone surrogates, which would fail the whole batch."""
    match value:
        case bool():
            return AnyValue(bool_value=value)
        case int() if is_64_bit(value):
            return AnyValue(int_value=value)
        case float():
            return AnyValue(double_value=value)
        case tuple():
            items = [storable_text(str(item)) for item in cast("Sequence[object]", value)]
            return AnyValue(array_value=ArrayValue(values=[AnyValue(string_value=item) for item in items]))
        case _:
            return AnyValue(string_value=storable_text(str(value)))


def _pairs(attributes: Attributes) -> list[KeyValue]:
    return [KeyValue(key=name, value=_any_value(value)) for name, value in attributes.items()]


def _event(event: SpanEvent) -> otlp.Span.Event:
    return otlp.Span.Event(name=event.name, time_unix_nano=event.moment, attributes=_pairs(event.attributes))


def _link(span: OpenSpan, link: SpanLink) -> otlp.Span.Link:
    return otlp.Span.Link(
        trace_id=bytes.fromhex(span.trace_id),
        span_id=_id(link.span_id),
        attributes=_pairs(link.attributes),
        flags=_REMOTE,
    )


def _id(number: int) -> bytes:
    return number.to_bytes(8)
