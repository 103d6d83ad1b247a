"""The runtime `crewai`: attempts in threads of their own, each with its own event loop."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context, copy_context
from dataclasses import dataclass
from importlib.util import find_spec
from threading import Semaphore
from typing import Final

from brain.agents.runtimes.crew.bridge import CrewBridge
from brain.agents.runtimes.crew.conversation import CrewConversation, crew_task
from brain.agents.runtimes.crew.environment import crewai_runtime
from brain.agents.tools.tool_calling import ToolAccess, first_error
from brain.agents.tools.toolbox import Toolbox
from brain.agents.turn.agent_runtime import AttemptOutput, TaskExecution
from brain.interrupts.budget import OUT_OF_TIME, RunBudget
from brain.run.recorder import emit_text
from starling.core.errors import DeadlineExceededError, RuntimeFailedError, StarlingError
from starling.core.tools import FIND_TOOLS

_PACKAGE: Final = "crewai"
_BEGIN_SECONDS: Final = 1.0  # in which a free thread begins for certain
_TURNS: Final = 2  # more threads that compute don't compute more, but an event loop waits for each of them


def is_installed() -> bool:
    """Whether the extra `crewai` is installed. Imports nothing."""
    return find_spec(_PACKAGE) is not None


@dataclass(frozen=True, slots=True)
class CrewAIRuntime:
    """An agent of CrewAI that has our models and tools.

    An attempt has a thread from its begin to its end. Those for which none of `threads` is free wait. CrewAI needs up
    to two more threads for each; none of them is shared, so that attempts never wait for each other's.
    """

    access: ToolAccess
    threads: ThreadPoolExecutor
    turns: Semaphore
    starter: ThreadPoolExecutor  # one thread: starting a thread waits for it, which an event loop must not do

    @classmethod
    def with_threads(cls, access: ToolAccess, crews: int = 32) -> "CrewAIRuntime":
        """Return a runtime that executes so many agents at a time; their threads start when they are needed."""
        threads = ThreadPoolExecutor(crews, thread_name_prefix="crew")
        return cls(access, threads, Semaphore(_TURNS), ThreadPoolExecutor(1, thread_name_prefix="crew_starter"))

    async def attempt(self, execution: TaskExecution) -> AttemptOutput:
        """Make one attempt. Raises what the port says, and RuntimeFailedError for a failure inside CrewAI."""
        if self.access.tool_finder is not None:
            await self.access.tool_finder.choose(execution)
        reserved = () if execution.shown is None else (FIND_TOOLS,)
        toolbox = Toolbox.of(execution.card.tools, reserved=reserved)
        conversation = CrewConversation(self.access, execution, toolbox, crew_task(execution))
        failure: BaseException | None = None
        try:
            async with asyncio.TaskGroup() as group:
                bridge = CrewBridge(conversation, asyncio.get_running_loop(), group, self.turns)
                failure = await self._executed(bridge, execution.context.budget)
        except* StarlingError as errors:
            raise first_error(errors) from None
        if failure is not None:
            raise RuntimeFailedError(execution.path, execution.runtime, repr(failure)) from failure
        produced = conversation.output
        if execution.dispatch["whole_plan"] and not produced.uses and not produced.unable:  # it is the run's reply then
            emit_text(execution.context.recorder, execution.message_id, produced.output)
        return produced

    async def _executed(self, bridge: CrewBridge, budget: RunBudget) -> BaseException | None:
        """Return what failed inside CrewAI, None if nothing did.

        Raises DeadlineExceededError where no thread was free until the deadline; from then on the bridge heeds it.
        """
        loop, context = asyncio.get_running_loop(), copy_context()
        submitted = await loop.run_in_executor(self.starter, lambda: self.threads.submit(_execute, context, bridge))
        ended = asyncio.wrap_future(submitted)
        try:
            await asyncio.wait([ended], timeout=max(budget.deadline.remaining(), _BEGIN_SECONDS))
            if submitted.cancel():  # it has not begun
                raise DeadlineExceededError(budget.exhausted_reason or OUT_OF_TIME)
            await asyncio.wait([ended])
        finally:
            ended.cancel()  # else the bridge ends it
        return ended.exception()


def _execute(context: Context, bridge: CrewBridge) -> None:
    crewai = crewai_runtime()
    with bridge.turns:
        context.run(crewai.execute, bridge.conversation.task, bridge)
