"""Runs of OpenAI's clients: accepted where their conversation goes on, followed, and cancelled if nobody waits."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from starling.app.openai.answers import ChatAnswer, decision_in, progress_line
from starling.app.openai.history import ChatHistory, ChatPlace
from starling.app.openai.requests import ChatRequest, ModelNotFoundError
from starling.app.registry.agents import AgentService
from starling.app.runs.acceptance import EventBatches, RunAcceptance, RunRequest
from starling.app.runs.cancellation import RunCancellation
from starling.app.runs.completion import until_idle
from starling.app.runs.interrupts import InterruptService
from starling.core.errors import ConflictError, IdempotencyKeyReusedError
from starling.core.principal import Principal
from starling.core.runs import RunConfig, RunStatus
from starling.infra.postgres.audit import Actor
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.chat_answers import BegunRequest, ChatAnswerRepository
from starling.infra.postgres.runs.documents import RunDocumentRepository

MAIN_MODEL: Final = "starling"
_NOT_MODELS: Final = frozenset({"architect"})  # which needs more than a message
_RETRY_SECONDS: Final = 3.0  # in which a client that lost its connection sends the request again


type Updates = AsyncGenerator[str | ChatAnswer]
"""Lines that tell the progress, and at last the answer."""


@dataclass(frozen=True, slots=True)
class ChatTurn:
    """A request that was accepted: its run, and the events to come; None where the run waits for another answer.

    `joined_at` is when this request joined a run that an earlier one began.
    """

    asked: ChatRequest
    key: RunKey
    thread: str
    events: EventBatches | None
    joined_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class ChatRuns:
    """Answers requests by runs, in the order of their conversations."""

    acceptance: RunAcceptance
    agents: AgentService
    answering: InterruptService
    answers: ChatAnswerRepository
    cancellation: RunCancellation
    documents: RunDocumentRepository
    history: ChatHistory
    retry_seconds: float = _RETRY_SECONDS

    async def models(self, caller: Principal) -> Sequence[str]:
        """Return the models that the caller may name: the main star, and the agents and teams that can work."""
        found = (await self.agents.list(caller)).agents
        return [MAIN_MODEL, *(one.name for one in found if one.state == "ready" and one.name not in _NOT_MODELS)]

    async def check_model(self, caller: Principal, model: str) -> None:
        """Raise ModelNotFoundError for a model that the caller may not name."""
        if model != MAIN_MODEL and model not in await self.models(caller):
            raise ModelNotFoundError(model)

    async def begin(self, caller: Principal, actor: Actor, asked: ChatRequest) -> ChatTurn:
        """Accept a request as a run, join the run that it began before, or take it as an answer to a waiting one.

        Raises as `RunAcceptance.accept` and `InterruptService.answer` do, ModelNotFoundError,
        PreviousResponseNotFoundError.
        """
        if not asked.sending.idempotency.replaces and (turn := await self._joined(caller, asked)):
            return turn
        await self.check_model(caller, asked.model)
        place = await self.history.place(caller, asked)
        if place.run and (turn := await self._decided(caller, actor, asked, place, place.run)):
            return turn
        try:
            accepted = await self.acceptance.accept(caller, _request(asked, place), asked.sending.idempotency)
        except ConflictError:
            if place.at is None:
                raise
            place = await self.history.fork(caller.tenant, place)
            accepted = await self.acceptance.accept(caller, _request(asked, place), asked.sending.idempotency)
        joined: BegunRequest | None = None
        if asked.sending.retried or accepted.key == place.run:  # the run is older than this request
            joined = await self.answers.keep(accepted.key, asked.sending.idempotency)
        thread = accepted.started.thread_id
        return ChatTurn(asked, accepted.key, thread, accepted.events, joined.joined_at if joined else None)

    async def follow(self, caller: Principal, turn: ChatTurn) -> Updates:
        """Yield the updates of a request; later ones are found by its answer once this ends."""
        answer: ChatAnswer | None = None
        if turn.events is not None:
            async with aclosing(until_idle(self.documents, turn.key, turn.events)) as batches:
                async for batch in batches:
                    if batch[-1].type == "done":
                        answer = ChatAnswer.of_result(turn.key, turn.thread, batch[-1].data)
                    elif lines := [line for event in batch if (line := progress_line(event))]:
                        yield "\n".join(lines)
        if answer is None:
            waiting = await self.acceptance.interrupts.waiting(turn.key.tenant, run=turn.key.id)
            answer = await self.state(turn.key) or ChatAnswer.of_wait(turn.key, turn.thread, waiting)
        yield answer
        storing = self.history.remember(caller, turn.asked, turn.key, answer.text)
        # a client that has the whole text may close the connection
        await asyncio.shield(asyncio.get_running_loop().create_task(storing, name=f"remember-{turn.key.id}"))

    async def answer(self, caller: Principal, turn: ChatTurn) -> ChatAnswer:
        """Return the answer once it is there, and later requests are found by it."""
        async with aclosing(self.follow(caller, turn)) as updates:
            answers = [update async for update in updates if isinstance(update, ChatAnswer)]
        return answers[-1]

    async def state(self, key: RunKey) -> ChatAnswer | None:
        """Return what a run answered or waits for, None while it goes on. Raises NotFoundError."""
        row = await self.documents.row(key)
        if row.result is not None:
            return ChatAnswer.of_result(key, row.thread_id, row.result)
        if row.status is not RunStatus.WAITING:
            return None
        return ChatAnswer.of_wait(key, row.thread_id, await self.acceptance.interrupts.waiting(key.tenant, run=key.id))

    async def cancel_unless_joined(self, turn: ChatTurn) -> None:
        """Cancel the run of a client that disconnected, unless it sends the request again within some seconds."""
        if turn.events is None or turn.asked.background:
            return
        await asyncio.sleep(self.retry_seconds)
        if not await self.answers.is_joined(turn.key, turn.asked.sending.idempotency.text, turn.joined_at):
            await self.cancellation.cancel(turn.key)

    async def _joined(self, caller: Principal, asked: ChatRequest) -> ChatTurn | None:
        """Return the run that the same request began before.

        One that was cancelled when its client disconnected, before it changed anything, is begun again.
        """
        sent = asked.sending.idempotency
        if (begun := await self.answers.join(caller.tenant, sent.text)) is None:
            return None
        if begun.request_hash != sent.request_hash:
            raise IdempotencyKeyReusedError(sent.text, begun.run_id)
        key = RunKey(caller.tenant, begun.run_id)
        row = await self.documents.row(key)
        if asked.sending.retried and row.status is RunStatus.CANCELLED and not (row.result or {}).get("effects"):
            await self.answers.forget(key, sent.text)
            return None
        events = self.acceptance.reader.follow_batches(key)
        return ChatTurn(asked, key, row.thread_id, events, begun.joined_at)

    async def _decided(
        self, caller: Principal, actor: Actor, asked: ChatRequest, place: ChatPlace, key: RunKey
    ) -> ChatTurn | None:
        """Take a message as a decision that the run of its place waits for; None where it is something else.

        While a run waits for a decision, any other message only gets to know that.
        """
        interrupts = await self.acceptance.interrupts.of_run(key)
        if decision := decision_in(asked.text, interrupts):
            await self.answering.answer(key, [decision], actor, caller)
            joined = await self.answers.keep(key, asked.sending.idempotency)
            return ChatTurn(asked, key, place.thread, self.acceptance.reader.follow_batches(key), joined.joined_at)
        waits = any(item.state == "open" and item.kind != "clarification" for item in interrupts)
        return ChatTurn(asked, key, place.thread, None) if place.live and waits else None


def _request(asked: ChatRequest, place: ChatPlace) -> RunRequest:
    agent = None if asked.model == MAIN_MODEL else asked.model
    config = RunConfig(agent=agent, instructions=asked.instructions)
    return RunRequest(asked.text, place.thread, config=config, branch=place.branch, at=place.at)
