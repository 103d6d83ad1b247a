"""Runs of OpenAI's clients: accepted where their conversation goes on, followed, and cancelled if nobody waits."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from typing import Final

from starling.app.openai.answers import ChatAnswer, decision_in, progress_line
from starling.app.openai.history import ChatHistory
from starling.app.openai.requests import ChatRequest, ModelNotFoundError
from starling.app.registry.agents import Agent, AgentService
from starling.app.runs.acceptance import AcceptedRun, EventBatches, RunAcceptance, RunRequest
from starling.app.runs.cancellation import RunCancellation
from starling.app.runs.completion import until_idle
from starling.app.runs.interrupts import InterruptService
from starling.core.background_tasks import in_background
from starling.core.errors import ConflictError, DatabaseUnavailableError, IdempotencyKeyReusedError
from starling.core.principal import Principal
from starling.core.run_document.rows import RunRow
from starling.core.runs import RunConfig, RunStatus
from starling.infra.postgres.audit import Actor
from starling.infra.postgres.runs.acceptance import IdempotencyKey, IdempotencyRecord, RunKey
from starling.infra.postgres.runs.chat_answers import ChatAnswerRepository, ChatPlace
from starling.infra.postgres.runs.documents import RunDocumentRepository
from starling.infra.postgres.runs.interrupts import InterruptAnswer

MAIN_MODEL: Final = "starling"
_NOT_MODELS: Final = frozenset({"architect"})  # which needs more than a message

type Updates = AsyncGenerator[str | ChatAnswer]
"""Lines that tell the progress, and at last the answer."""


@dataclass(frozen=True, slots=True)
class ChatTurn:
    """A request that was accepted: its run, and the events to come; None where the run waits for another answer.

    `decided`: it answered one of the things that the run asked before these events.
    """

    asked: ChatRequest
    key: RunKey
    thread: str
    events: EventBatches | None
    decided: bool = False


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
    retry_seconds: float = 3.0  # in which a client that lost its connection sends the request again

    async def models(self, caller: Principal) -> Sequence[str]:
        """Return the models that the caller may name: the main star, and the agents and teams that can work."""
        return [MAIN_MODEL, *(name for name, agent in (await self._agents(caller)).items() if agent.state == "ready")]

    async def check_model(self, caller: Principal, model: str) -> None:
        """Raise ModelNotFoundError for a model that the caller may not name."""
        if model == MAIN_MODEL:
            return
        agent = (await self._agents(caller)).get(model)
        if agent is None or agent.state != "ready":
            raise ModelNotFoundError(model, agent.reason if agent else "")

    async def begin(self, caller: Principal, actor: Actor, asked: ChatRequest) -> ChatTurn:
        """Accept a request as a run, join the run that it began before, or take it as an answer to a waiting one.

        Raises as `RunAcceptance.accept` and `InterruptService.answer` do, ModelNotFoundError,
        PreviousResponseNotFoundError.
        """
        sent = asked.sending.idempotency
        if not sent.replaces and (begun := await self.acceptance.runs.begun(caller.tenant, sent.text)):
            if turn := await self._joined(caller, asked, begun):
                return turn
            sent = replace(sent, replaces=True)
        await self.check_model(caller, asked.model)
        self.acceptance.checked(asked.text, "input")
        place = await self.history.place(caller, asked)
        if place.run and (turn := await self._answered(caller, actor, asked, place)):
            return turn
        accepted = await self._accepted(caller, asked, place, sent)
        if asked.sending.retried or accepted.key.id == place.run:  # another request may wait for the run
            await self.answers.touch(accepted.key)
        return ChatTurn(asked, accepted.key, accepted.started.thread_id, accepted.events)

    async def follow(self, caller: Principal, turn: ChatTurn) -> Updates:
        """Yield the updates of a request; later ones are found by its answer once this ends."""
        answer: ChatAnswer | None = None
        if turn.events is not None:
            async with (
                in_background(self._keep_touching(turn.key), f"touch-{turn.key.id}"),
                aclosing(until_idle(self.documents, turn.key, turn.events, asked=turn.decided)) as batches,
            ):
                async for batch in batches:
                    if batch[-1].type == "done":
                        answer = ChatAnswer.of_result(turn.key, turn.thread, batch[-1].data)
                    elif lines := [line for event in batch if (line := progress_line(event))]:
                        yield "\n".join(lines)
        answer = answer or await self._latest(turn.key, await self.documents.row(turn.key))
        await self.history.remember(caller, turn.asked, turn.key, answer)  # a client that has it may disconnect
        yield answer

    async def answer(self, caller: Principal, turn: ChatTurn) -> ChatAnswer:
        """Return the answer once it is there, and later requests are found by it."""
        async with aclosing(self.follow(caller, turn)) as updates:
            answers = [update async for update in updates if isinstance(update, ChatAnswer)]
        return answers[-1]

    async def state(self, key: RunKey, row: RunRow) -> ChatAnswer | None:
        """Return what a run answered or waits for, None while it goes on."""
        is_idle = row.result is not None or row.status is RunStatus.WAITING
        return await self._latest(key, row) if is_idle else None

    async def cancel_unless_joined(self, turn: ChatTurn) -> None:
        """Cancel the run of a client that disconnected, unless another request waits for it after some seconds.

        A run that waits for an answer is never cancelled.
        """
        if turn.events is None or turn.asked.background:
            return
        await asyncio.sleep(self.retry_seconds)
        if await self.answers.is_left(turn.key, self.retry_seconds * 2 / 3):
            await self.cancellation.cancel(turn.key)

    async def _agents(self, caller: Principal) -> dict[str, Agent]:
        found = (await self.agents.list(caller)).agents
        return {agent.name: agent for agent in found if agent.name not in _NOT_MODELS}

    async def _keep_touching(self, key: RunKey) -> None:
        while True:
            await asyncio.sleep(self.retry_seconds / 3)
            with suppress(DatabaseUnavailableError):  # which a cancellation needs, too
                await self.answers.touch(key)

    async def _latest(self, key: RunKey, row: RunRow) -> ChatAnswer:
        """Return what a run answered, or else what it asks."""
        if row.result is not None:
            return ChatAnswer.of_result(key, row.thread_id, row.result)
        return ChatAnswer.of_wait(key, row.thread_id, await self.acceptance.interrupts.waiting(key.tenant, run=key.id))

    async def _following(self, asked: ChatRequest, key: RunKey, thread: str, after: int = 0) -> ChatTurn:
        await self.answers.touch(key)
        return ChatTurn(asked, key, thread, self.acceptance.reader.follow_batches(key, after=after))

    async def _accepted(
        self, caller: Principal, asked: ChatRequest, place: ChatPlace, sent: IdempotencyKey
    ) -> AcceptedRun:
        """Accept a request at its place, else where one is made for it, which is deleted if the request is refused."""
        if place.is_open:
            try:
                return await self.acceptance.accept(caller, _request(asked, place), sent)
            except ConflictError:
                if place.at is None:
                    raise
        place, made = await self.history.make(caller.tenant, place)
        try:
            return await self.acceptance.accept(caller, _request(asked, place), sent)
        except BaseException:
            if made:
                await self.history.discard(caller.tenant, place.thread, made)
            raise

    async def _joined(self, caller: Principal, asked: ChatRequest, begun: IdempotencyRecord) -> ChatTurn | None:
        """Return the run that the same request began before.

        One that was cancelled when its client disconnected, before it changed anything, is begun again.
        """
        sent = asked.sending.idempotency
        if begun.request_hash != sent.request_hash:
            raise IdempotencyKeyReusedError(sent.text, begun.run_id)
        key = RunKey(caller.tenant, begun.run_id)
        row = await self.documents.row(key)
        if asked.sending.retried and row.status is RunStatus.CANCELLED and not (row.result or {}).get("effects"):
            return None
        return await self._following(asked, key, row.thread_id)

    async def _answered(self, caller: Principal, actor: Actor, asked: ChatRequest, place: ChatPlace) -> ChatTurn | None:
        """Take a message as what the run of its place waits for; None where it is something else.

        While a run waits for a decision, any other message only gets to know that.
        """
        key = RunKey(caller.tenant, place.run)
        interrupts = await self.acceptance.interrupts.of_run(key)
        given = decision_in(asked.exact_text, interrupts)
        waits = [item for item in interrupts if item.state == "open"] if place.live and not given else []
        if waits and place.asked is not None and place.asked != await self.history.asked(key):
            return None
        if any(item.kind != "clarification" for item in waits):
            return ChatTurn(asked, key, place.thread, None)
        if waits and place.asked is not None:
            given = InterruptAnswer(waits[0].id, "resolved", {"answer": asked.text})
        if not given:
            return None
        after = (await self.documents.row(key)).events
        try:
            await self.answering.answer(key, [given], actor, caller)
        except ConflictError:
            if not waits:
                raise
            return None  # another client answered the question just now
        await self.answers.keep(key, asked.sending.idempotency)
        return replace(await self._following(asked, key, place.thread, after), decided=True)


def _request(asked: ChatRequest, place: ChatPlace) -> RunRequest:
    agent = None if asked.model == MAIN_MODEL else asked.model
    config = RunConfig(agent=agent, instructions=asked.instructions)
    return RunRequest(asked.text, place.thread, config=config, branch=place.branch, at=place.at)
