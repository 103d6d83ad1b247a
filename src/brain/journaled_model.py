"""Model calls of one run, answered from the journal where they were made before."""

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field, replace

from brain.durability.journal import Journal, dump_reply, load_reply, request_hash, storable_reply
from brain.interrupts.budget import RunBudget
from brain.recorder import RunRecorder
from starling.core.errors import LLMInvalidResponse
from starling.core.llm import ModelClient, ModelReply, ModelRequest, ModelRole, TextDelta
from starling.core.runs import Step


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """A model's answer; `replayed` if it comes from the journal.

    `fault` says why the answer is unreadable; `reply` has no content then.
    """

    reply: ModelReply
    replayed: bool
    fault: str = ""


@dataclass(frozen=True, slots=True)
class ModelWarnings:
    """Warnings of the latest answer for each role (or model that was asked for by name).

    A model that is skipped for a minute is skipped by every call of that minute; only the first is reported.
    """

    _latest: dict[tuple[ModelRole, str | None], Sequence[str]] = field(
        default_factory=dict[tuple[ModelRole, str | None], Sequence[str]]
    )

    def new_warnings(self, request: ModelRequest, warnings: Sequence[str]) -> Iterable[str]:
        """Remember an answer's warnings and return those that no latest answer had."""
        known = {text for latest in self._latest.values() for text in latest}
        self._latest[request.role, request.model] = warnings
        return [text for text in warnings if text not in known]


@dataclass(frozen=True, slots=True)
class JournaledModel:
    """Asks models within the run's budget and records every answer before it is used.

    A call may take `call_seconds`, less where the deadline is nearer.
    """

    models: ModelClient
    journal: Journal
    recorder: RunRecorder
    budget: RunBudget
    call_seconds: float
    warnings: ModelWarnings = field(default_factory=ModelWarnings)

    async def ask(self, path: str, position: int, request: ModelRequest) -> ModelAnswer:
        """Return the answer recorded at this position, else ask the model and record its answer.

        Raises ModelError, JournalDivergedError, DeadlineExceededError, BudgetExhaustedError, SuspendedError.
        """
        key = request_hash(request)
        recorded = self.journal.find(path, "answer", position, request_hash=key)
        if recorded is not None:
            return ModelAnswer(load_reply(recorded), replayed=True, fault=recorded.get("fault", ""))
        reply = storable_reply(await self.models.respond(self._within_budget(path, request)))
        self._record(path, position, key, request, reply)
        return ModelAnswer(reply, replayed=False)

    async def ask_tolerantly(self, path: str, position: int, request: ModelRequest) -> ModelAnswer:
        """Like `ask`, but record an unreadable answer too and return it with a `fault`."""
        try:
            return await self.ask(path, position, request)
        except LLMInvalidResponse as error:
            reply = ModelReply("", model=error.model, finish_reason="unreadable")
            self._record(path, position, request_hash(request), request, reply, fault=error.reason)
            return ModelAnswer(reply, replayed=False, fault=error.reason)

    async def ask_streaming(
        self, path: str, position: int, request: ModelRequest
    ) -> AsyncIterator[TextDelta | ModelAnswer]:
        """Yield the text as it arrives and the whole answer last; a recorded answer is yielded alone."""
        key = request_hash(request)
        recorded = self.journal.find(path, "answer", position, request_hash=key)
        if recorded is not None:
            yield ModelAnswer(load_reply(recorded), replayed=True)
            return
        async for item in self.models.stream_respond(self._within_budget(path, request)):
            if isinstance(item, ModelReply):
                reply = storable_reply(item)
                self._record(path, position, key, request, reply)
                yield ModelAnswer(reply, replayed=False)
                return
            yield item
        raise LLMInvalidResponse(self.models.describe(request.role), "the stream ended without an answer")

    def _within_budget(self, path: str, request: ModelRequest) -> ModelRequest:
        self.budget.check(path)
        return replace(request, timeout=self.budget.deadline.cap(self.call_seconds))

    def _record(
        self, path: str, position: int, key: str, request: ModelRequest, reply: ModelReply, *, fault: str = ""
    ) -> None:
        data = dump_reply(reply) | ({"fault": fault} if fault else {})
        self.journal.record(path, "answer", data, position, request_hash=key)
        self.budget.meter.add_answer(reply.usage)
        self.recorder.step(
            Step(
                type="llm_call",
                description=f"{path}: asked {reply.model}",
                metadata={
                    "model_role": request.role.value,
                    "model": reply.model,
                    "input_tokens": reply.usage.input_tokens,
                    "output_tokens": reply.usage.output_tokens,
                    "path": path,
                },
            )
        )
        for warning in self.warnings.new_warnings(request, reply.warnings):
            self.recorder.warn("model", warning)
