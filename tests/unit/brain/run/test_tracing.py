"""Spans of model and tool calls."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from brain.run.tracing import TracedGateway, TracedModels
from starling.core.clock import Deadline, SystemClock
from starling.core.llm import ModelRequest, ModelRole, PromptVersion
from starling.core.tool_calls import Effect
from starling.core.tools import ToolCall, Trial
from starling.core.tracing import Describe, SpanKind
from tests.support.in_memory_run import ScriptedModelClient
from tests.support.recording_tracer import RecordingTracer
from tests.support.scripted_gateway import TrialGateway, tool


class AttributesTracer(RecordingTracer):
    """Remembers what its spans are described with."""

    attributes: Mapping[str, Any] = {}

    @contextmanager
    def span(self, name: str, kind: SpanKind, describe: Describe) -> Generator[Any]:
        del name, kind
        self.set(describe)
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


@pytest.mark.parametrize(
    ("prompt", "linked"),
    [
        (PromptVersion("qa", "7d", "langfuse", 3, "production", "agent_qa"), ("agent_qa", 3)),
        (PromptVersion("qa", "7d"), (None, None)),
        (None, (None, None)),
    ],
)
async def test_generation_is_linked_to_its_prompt_if_that_is_in_langfuse(
    prompt: PromptVersion | None, linked: tuple[str | None, int | None]
) -> None:
    tracer = AttributesTracer()

    await TracedModels(ScriptedModelClient(["Hello."]), tracer).respond(
        ModelRequest(ModelRole.REASONING, (), prompt=prompt)
    )

    names = ("langfuse.observation.prompt.name", "langfuse.observation.prompt.version")
    assert tuple(tracer.attributes.get(name) for name in names) == linked
