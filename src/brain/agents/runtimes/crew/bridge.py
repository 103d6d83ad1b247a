"""What connects an attempt on the worker's event loop with the threads in which CrewAI executes it."""

import asyncio
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from functools import partial
from threading import Lock, Semaphore
from typing import Any, Final

from brain.agents.runtimes.crew.conversation import CallHandle, CrewConversation
from starling.core.llm import Message

_POLL_SECONDS: Final = 5.0


class CrewStoppedError(BaseException):
    """Ends an attempt inside CrewAI, which turns any other exception into text, or asks the model again."""


@dataclass(slots=True)
class CrewBridge:
    """Carries what CrewAI asks for to the event loop, where all of it is done in tasks of `group`.

    The methods without a leading underscore are for the threads of CrewAI. They raise CrewStoppedError once the attempt
    has failed, was suspended or was cancelled; nothing that is asked for later is begun. `turns` limits how many
    attempts compute at the same time: one that waits for an answer or for calls gives its turn to another one.
    """

    conversation: CrewConversation
    loop: asyncio.AbstractEventLoop
    group: asyncio.TaskGroup
    turns: Semaphore
    context: Context = field(default_factory=copy_context)  # the spans and log fields of the attempt
    _waiting: int = 0  # threads
    _lock: Lock = field(default_factory=Lock)
    _made: dict[int, Future[None]] = field(default_factory=dict[int, Future[None]])  # the calls of answers

    def ask(self, shown: Sequence[Message], *, with_tools: bool) -> Sequence[CallHandle]:
        """Return the calls that the model's next answer asks for, which have begun then; none if it is in words.

        `shown` are CrewAI's own messages, of which only the first ones are used.
        """
        coroutine = self._ask(shown, with_tools=with_tools)
        future: Future[Sequence[CallHandle]] = Future()
        try:
            self.loop.call_soon_threadsafe(self._begin, coroutine, future, context=self.context.copy())
        except RuntimeError:  # the loop is closed
            coroutine.close()
            raise CrewStoppedError from None
        try:
            return self._awaited(future)
        finally:
            coroutine.close()  # which has ended, or never began: the loop was closed before

    def wait_for(self, handle: str) -> None:
        """Return as soon as the call that has the handle `position.index` is made, and all others of its answer."""
        self._awaited(self._made[int(handle.partition(".")[0])])

    async def _ask(self, shown: Sequence[Message], *, with_tools: bool) -> Sequence[CallHandle]:
        for earlier in self._made.values():
            await asyncio.wrap_future(earlier)  # also if CrewAI doesn't wait for a call
        asked = await self.conversation.ask(shown, with_tools=with_tools)
        if asked is None:
            return ()
        future: Future[None] = Future()
        self._made[asked.batch.position] = future
        self._begin(self.conversation.use(asked), future)
        return asked.handles

    def _awaited[T](self, future: Future[T]) -> T:
        """Wait in a thread for what the loop does; a loop that was closed does nothing more."""
        with self._lock:
            self._waiting += 1
            is_first = self._waiting == 1
        if is_first:
            self.turns.release()
        try:
            while not self.loop.is_closed():
                with suppress(TimeoutError):
                    return future.result(_POLL_SECONDS)
        finally:
            with self._lock:
                self._waiting -= 1
                is_last = self._waiting == 0
            if is_last:
                self.turns.acquire()
        raise CrewStoppedError

    def _begin[T](self, coroutine: Coroutine[Any, Any, T], future: Future[T]) -> None:
        try:
            task = self.group.create_task(coroutine)
        except RuntimeError:  # the attempt has ended, or is ending
            coroutine.close()
            future.set_exception(CrewStoppedError())
        else:
            task.add_done_callback(partial(_settle, future))


def _settle[T](future: Future[T], task: asyncio.Task[T]) -> None:
    """Hand on a result. An error is raised by the task's group; the threads only learn that there is one."""
    if task.cancelled() or task.exception() is not None:
        future.set_exception(CrewStoppedError())
    else:
        future.set_result(task.result())
