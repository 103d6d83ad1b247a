"""A thread of CrewAI that asks for something when nobody can do it any more is stopped, and waits for nothing."""

import asyncio
import gc
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Semaphore

import pytest

from brain.agents.runtimes.crew import bridge as crew_bridge
from brain.agents.runtimes.crew.bridge import CrewBridge, CrewStoppedError
from brain.agents.runtimes.crew.conversation import CrewConversation, CrewTask
from brain.agents.tools.toolbox import Toolbox
from brain.agents.turn.agent_runtime import TaskExecution
from tests.support.runtime_harness import RuntimeHarness, dispatch, tool_access


def conversation() -> CrewConversation:
    harness = RuntimeHarness("crewai")
    access = tool_access(harness.gateway)
    execution = TaskExecution(harness.begin().context, harness.card, dispatch(), "t1")
    task = CrewTask("Buyer", "Buy.", "", "order tea", iterations=1, has_tools=False)
    return CrewConversation(access, execution, Toolbox.of(()), task)


async def test_attempt_that_has_ended_begins_nothing() -> None:
    async with asyncio.TaskGroup() as group:
        bridge = CrewBridge(conversation(), asyncio.get_running_loop(), group, Semaphore())

    with pytest.raises(CrewStoppedError):
        await asyncio.to_thread(bridge.ask, [], with_tools=False)
    assert bridge.conversation.execution.position == 0


def test_closed_loop_stops_the_thread() -> None:
    async def bridged() -> CrewBridge:
        async with asyncio.TaskGroup() as group:
            return CrewBridge(conversation(), asyncio.get_running_loop(), group, Semaphore())

    bridge = asyncio.run(bridged())

    with pytest.raises(CrewStoppedError):
        bridge.ask([], with_tools=False)


def test_loop_that_is_closed_before_it_begins_what_was_asked_for_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(crew_bridge, "_POLL_SECONDS", 0.01)
    loop, asked = asyncio.new_event_loop(), Event()
    bridge = CrewBridge(conversation(), loop, asyncio.TaskGroup(), _Turns(asked))

    with ThreadPoolExecutor(1) as thread:
        answer = thread.submit(bridge.ask, [], with_tools=False)
        asked.wait()
        loop.close()

    assert isinstance(answer.exception(), CrewStoppedError)
    del answer, bridge
    gc.collect()  # warns of what was never awaited


class _Turns(Semaphore):
    """Tells when one is given back: the thread waits for its answer then."""

    def __init__(self, given: Event) -> None:
        super().__init__()
        self._given = given

    def release(self, n: int = 1) -> None:
        super().release(n)
        self._given.set()
