"""Where a conversation goes on of which the client sends all messages each time."""

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from starling.app.openai.requests import ChatRequest
from starling.app.threads import ThreadService
from starling.core.conversation.openai_messages import AssistantMessage, ChatMessage
from starling.core.errors import DatabaseUnavailableError, InvalidRequestError, NotFoundError
from starling.core.ids import new_id
from starling.core.json import digest, storable_text
from starling.core.principal import Principal
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.chat_answers import ChatAnswerRepository, RunPlace

_log = logging.getLogger(__name__)

# Reasoning that clients put before an answer, and some send back with it.
_REASONING: Final = re.compile(r'\s*<(think|thinking|details(?= type="reasoning"))\b[^<>]*>.*?</\1>', re.DOTALL)


class PreviousResponseNotFoundError(InvalidRequestError):
    """There is no response with the id of `previous_response_id`."""

    code = "previous_response_not_found"


@dataclass(frozen=True, slots=True)
class ChatPlace:
    """Where a request goes: without a thread, to one of its own; without a branch, to the current one of the thread.

    `at` is the position that it follows. `run` gave the last answer there, or goes on there if `live`.
    """

    thread: str = ""
    branch: str | None = None
    at: int | None = None
    run: RunKey | None = None
    live: bool = False


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
            found = await self.answers.place_of_run(RunKey(caller.tenant, asked.previous)) if asked.previous else None
            if found is None:
                raise PreviousResponseNotFoundError("`previous_response_id` names no response.", "Leave it out.")
            return await self._after(caller.tenant, found)
        if asked.thread:
            return await self._named(caller.tenant, asked.thread, asked.before)
        if not asked.before:
            return ChatPlace()
        if found := await self.answers.place_of_answer(caller.tenant, _hash(caller, asked, asked.before)):
            return await self._after(caller.tenant, found, asked.before[-1].text)
        return await self._begun(caller.tenant, f"chat-{new_id()}", asked.before)

    async def fork(self, tenant: str, place: ChatPlace) -> ChatPlace:
        """Begin a branch where a place is, because the conversation goes on there already."""
        branch = await self.threads.changes.fork(tenant, place.thread, place.branch, place.at, None)
        return replace(place, branch=branch.id)

    async def remember(self, caller: Principal, asked: ChatRequest, run: RunKey, answer: str) -> None:
        """Have the next request found that has the messages of this one and its answer.

        A request that says itself where it goes needs no such row.
        """
        if asked.thread or asked.previous is not None:
            return
        messages = [*asked.before, *asked.said, AssistantMessage(role="assistant", content=answer)]
        try:
            await self.answers.store(run, _hash(caller, asked, messages))
        except DatabaseUnavailableError as error:
            _log.warning("what follows the answer of run %s will begin a thread of its own: %s", run.id, error)

    async def _named(self, tenant: str, thread: str, before: Sequence[ChatMessage]) -> ChatPlace:
        try:
            found = await self.threads.reader.show(tenant, thread)
        except NotFoundError:
            return await self._begun(tenant, thread, before) if before else ChatPlace(thread)
        if run := found.named(None).live_run:
            return ChatPlace(thread, run=RunKey(tenant, run), live=True)
        is_empty = not any(branch.tip or branch.runs for branch in found.branches)
        return await self._begun(tenant, thread, before) if before and is_empty else ChatPlace(thread)

    async def _begun(self, tenant: str, thread: str, messages: Sequence[ChatMessage]) -> ChatPlace:
        if said := [message for message in messages if message.text.strip()]:
            await self.threads.begin(tenant, thread, said)
        return ChatPlace(thread)

    async def _after(self, tenant: str, found: RunPlace, text: str | None = None) -> ChatPlace:
        """Return the place after a run, or after the question of it that the text is."""
        run = RunKey(tenant, found.run_id)
        if not found.status.terminal:
            return ChatPlace(found.thread, found.branch, run=run, live=True)
        at = found.end
        if text is not None and _answer_text(text) != _answer_text(found.reply or ""):
            at = await self._question(tenant, found, _answer_text(text)) or at
        place = ChatPlace(found.thread, found.branch, at, run)
        return await self.fork(tenant, place) if found.hidden else place

    async def _question(self, tenant: str, found: RunPlace, text: str) -> int | None:
        """Return the position of the wait that a question of a run began, None where the text is none of them."""
        thread = await self.threads.reader.show(tenant, found.thread)
        line = self.threads.reader.states(
            tenant, thread, thread.named(found.branch), after=(found.begin or 1) - 1, now=0.0
        )
        at: int | None = None
        async for view in line:
            if view.position - 1 == at and view.t == "WaitingState":
                return view.position
            if view.t == "AssistantMessageState" and _answer_text(str(view.data.get("content", ""))) == text:
                at = view.position
        return at


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
