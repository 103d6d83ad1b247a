"""Accepting requests: whoever asks, over HTTP or the command line, comes through here."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from starling.app.logs import note_in_logs
from starling.core.errors import InvalidRequestError
from starling.core.events import StoredEvent
from starling.core.ids import new_id, trace_id_of
from starling.core.json import storable_text
from starling.core.principal import Principal
from starling.core.runs import RunConfig
from starling.core.settings import Limits
from starling.infra.postgres.broadcast import Listener
from starling.infra.postgres.runs import NewRun, RunKey, RunRepository
from starling.infra.postgres.streams import RunReader

type Name = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]


class RunRequest(BaseModel):
    """What a caller asks: a request on a thread, which begins with its first request."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        json_schema_extra={
            "examples": [
                {
                    "input": "What time is it in Lima, and how full is this disk?",
                    "thread_id": "t-1",
                    "config": {"mode": "MODERATE", "channel": "CHAT"},
                }
            ]
        },
    )

    input: Annotated[str, Field(min_length=1, description="The request, in plain words.")]
    thread_id: Annotated[Name, Field(description="The conversation; yours to choose, unique for your tenant.")]
    correlation_id: Annotated[
        Name | None, Field(description="Comes back in `run_started`, the result, logs and traces.")
    ] = None
    config: RunConfig = RunConfig()


type EventBatches = AsyncGenerator[Sequence[StoredEvent]]
"""A stream, each time all that is there."""


@dataclass(frozen=True, slots=True)
class Intake:
    """Makes runs out of requests."""

    runs: RunRepository
    reader: RunReader
    limits: Limits
    graph_version: int

    async def accept(self, principal: Principal, request: RunRequest) -> tuple[RunKey, EventBatches]:
        """Write the run down and return its key and its stream: from then on it is done or told to have failed.

        Raises InvalidRequestError, DatabaseUnavailableError.
        """
        text = storable_text(request.input).strip()
        if not text:
            raise InvalidRequestError("`input` is empty.", "Say what you want to have done.")
        if len(text) > self.limits.input_chars:
            raise InvalidRequestError(
                f"`input` has {len(text)} characters; {self.limits.input_chars} are allowed.",
                "Shorten it, or raise `limits.input_chars`.",
            )
        run_id = new_id()
        key = RunKey(principal.tenant, run_id)
        listener = self.reader.listener(key, after=1)
        first = await self.runs.accept(
            NewRun(
                key=key,
                thread_id=storable_text(request.thread_id),
                input=text,
                config=request.config,
                principal=principal.as_json(),
                correlation_id=storable_text(request.correlation_id or run_id),
                trace_id=trace_id_of(run_id),
                graph_version=self.graph_version,
            )
        )
        note_in_logs(run_id=run_id, trace_id=first.trace_id, correlation_id=first.correlation_id)
        return key, self._stream(key, StoredEvent(1, first.type, first.model_dump(mode="json")), listener)

    async def _stream(self, key: RunKey, first: StoredEvent, listener: Listener) -> EventBatches:
        yield [first]
        async with aclosing(self.reader.batches(key, listener)) as batches:
            async for batch in batches:
                yield batch
