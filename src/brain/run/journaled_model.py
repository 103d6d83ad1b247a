"""Model calls of one run, answered from the journal where they were made before; failed attempts are recorded."""

import asyncio
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from time import perf_counter

from brain.durability.journal import Journal, dump_reply, load_reply, request_hash, storable_reply
from brain.interrupts.budget import Meter, RunBudget
from brain.run.recorder import RunRecorder
from starling.core.clock import Deadline
from starling.core.errors import LLMInvalidResponse, ModelError, SuspendedError
from starling.core.json import Json
from starling.core.llm import FailedAttempt, ModelClient, ModelReply, ModelRequest, ModelWait, TextDelta
from starling.core.runs import Step

_DRAIN_CHECK_SECONDS = 0.25


@dataclass(slots=True)
class FailedAttempts:
    """Observes one model call from when it begins.

    `count` is the number of failed attempts, `announced` the warnings that the user got.
    """

    path: str
    request: ModelRequest
    meter: Meter
    recorder: RunRecorder
    count: int = 0
    announced: list[str] = field(default_factory=list[str])
    _begun: float = 0.0

    def __post_init__(self) -> None:
        self._begun = perf_counter()

    def step(self, model: str, *, is_error: bool, failure: str = "", **metadata: Json) -> None:
        """Record that a model was asked, and the time since the call began or the attempt before failed, with waits."""
        begun, self._begun = self._begun, perf_counter()
        self.recorder.step(
            Step(
                type="llm_call",
                description=f"{self.path}: asked {model}{failure and f', which failed: {failure}'}",
                metadata={
                    "model_role": self.request.role.value,
                    "model": model,
                    **metadata,
                    "path": self.path,
                    "is_error": is_error,
                    "duration_ms": round((self._begun - begun) * 1000, 1),
                    **self.request.prompt_named(),
                },
            )
        )

    def add(self, attempt: FailedAttempt) -> None:
        """Count and record an attempt, and warn the user at once if the next one has to wait."""
        self.count += 1
        self.meter.add(model_calls=1)
        self.step(attempt.model, is_error=True, failure=attempt.reason, error=attempt.code)
        if attempt.warning:
            self.announce(attempt.warning)

    def announce(self, warning: str) -> None:
        """Warn the user now; the answer's own warnings repeat it."""
        self.announced.append(warning)
        self.recorder.warn("model", warning)

    @contextmanager
    def journalled(self, journal: Journal, position: int) -> Generator[None]:
        """Record the count in the journal if the call ends without an answer that is recorded there."""
        try:
            yield
        except ModelError as error:
            if isinstance(error, LLMInvalidResponse):
                self.add(FailedAttempt(error.model, error.code, error.reason))
            journal.append(self.path, "failed_call", {"failed_attempts": self.count}, position)
            raise


_USAGE_ESTIMATED = "The endpoint of the model {} reports no tokens: they are estimated by the length of the texts."


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """A model's answer; `replayed` if it comes from the journal.

    `fault` says why the answer is unreadable; `reply` has at most a part of it then.
    """

    reply: ModelReply
    replayed: bool
    fault: str = ""


@dataclass(frozen=True, slots=True)
class JournaledModel:
    """Asks models within the run's budget and records every answer before it is used.

    A call may take `call_seconds`, less where the deadline is nearer. `downgrades`: models of the router may be asked
    in place of those that fail. Those that fail for now are waited for: `wait_seconds`, not while the process is
    `draining`.
    """

    models: ModelClient
    journal: Journal
    recorder: RunRecorder
    budget: RunBudget
    call_seconds: float
    reported: set[str] = field(default_factory=set[str])  # warnings of answers; each is reported once
    downgrades: bool = True
    wait_seconds: float = 0.0
    draining: Callable[[], bool] = bool
    outages: dict[str, Deadline] = field(default_factory=dict[str, Deadline])

    async def ask(self, path: str, position: int, request: ModelRequest, *, tolerant: bool = False) -> ModelAnswer:
        """Return the answer recorded at this position, else ask the model and record its answer.

        If `tolerant`, an unreadable answer is recorded too and returned with a `fault`. Raises ModelError,
        JournalDivergedError, DeadlineExceededError, BudgetExhaustedError, SuspendedError.
        """
        if (recorded := self.recorded(path, position, request)) is not None:
            return recorded
        failed, fault = self._failed_attempts(path, request), ""
        with failed.journalled(self.journal, position):
            try:
                answered = await self.models.respond(self._within_budget(request, failed))
            except LLMInvalidResponse as error:
                if not tolerant:
                    raise
                answered = ModelReply(error.written, model=error.model, finish_reason="unreadable")
                fault = error.reason
        reply = storable_reply(answered)
        self._record(position, request, reply, failed, fault=fault)
        return ModelAnswer(reply, replayed=False, fault=fault)

    def recorded(self, path: str, position: int, request: ModelRequest | None = None) -> ModelAnswer | None:
        """Return the answer recorded at this position, without a `request` whatever it answered, or None."""
        answered = request_hash(request) if request and self.journal.knows(path, "answer", position) else None
        recorded = self.journal.find(path, "answer", position, request_hash=answered)
        if recorded is None:
            return None
        return ModelAnswer(load_reply(recorded), replayed=True, fault=recorded.get("fault", ""))

    async def ask_streaming(
        self, path: str, position: int, request: ModelRequest
    ) -> AsyncIterator[TextDelta | ModelAnswer]:
        """Yield the text as it arrives and the whole answer last; a recorded answer is yielded alone."""
        if (recorded := self.recorded(path, position, request)) is not None:
            yield recorded
            return
        failed = self._failed_attempts(path, request)
        with failed.journalled(self.journal, position):
            async for item in self.models.stream_respond(self._within_budget(request, failed)):
                if isinstance(item, ModelReply):
                    reply = storable_reply(item)
                    self._record(position, request, reply, failed)
                    yield ModelAnswer(reply, replayed=False)
                    return
                yield item
            raise LLMInvalidResponse(self.models.describe(request.role), "the stream ended without an answer")

    def _failed_attempts(self, path: str, request: ModelRequest) -> FailedAttempts:
        return FailedAttempts(path, request, self.budget.meter, self.recorder)

    def _within_budget(self, request: ModelRequest, failed: FailedAttempts) -> ModelRequest:
        self.budget.check(failed.path)
        timeout = self.budget.deadline.cap(self.call_seconds)
        wait = ModelWait(self.wait_seconds, self.budget.deadline, self.outages, failed.announce, self._sleep)
        return replace(request, timeout=timeout, on_failed_attempt=failed.add, downgrades=self.downgrades, wait=wait)

    async def _sleep(self, seconds: float) -> None:
        """Wait. Raises SuspendedError once the process drains: another worker asks the model."""
        while not self.draining():
            await asyncio.sleep(min(seconds, _DRAIN_CHECK_SECONDS))
            seconds -= _DRAIN_CHECK_SECONDS
            if seconds <= 0:
                return
        raise SuspendedError

    def _record(
        self, position: int, request: ModelRequest, reply: ModelReply, failed: FailedAttempts, *, fault: str = ""
    ) -> None:
        data = dump_reply(reply) | ({"fault": fault} if fault else {})
        if failed.count:
            data["failed_attempts"] = failed.count
        self.journal.record(failed.path, "answer", data, position, request_hash=request_hash(request))
        if reply.usage.estimated and not self.budget.meter.estimated:
            self.recorder.warn("usage_estimated", _USAGE_ESTIMATED.format(reply.model))
        self.budget.meter.add(reply.usage, model_calls=1)
        read, written = reply.usage.input_tokens, reply.usage.output_tokens
        failed.step(reply.model, is_error=bool(fault), input_tokens=read, output_tokens=written)
        for warning in reply.warnings:
            if warning not in self.reported and warning not in failed.announced:
                self.recorder.warn("model", warning)
            self.reported.add(warning)
