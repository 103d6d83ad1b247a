"""Spans of tool calls."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from brain.tracing import TracedGateway
from starling.core.clock import Deadline, SystemClock
from starling.core.tool_calls import Effect
from starling.core.tools import ToolCall, Trial
from starling.core.tracing import Describe, SpanKind
from tests.support.recording_tracer import RecordingTracer
from tests.support.scripted_gateway import TrialGateway, tool


class AttributesTracer(RecordingTracer):
    """Remembers what its spans are described with."""

    attributes: Mapping[str, Any] = {}

    @contextmanager
    def span(self, name: str, kind: SpanKind, describe: Describe) -> Generator[Any]:
        del name, kind, describe
        yield self

    def set(self, describe: Describe) -> None:
        self.attributes = {**self.attributes, **describe()}


@pytest.mark.parametrize(
    ("effect", "trial", "source"),
    [(Effect.UNSAFE, Trial(), "simulated"), (Effect.READ, Trial(), None), (Effect.READ, None, None)],
)
async def test_span_of_a_call_names_what_answered_in_place_of_its_tool(
    effect: Effect, trial: Trial | None, source: str | None
) -> None:
    tracer = AttributesTracer()
    call = ToolCall("t1.0.0", "run", "t1", tool("order", effect), {}, trial=trial)

    await TracedGateway(TrialGateway(), tracer).call(call, Deadline(SystemClock(), 1))

    assert tracer.attributes["starling.simulated"] == source
