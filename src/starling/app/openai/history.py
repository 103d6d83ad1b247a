"""Where a conversation goes on of which the client sends all messages each time."""

import asyncio
import logging
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from starling.app.openai.answers import ChatAnswer
from starling.app.openai.requests import ChatRequest
from starling.app.threads import ThreadService
from starling.core.conversation.openai_messages import AssistantMessage, ChatMessage
from starling.core.conversation.states import WaitingState
from starling.core.conversation.turn import PlacedState, states_of
from starling.core.errors import DatabaseUnavailableError, InvalidRequestError, NotFoundError
from starling.core.ids import new_id
from starling.core.json import digest, storable_text
from starling.core.principal import Principal
from starling.core.runs import RunStatus
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.chat_answers import ChatAnswerRepository, ChatPlace
from starling.infra.postgres.runs.threads import Branch

_DISCARD_SECONDS: Final = 1.0  # that a refusal waits for what was made for its request to be deleted
_log = logging.getLogger(__name__)

# Reasoning that clients put before an answer, and some send back with it.
_REASONING: Final = re.compile(r'\s*<(think|thinking|details(?= type="reasoning"))\b[^<>]*>.*?</\1>', re.DOTALL)
# A decision with its code, which is for the client alone.
_DECISION: Final = re.compile(r"\b(approve|reject|done|not_done|give_up) [0-9A-F]{10}\b")


class PreviousResponseNotFoundError(InvalidRequestError):
    """There is no response with the id of `previous_response_id`."""

    code = "previous_response_not_found"


@dataclass(frozen=True, slots=True)
class ChatHistory:
    """Finds the places of requests, and stores what later ones are found by."""

    answers: ChatAnswerRepository
    threads: ThreadService

    async def place(self, caller: Principal, asked: ChatRequest) -> ChatPlace:
        """Return where a request goes; messages that are known nowhere begin a thread.

        Raises PreviousResponseNotFoundError.
        """
        if asked.previous is not None:
            if asked.previous and (found := await self.answers.place(caller.tenant, run=asked.previous)):
                return found
            raise PreviousResponseNotFoundError("`previous_response_id` names no response.", "Leave it out.")
        if asked.thread:
            return await self._named(caller.tenant, asked.thread, asked.before)
        if not asked.before:
            return ChatPlace()
        found = await self.answers.place(caller.tenant, answer_hash=_hash(caller, asked, asked.before))
        return found or _begun("", asked.before)

    async def make(self, tenant: str, place: ChatPlace) -> tuple[ChatPlace, Branch | None]:
        """Begin the thread of a place, or a branch where the conversation goes on there already.

        Return the place, and the branch that was made for it.
        """
        if place.imported:
            begun = replace(place, thread=place.thread or f"chat-{new_id()}")
            return begun, await self.threads.begin(tenant, begun.thread, begun.imported)
        tip = (await self.threads.reader.show(tenant, place.thread)).named(place.branch).tip
        at = tip if place.at is None else place.at
        # the states of a run that goes on are stored once it ends
        states = (await self._states(RunKey(tenant, place.run)))[: at - tip] if at > tip else ()
        branch = await self.threads.changes.fork(tenant, place.thread, place.branch, min(at, tip), None, states)
        return replace(place, branch=branch.id, at=at), branch

    async def discard(self, tenant: str, thread: str, made: Branch) -> None:
        """Delete a branch that was made for a request; where Postgres doesn't do so at once it stays, unused."""
        with suppress(DatabaseUnavailableError, TimeoutError):
            async with asyncio.timeout(_DISCARD_SECONDS):
                await self.threads.changes.discard(tenant, thread, made.id, made.tip)

    async def asked(self, run: RunKey) -> int | None:
        """Return how many states a run has up to what it asked last; those do not change any more."""
        states = [one.state for one in await self._states(run)]
        waits = (number for number, state in enumerate(states, 1) if isinstance(state, WaitingState) and state.deadline)
        return max(waits, default=None)

    async def remember(self, caller: Principal, asked: ChatRequest, run: RunKey, answer: ChatAnswer) -> None:
        """Have the next request found that has the messages of this one and its answer.

        A request that says itself where it goes needs no such row.
        """
        if asked.thread or asked.previous is not None:
            return
        messages = [*asked.before, *asked.said, AssistantMessage(role="assistant", content=answer.text)]
        try:
            position = await self.asked(run) if answer.status is RunStatus.WAITING else None
            await self.answers.store(run, _hash(caller, asked, messages), position)
        except DatabaseUnavailableError as error:
            _log.info("what follows the answer of run %s will begin a thread of its own: %s", run.id, error)

    async def _named(self, tenant: str, thread: str, before: Sequence[ChatMessage]) -> ChatPlace:
        try:
            found = await self.threads.reader.show(tenant, thread)
        except NotFoundError:
            return _begun(thread, before) if before else ChatPlace(thread)
        if run := found.named(None).live_run:
            return ChatPlace(thread, run=run, live=True)
        is_empty = not any(branch.tip or branch.runs for branch in found.branches)
        return _begun(thread, before) if before and is_empty else ChatPlace(thread)

    async def _states(self, run: RunKey) -> Sequence[PlacedState]:
        return states_of(await self.threads.documents.read(run, ("tasks",)))


def _begun(thread: str, messages: Sequence[ChatMessage]) -> ChatPlace:
    said = [
        message.model_copy(update={"content": _DECISION.sub(r"\1 ***", message.text)})
        for message in messages
        if message.text.strip()
    ]
    return ChatPlace(thread, imported=said)


def _hash(caller: Principal, asked: ChatRequest, messages: Sequence[ChatMessage]) -> str:
    said = [
        [message.role, _answer_text(message.text) if message.role == "assistant" else _stripped(message.text)]
        for message in messages
        if message.text.strip()
    ]
    return digest([caller.tenant, caller.maker, asked.user, asked.model, said])


def _stripped(text: str) -> str:
    return storable_text(text).replace("\r\n", "\n").strip()


def _answer_text(text: str) -> str:
    """Return a message of the assistant without what clients drop or add when they send it back."""
    begin = 0
    while found := _REASONING.match(text, begin):
        begin = found.end()
    return _stripped(text[begin:])
