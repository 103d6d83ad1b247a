"""Acceptance of requests as runs."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from brain.state import CALL_VERSION
from starling.app.runs.cancellation import RunCancellation
from starling.app.telemetry.log_context import add_to_log_context
from starling.core.errors import ConflictError, InvalidRequestError
from starling.core.events.run_events import RunStarted
from starling.core.ids import new_id
from starling.core.json import digest, storable, storable_text
from starling.core.principal import Principal
from starling.core.run_document.rows import EventRow
from starling.core.runs import DirectCall, RunConfig, RunStatus
from starling.core.settings.schema import Limits
from starling.core.teams.building import BuildRequest
from starling.core.tracing import trace_of
from starling.infra.postgres.runs.acceptance import (
    IdempotencyKey,
    NewRun,
    OpenClarificationError,
    RunKey,
    RunRepository,
)
from starling.infra.postgres.runs.broadcast import Listener
from starling.infra.postgres.runs.busy_thread_policy import Policy
from starling.infra.postgres.runs.interrupts import InterruptRepository
from starling.infra.postgres.runs.reader import RunReader

_DEFAULT_CONFIG = RunConfig()


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What a caller asks for on a thread. `policy` decides while another run of the branch has not ended.

    Without `branch` it is asked on the current one. An empty `thread_id` stands for a thread of the run's own. `build`
    is what is to be built, beside the goal in `input`, `call` the tool call that the run is; such requests never answer
    the question of a waiting run. `at` is the position that has to be the tip of the branch, where no other run may go
    on: such a request is the next turn there, or a conflict.
    """

    input: str
    thread_id: str
    correlation_id: str | None = None
    config: RunConfig = _DEFAULT_CONFIG
    policy: Policy = "enqueue"
    build: BuildRequest | None = None
    branch: str | None = None
    call: DirectCall | None = None
    at: int | None = None


type EventBatches = AsyncGenerator[Sequence[EventRow]]
"""The events of a run, in batches."""


@dataclass(frozen=True, slots=True)
class AcceptedRun:
    """The run of a request: its first event, its status at acceptance, and its stream from the start.

    Where the request answered the question of a waiting run: that run, and its stream from there on.
    """

    key: RunKey
    started: RunStarted
    status: RunStatus
    events: EventBatches


@dataclass(frozen=True, slots=True)
class RunAcceptance:
    """Accepts requests: writes each as a run, or as the answer to a waiting run."""

    runs: RunRepository
    reader: RunReader
    interrupts: InterruptRepository
    cancellation: RunCancellation
    limits: Limits

    async def accept(
        self, principal: Principal, request: RunRequest, idempotency_key: str | IdempotencyKey | None = None
    ) -> AcceptedRun:
        """Store the run and return it with its stream; a stored run is always brought to an end.

        The same request with the same idempotency key leads to the same run.
        Raises InvalidRequestError, ConflictError, IdempotencyKeyReusedError, DatabaseUnavailableError.
        """
        text = self.checked(request.input, "goal" if request.build else "input")
        run_id = new_id()
        key = RunKey(principal.tenant, run_id)
        trace_id, parent = trace_of(run_id)
        listener = self.reader.listener(key, after=1)
        new = NewRun(
            key=key,
            thread_id=storable_text(request.thread_id) or run_id,
            input=text,
            config=request.config,
            principal=principal.as_json(),
            correlation_id=storable_text(request.correlation_id or run_id),
            trace_id=trace_id,
            parent_span=parent,
            idempotency=_idempotency(idempotency_key, request),
            policy=request.policy,
            may_answer=request.build is None and request.call is None and request.at is None,
            build=request.build,
            call=request.call,
            graph_version=CALL_VERSION if request.call else 0,
            branch=request.branch,
            at=request.at,
        )
        try:
            acceptance = await self.runs.accept(new)
        except (OpenClarificationError, ConflictError):
            if not new.may_answer:
                raise
            if answered := await self._answered(new, principal):
                return answered
            acceptance = await self.runs.accept(replace(new, may_answer=False))
        started = acceptance.started
        add_to_log_context(run_id=started.run_id, trace_id=started.trace_id, correlation_id=started.correlation_id)
        if started.run_id == run_id:
            if request.policy == "interrupt":
                await self.cancellation.cancel_superseded(key)
            events = self._stream(key, EventRow(1, started.type, started.model_dump(mode="json")), listener)
            return AcceptedRun(key, started, acceptance.status, events)
        key = RunKey(principal.tenant, started.run_id)
        return AcceptedRun(key, started, acceptance.status, self.reader.follow_batches(key))

    async def _answered(self, message: NewRun, principal: Principal) -> AcceptedRun | None:
        """Use a message as the answer that a run of its thread waits for; return that run, from its next event on."""
        answered = await self.interrupts.answer_thread(
            principal, message.thread_id, message.input, message.idempotency, message.branch
        )
        if answered is None or (found := await self.runs.accepted(answered[0])) is None:
            return None
        key, after = answered
        add_to_log_context(run_id=key.id, trace_id=found.started.trace_id, correlation_id=found.started.correlation_id)
        return AcceptedRun(key, found.started, found.status, self.reader.follow_batches(key, after=after))

    def checked(self, text: str, field: str) -> str:
        """Return the text of a request as it is stored. Raises InvalidRequestError where it is empty or too long."""
        text = storable_text(text).strip()
        if not text:
            raise InvalidRequestError(f"`{field}` is empty.", "Describe what you want to have done.")
        if len(text) > self.limits.input_chars:
            raise InvalidRequestError(
                f"`{field}` has {len(text)} characters; {self.limits.input_chars} are allowed.",
                "Shorten it, or raise `limits.input_chars`.",
            )
        return text

    async def _stream(self, key: RunKey, first: EventRow, listener: Listener) -> EventBatches:
        yield [first]
        async with aclosing(self.reader.batches(key, listener)) as batches:
            async for batch in batches:
                yield batch


def _idempotency(key: str | IdempotencyKey | None, request: RunRequest) -> IdempotencyKey | None:
    """Return a key with the digest of its request; stored digests rest on these names."""
    if not key or isinstance(key, IdempotencyKey):
        return key or None
    document: dict[str, object] = {
        "input": request.input,
        "thread_id": request.thread_id,
        "correlation_id": request.correlation_id,
        "config": request.config.model_dump(mode="json"),
        "multitask_strategy": request.policy,
    }
    if request.branch:
        document["branch"] = request.branch
    if request.build:
        document["build"] = request.build.model_dump(mode="json")
    if request.call:
        document["call"] = request.call.model_dump(mode="json")
    return IdempotencyKey(key, digest(storable(document)))
