"""Wrappers that measure models, tools and the execution of runs."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter

from starling.app.telemetry.metrics import Metrics
from starling.core.clock import Deadline
from starling.core.errors import ModelError
from starling.core.llm import ModelReply, ModelRequest, ModelRole, TextDelta
from starling.core.runs import RunResult
from starling.core.tools import CallRecord, ServerListing, ToolCall, ToolGateway, ToolOutcome
from starling.infra.llm.client import FallbackModelClient
from starling.infra.postgres.runs.acceptance import Claim

# Label values come from a closed set: names that callers choose are not used.
_UNKNOWN_SERVER = "unknown"  # it was removed
_OTHER_MODEL = "other"  # named by a custom agent


@dataclass(frozen=True, slots=True)
class MeasuredModels:
    """Counts answers, failures and tokens of models."""

    inner: FallbackModelClient
    metrics: Metrics

    async def respond(self, request: ModelRequest) -> ModelReply:
        """Return the whole answer."""
        with self._measured(request):
            reply = await self.inner.respond(request)
            self._answered(request.role, reply)
            return reply

    async def stream_respond(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelReply]:
        """Yield text as it comes, then the whole reply."""
        with self._measured(request):
            async for item in self.inner.stream_respond(request):
                if isinstance(item, ModelReply):
                    self._answered(request.role, item)
                yield item

    def describe(self, role: ModelRole, *, supervisor: bool = False) -> str:
        """Return `provider:model` of the model that a role, or a supervisor in it, asks first."""
        return self.inner.describe(role, supervisor=supervisor)

    @contextmanager
    def _measured(self, request: ModelRequest) -> Generator[None]:
        begun, role = perf_counter(), request.role
        try:
            yield
        except ModelError as error:
            self.metrics.measure("model_calls", role.value, self._label(error.model), error.code)
            raise
        except asyncio.CancelledError:
            asked = self.describe(role, supervisor=request.supervisor)
            self.metrics.measure("model_calls", role.value, asked, "cancelled")
            raise
        finally:
            self.metrics.measure("model_seconds", role.value, value=perf_counter() - begun)

    def _answered(self, role: ModelRole, reply: ModelReply) -> None:
        model = self._label(reply.model)
        self.metrics.measure("model_calls", role.value, model, "ok")
        self.metrics.measure("model_tokens", role.value, model, "input", value=reply.usage.input_tokens)
        self.metrics.measure("model_tokens", role.value, model, "output", value=reply.usage.output_tokens)

    def _label(self, model: str) -> str:
        return model if model in self.inner.names else _OTHER_MODEL


@dataclass(frozen=True, slots=True)
class MeasuredTools:
    """Counts and times the calls of a gateway, by server."""

    inner: ToolGateway
    metrics: Metrics

    async def call(self, call: ToolCall, deadline: Deadline, record: CallRecord | None = None) -> ToolOutcome:
        """Make a call down the whole path."""
        outcome = await self.inner.call(call, deadline, record)
        server = call.tool.server if self.inner.listing(call.tool.server) else _UNKNOWN_SERVER
        self.metrics.measure("tool_calls", server, outcome.code or outcome.status)
        self.metrics.measure("tool_seconds", server, value=outcome.duration_ms / 1000)
        return outcome

    def warm(self, server: str) -> None:
        """Begin to open a session in the background."""
        self.inner.warm(server)

    def listing(self, server: str) -> ServerListing | None:
        """Return the server as it stands now."""
        return self.inner.listing(server)


@dataclass(frozen=True, slots=True)
class MeasuredRuns:
    """Measures how long runs are executed."""

    inner: Callable[[Claim], Awaitable[RunResult | None]]
    metrics: Metrics

    async def __call__(self, claim: Claim) -> RunResult | None:
        """Execute the run. Returns and raises what `inner` does."""
        begun = perf_counter()
        result = await self.inner(claim)
        if result is not None:
            self.metrics.measure("run_seconds", result.status, value=perf_counter() - begun)
            for reason in result.missing:
                self.metrics.measure("runs_degraded", reason)
        return result
