"""Wrappers that trace model and tool calls. Answers replayed from the journal make no call and get no span."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial

from starling.core.clock import Deadline
from starling.core.llm import ModelClient, ModelReply, ModelRequest, ModelRole, TextDelta
from starling.core.tools import CallRecord, ServerListing, ToolCall, ToolGateway, ToolOutcome
from starling.core.tracing import Attributes, SpanKind, Tracer


@dataclass(frozen=True, slots=True)
class TracedModels:
    """Traces each request as one generation, retries and fallbacks included."""

    inner: ModelClient
    tracer: Tracer

    async def respond(self, request: ModelRequest) -> ModelReply:
        model = request.model or self.inner.describe(request.role, supervisor=request.supervisor)
        with self.tracer.span(f"chat {model}", SpanKind.GENERATION, lambda: _request(request, model)) as span:
            reply = await self.inner.respond(request)
            span.set(partial(_reply, reply))
            return reply

    async def stream_respond(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelReply]:
        model = request.model or self.inner.describe(request.role, supervisor=request.supervisor)
        reply = None
        with self.tracer.span(f"chat {model}", SpanKind.GENERATION, lambda: _request(request, model)) as span:
            async for item in self.inner.stream_respond(request):
                if isinstance(item, ModelReply):
                    reply = item
                    span.set(partial(_reply, reply))
                else:
                    yield item
        if reply is not None:
            yield reply

    def describe(self, role: ModelRole, *, supervisor: bool = False) -> str:
        return self.inner.describe(role, supervisor=supervisor)


@dataclass(frozen=True, slots=True)
class TracedGateway(ToolGateway):
    """Traces each call as a tool span."""

    inner: ToolGateway
    tracer: Tracer

    async def call(self, call: ToolCall, deadline: Deadline, record: CallRecord | None = None) -> ToolOutcome:
        attributes: Attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.tool.full_name,
            "gen_ai.tool.call.id": call.id,
            "tool_usage": [call.tool.full_name],
            "tags": [f"tool_usage:{call.tool.full_name}"],
            "starling.server": call.tool.server,
            "starling.effect": call.tool.effect.value,
            "input": call.arguments,
        }
        with self.tracer.span(f"execute_tool {call.shown_name}", SpanKind.TOOL, lambda: attributes) as span:
            outcome = await self.inner.call(call, deadline, record)
            span.set(
                lambda: {
                    "starling.status": outcome.status,
                    "starling.simulated": outcome.simulated or None,
                    "starling.truncated": outcome.truncated or None,
                    "starling.artifact": outcome.artifact or None,
                    "error.type": outcome.code or None,
                    "output": outcome.text,
                }
            )
            if outcome.status == "failed":
                span.fail(outcome.text)
            return outcome

    def warm(self, server: str) -> None:
        self.inner.warm(server)

    def listing(self, server: str) -> ServerListing | None:
        return self.inner.listing(server)


def _request(request: ModelRequest, model: str) -> Attributes:
    provider, _, name = model.partition(":")
    used = request.prompt
    linked: Attributes = {}  # to the prompt in Langfuse, where its text is from there
    if used and used.source == "langfuse":
        linked = {
            "langfuse.observation.prompt.name": used.remote_name,
            "langfuse.observation.prompt.version": used.version,
        }
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.system": provider,  # its name until 2025, which most dashboards still read
        "gen_ai.provider.name": provider,
        "gen_ai.request.model": name,
        "gen_ai.request.temperature": request.temperature,
        "gen_ai.request.max_tokens": request.max_tokens,
        "starling.model_role": request.role.value,
        "starling.prompt.name": used and used.name,
        "starling.prompt.version": used and used.hash,
        **linked,
        "input": [{"role": message.role, "content": message.content} for message in request.messages],
    }


def _reply(reply: ModelReply) -> Attributes:
    calls = [{"name": call.name, "arguments": call.arguments} for call in reply.tool_calls]
    parts = {"tool_calls": calls, "reasoning": reply.reasoning}
    more = {name: part for name, part in parts.items() if part}
    return {
        "gen_ai.response.model": reply.model.partition(":")[2],
        "gen_ai.response.finish_reasons": [reply.finish_reason],
        "gen_ai.usage.input_tokens": reply.usage.input_tokens,
        "gen_ai.usage.output_tokens": reply.usage.output_tokens,
        "starling.warnings": list(reply.warnings) or None,
        "output": {"content": reply.content, **more} if more else reply.content,
    }
