"""Ended spans in the encoding of OTLP, with attribute names of OpenTelemetry and Langfuse."""

import logging
import re
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, cast

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1 import trace_pb2 as otlp

from starling.core.json import is_64_bit, storable_text
from starling.core.tracing import SEARCHED, Attributes, SpanKind
from starling.infra.tracing.content import content_text
from starling.infra.tracing.scores import Score
from starling.infra.tracing.spans import LEVEL, Opening, OpenSpan

_CONTENT: Final = {"input": "langfuse.observation.input", "output": "langfuse.observation.output"}
_WARNINGS: Final = "starling.warnings"  # messages of errors, which may quote content
_TAGS: Final = "langfuse.trace.tags"
_LANGFUSE: Final = re.compile(r"^langfuse\.(observation\.|trace\.)?")
_METADATA: Final = re.compile(r"langfuse\.(observation|trace)\.metadata\.")
_TYPE: Final = "langfuse.observation.type"
_MESSAGE: Final = "langfuse.observation.status_message"
_SHARED: Final = ("langfuse.session.id", "langfuse.trace.name", "tenant", "correlation_id", "epoch")
_VERSION: Final = "langfuse.version"  # by which dashboards tell what a team's observations cost
_LOCAL: Final = otlp.SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK
_REMOTE: Final = _LOCAL | otlp.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK
_LINK: Final = {"starling.link": "former_segment"}
_SCOPE: Final = InstrumentationScope(name="starling")
_OUTERMOST: Final = Opening({}, (), None)
_TAG_CHARS, _TAGS_PER_TRACE = 200, 100
_SPANS_AT_A_TIME, _PAUSE_SECONDS = 8, 0.000_05  # without pauses, the event loop waits for 5 ms whenever it goes on
_SHORT: Final = 100  # characters of values that other spans are likely to have, too

_HASHABLE: Final = frozenset({str, bool, int, float})

type _Value = str | tuple[str, ...]

_log = logging.getLogger(__name__)


def export_request(
    spans: Sequence[OpenSpan], resource: Mapping[str, object], *, with_content: bool, langfuse: bool = False
) -> bytes:
    """Return the body of a request to `/v1/traces`. Spans that can't be encoded are left out, with one warning."""
    request = ExportTraceServiceRequest()
    of_resource = request.resource_spans.add(resource=Resource(attributes=_pairs(resource)))
    of_scope = of_resource.scope_spans.add(scope=_SCOPE)
    left_out: list[str] = []
    for number, span in enumerate(spans, start=1):
        if number % _SPANS_AT_A_TIME == 0:
            time.sleep(_PAUSE_SECONDS)
        try:
            _write(span, to := of_scope.spans.add(), with_content=with_content)
            if not langfuse:
                _without_langfuse(to)
        except Exception as error:  # noqa: BLE001 - descriptions and values are of any kind; the other spans are sent
            del of_scope.spans[-1]
            left_out.append(f"{span.name}: {type(error).__name__}: {error}")
    if left_out:
        _log.warning(
            "%d of %d spans can't be encoded and are dropped; the first is %s", len(left_out), len(spans), left_out[0]
        )
    return request.SerializeToString()


def _write(span: OpenSpan, to: otlp.Span, *, with_content: bool) -> None:
    """Fill a message.

    Most attributes are the same in many spans. Each is encoded once, as a span that has nothing else: encoded messages
    may be concatenated, which merges them.
    """
    attributes = _attributes(span, with_content=with_content)
    content = [(shown, attributes.pop(name, None)) for name, shown in _CONTENT.items()]
    encoded = [_attribute(name, value) for name, value in attributes.items() if value is not None]
    if span.parent is not None:
        run = _opening(span.root).attributes
        encoded += [_attribute(name, run[name]) for name in _SHARED]
    to.MergeFromString(b"".join(encoded))
    if with_content:
        for name, value in content:
            if value is not None:
                to.attributes.add(key=name).value.string_value = content_text(value)
    to.trace_id = bytes.fromhex(span.trace_id)
    to.span_id = _id(span.span_id)
    if parent := span.parent.span_id if span.parent else span.remote:
        to.parent_span_id = _id(parent)
    to.name = storable_text(span.name)
    to.kind = _otlp_kind(span, attributes)
    to.start_time_unix_nano, to.end_time_unix_nano = span.begun, span.ended
    to.flags = _REMOTE if span.remote else _LOCAL
    to.events.extend(map(_event, span.scores))
    if span.former:
        to.links.add(trace_id=to.trace_id, span_id=_id(span.former), attributes=_pairs(_LINK), flags=_REMOTE)
    if span.failure is not None:
        to.status.code = otlp.Status.STATUS_CODE_ERROR
        to.status.message = cast("str", attributes[_MESSAGE])


def _otlp_kind(span: OpenSpan, attributes: Attributes) -> otlp.Span.SpanKind.ValueType:
    """Return whether a span serves a request, waits for a model or an MCP server, or neither."""
    if span.parent is None:
        return otlp.Span.SPAN_KIND_SERVER
    is_call = span.kind is SpanKind.GENERATION or "starling.server" in attributes
    return otlp.Span.SPAN_KIND_CLIENT if is_call else otlp.Span.SPAN_KIND_INTERNAL


def _without_langfuse(span: otlp.Span) -> None:
    """Rename attributes of Langfuse to our own; those that exist under another name, too, are left out."""
    kept = [each for each in span.attributes if not _METADATA.match(each.key)]
    for each in kept:
        each.key = _LANGFUSE.sub("starling.", each.key)
    del span.attributes[:]
    span.attributes.extend(kept)


def _attributes(span: OpenSpan, *, with_content: bool) -> dict[str, object]:
    """Return the attributes of a span itself, under the names of Langfuse but for `input` and `output`."""
    opening = _opening(span)
    found, tags = dict(opening.attributes), opening.tags
    for describe in span.described[1:]:
        described = describe()
        found.update(described)
        tags = _with_tags(tags, described)
    found.pop("tags", None)
    found[_TYPE], found[_TAGS] = span.kind.value, _add_to_trace(span, tags)
    if warnings := cast("Sequence[str] | None", found.get(_WARNINGS)):
        found[_WARNINGS] = tuple(map(content_text, warnings)) if with_content else None
    found[_VERSION] = opening.team_version
    if span.failure is not None:
        found[LEVEL] = "ERROR"
        found[_MESSAGE] = content_text(span.failure) if with_content else ""
    return found


def _opening(span: OpenSpan) -> Opening:
    """Return what a span was opened with, and keep it: the spans in it, which are encoded first, need it, too."""
    if span.opening is None:
        outer = _opening(span.parent) if span.parent else _OUTERMOST
        attributes = span.described[0]()
        team_version = attributes.get("team_version") or outer.team_version
        span.opening = Opening(attributes, _with_tags(outer.tags, attributes), team_version)
    return span.opening


def _with_tags(tags: tuple[str, ...], attributes: Attributes) -> tuple[str, ...]:
    if "tags" not in attributes:
        return tags
    added = [storable_text(tag[:_TAG_CHARS]) for tag in cast("Sequence[str]", attributes["tags"])]
    return tuple(dict.fromkeys((*tags, *added)))


def _add_to_trace(span: OpenSpan, tags: tuple[str, ...]) -> tuple[str, ...]:
    """Count tags for the whole trace. Return those that a span is sent with: the root has those of all."""
    of_trace = span.root.trace_tags
    of_trace.update(dict.fromkeys(tags))
    return tuple(of_trace)[:_TAGS_PER_TRACE] if span.parent is None else tags


def _attribute(name: str, value: object) -> bytes:
    """Return the encoding of a span with one attribute."""
    if type(value) is str and len(value) > _SHORT:
        return _one_attribute(name, value)
    return _cached_attribute(name, value if type(value) in _HASHABLE else _plain(value))


def _plain(value: object) -> _Value:
    """Return a hashable value of a type that attributes have."""
    if isinstance(value, list | tuple):
        return tuple([str(item) for item in cast("Sequence[object]", value)])
    return str(value)


def _one_attribute(name: str, value: object) -> bytes:
    """Return the encoding, with the attribute as metadata of the observation if observations can be filtered by it."""
    names = (name, f"langfuse.observation.metadata.{name}") if name in SEARCHED else (name,)
    encoded = _any_value(value)
    return otlp.Span(attributes=[KeyValue(key=name, value=encoded) for name in names]).SerializeToString()


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


def _event(score: Score) -> otlp.Span.Event:
    """Return a score as an event; its texts are content."""
    result = "label" if isinstance(score.value, str) else "value"
    attributes = {
        "gen_ai.evaluation.name": score.name,
        f"gen_ai.evaluation.score.{result}": score.value,
        "gen_ai.evaluation.explanation": score.comment,
    }
    shown = {name: content_text(value) if isinstance(value, str) else value for name, value in attributes.items()}
    moment = int(score.moment.timestamp() * 1e9)
    return otlp.Span.Event(name="gen_ai.evaluation.result", time_unix_nano=moment, attributes=_pairs(shown))


def _id(number: int) -> bytes:
    return number.to_bytes(8)
