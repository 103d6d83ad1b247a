"""What spans say of inputs, outputs and failures, in the encoding in which they are sent."""

import asyncio
import json
from dataclasses import replace

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, SpanFlags, Status

from starling.core.errors import SuspendedError
from starling.core.forks import ForkChanges, ForkOrigin
from starling.core.tracing import SpanKind
from starling.infra.tracing.span_encoding import export_request
from starling.infra.tracing.spans import OpenSpan, SpanTracer
from tests.support.otlp_collector import decoded_attributes
from tests.support.run_factories import CLAIMED_RUN

KEY = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
RESOURCE = {"service.name": "starling"}


class Unprintable:
    """Has no text."""

    def __str__(self) -> str:
        raise TypeError("It has no text.")


def sent(spans: list[OpenSpan], *, with_content: bool = True, langfuse: bool = True) -> list[Span]:
    request = ExportTraceServiceRequest.FromString(
        export_request(spans, RESOURCE, with_content=with_content, langfuse=langfuse)
    )
    (of_resource,) = request.resource_spans
    (of_scope,) = of_resource.scope_spans
    assert decoded_attributes(of_resource.resource.attributes) == RESOURCE
    assert of_scope.scope.name == "starling"
    return list(of_scope.spans)


@pytest.mark.parametrize(("with_content", "masked"), [(True, 6), (False, 0)])
def test_what_looks_like_a_key_is_masked_in_content_failures_warnings_and_scores(
    with_content: bool, masked: int
) -> None:
    kept: list[OpenSpan] = []
    tracer = SpanTracer(kept.append, None, with_content=with_content)

    with (
        tracer.segment(CLAIMED_RUN),
        tracer.span("execute_tool act", SpanKind.TOOL, lambda: {"input": {"token": KEY}}) as span,
    ):
        span.set(lambda: {"output": [f"the key is {KEY}"], "starling.warnings": [f"{KEY} was refused at first"]})
        span.fail(f"{KEY} is refused")
        tracer.score("review", 1.0, f"It shows {KEY}.")

    said = "\n".join(map(str, sent(kept, with_content=with_content)))
    assert (KEY in said, said.count("***")) == (False, masked)


def test_segment_of_a_fork_names_its_original_and_all_changes_but_the_request() -> None:
    kept: list[OpenSpan] = []
    origin = ForkOrigin(run="original", at="start", changes=ForkChanges(epoch=3, input="Else?"), live=True)

    with SpanTracer(kept.append, None, with_content=True).segment(replace(CLAIMED_RUN, forked_from=origin)):
        pass

    [segment] = sent(kept)
    assert json.loads(str(decoded_attributes(segment.attributes)["starling.forked_from"])) == {
        "run": "original",
        "at": "start",
        "changes": {"epoch": 3},
        "live": True,
    }


def test_span_is_sent_with_its_ids_times_and_the_attributes_that_all_spans_of_a_run_share() -> None:
    kept: list[OpenSpan] = []
    tracer = SpanTracer(kept.append, None, with_content=True)

    with tracer.segment(replace(CLAIMED_RUN, fence=2)), tracer.span("recall", SpanKind.RETRIEVER, dict):
        inner = tracer.span_id()
    child, segment = sent(kept)

    assert (child.name, child.kind, child.span_id.hex()) == ("recall", Span.SPAN_KIND_INTERNAL, inner)
    assert child.trace_id.hex() == segment.trace_id.hex() == CLAIMED_RUN.trace_id
    assert (child.parent_span_id, segment.parent_span_id) == (segment.span_id, b"")
    assert segment.start_time_unix_nano <= child.start_time_unix_nano <= child.end_time_unix_nano
    assert child.end_time_unix_nano <= segment.end_time_unix_nano
    assert child.status.code == segment.status.code == Status.STATUS_CODE_UNSET
    assert decoded_attributes(child.attributes) == {
        "langfuse.observation.type": "retriever",
        "langfuse.session.id": "thread",
        "langfuse.trace.name": "run",
        "tenant": "default",
        "correlation_id": "correlation",
        "epoch": 1,
        "langfuse.trace.tags": ["epoch:1"],
    }
    (link,) = segment.links
    assert link.trace_id == segment.trace_id
    assert link.flags & SpanFlags.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK
    assert decoded_attributes(link.attributes) == {"starling.link": "former_segment"}


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("text", "text"),
        ("x" * 300, "x" * 300),
        ("half a pair: \ud800", "half a pair: \N{REPLACEMENT CHARACTER}"),
        (["half a pair: \ud800", 1], ["half a pair: \N{REPLACEMENT CHARACTER}", "1"]),
        (1, 1),
        (1.0, 1.0),
        (True, True),
        (-(2**63), -(2**63)),
        (2**63, str(2**63)),
        ({1: 2}, "{1: 2}"),
    ],
)
def test_attribute_of_any_type_can_be_sent(value: object, read: object) -> None:
    kept: list[OpenSpan] = []
    tracer = SpanTracer(kept.append, None, with_content=True)

    with tracer.segment(CLAIMED_RUN) as segment:
        segment.set(lambda: {"starling.value": value, "starling.none": None})

    attributes = decoded_attributes(sent(kept)[0].attributes)
    found = attributes["starling.value"]
    assert (found, type(found)) == (read, type(read))
    assert "starling.none" not in attributes


@pytest.mark.parametrize(
    ("error", "status", "attributes"),
    [
        (
            ValueError("no"),
            Status.STATUS_CODE_ERROR,
            {"error.type": "ValueError", "langfuse.observation.level": "ERROR"},
        ),
        (SuspendedError(), Status.STATUS_CODE_UNSET, {"starling.waiting": True}),
        (
            asyncio.CancelledError(),
            Status.STATUS_CODE_UNSET,
            {"starling.interrupted": True, "langfuse.observation.level": "WARNING"},
        ),
    ],
)
def test_span_that_an_exception_leaves_says_what_it_was(
    error: BaseException, status: int, attributes: dict[str, object]
) -> None:
    kept: list[OpenSpan] = []
    tracer = SpanTracer(kept.append, None, with_content=True)

    with pytest.raises(type(error)), tracer.segment(CLAIMED_RUN):
        raise error

    (segment,) = sent(kept)
    assert segment.status.code == status
    assert attributes.items() <= decoded_attributes(segment.attributes).items()


def test_span_that_cannot_be_encoded_is_left_out_of_its_batch(caplog: pytest.LogCaptureFixture) -> None:
    kept: list[OpenSpan] = []
    tracer = SpanTracer(kept.append, None, with_content=True)

    with tracer.segment(CLAIMED_RUN):
        with tracer.span("broken", SpanKind.TOOL, lambda: {"starling.value": Unprintable()}):
            pass
        with tracer.span("recall", SpanKind.RETRIEVER, dict):
            pass

    assert [span.name for span in sent(kept)] == ["recall", "run.segment"]
    assert [record.getMessage() for record in caplog.records] == [
        "1 of 3 spans can't be encoded and are dropped; the first is broken: TypeError: It has no text."
    ]
