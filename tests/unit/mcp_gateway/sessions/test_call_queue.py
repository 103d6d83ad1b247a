"""Calls of a server that wait for their turn: by tenant, then by run."""

import asyncio
from collections.abc import Sequence

import pytest

from mcp_gateway.sessions.call_queue import CallQueues


class Calls:
    """Calls of one server that run until they are ended; `order` has those that began."""

    def __init__(self, most: int) -> None:
        self.queues, self.most = CallQueues(), most
        self.order: list[str] = []
        self.ends: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def ask(self, *names: str) -> None:
        """Make calls, named `tenant/run/number`."""
        for name in names:
            self.ends[name] = asyncio.Event()
            self.tasks[name] = asyncio.create_task(self._call(name))
        await self.settle()

    async def end(self, *names: str) -> None:
        for name in names:
            self.ends[name].set()
            await self.settle()

    async def end_all(self) -> Sequence[str]:
        """End each call once it has begun; return the order in which they began."""
        while running := [name for name, end in self.ends.items() if name in self.order and not end.is_set()]:
            await self.end(running[0])
        return self.order

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    async def _call(self, name: str) -> None:
        tenant, run, _ = name.split("/")
        async with self.queues.turn("shop", self.most, tenant, run):
            self.order.append(name)
            await self.ends[name].wait()


async def test_runs_of_a_tenant_take_turns_however_many_calls_one_of_them_makes() -> None:
    calls = Calls(most=1)
    await calls.ask("a/1/1", "a/1/2", "a/1/3", "a/1/4", "a/2/1", "a/2/2")

    assert await calls.end_all() == ["a/1/1", "a/1/2", "a/2/1", "a/1/3", "a/2/2", "a/1/4"]


async def test_tenants_take_turns_however_many_runs_one_of_them_has() -> None:
    calls = Calls(most=1)
    await calls.ask("a/1/1", "a/2/1", "a/3/1", "a/4/1", "b/1/1", "b/1/2")

    assert await calls.end_all() == ["a/1/1", "a/2/1", "b/1/1", "a/3/1", "b/1/2", "a/4/1"]


async def test_no_more_calls_run_at_once_than_allowed() -> None:
    calls = Calls(most=2)
    await calls.ask("a/1/1", "a/1/2", "a/1/3", "a/1/4")

    assert calls.order == ["a/1/1", "a/1/2"]
    await calls.end("a/1/2")
    assert calls.order == ["a/1/1", "a/1/2", "a/1/3"]
    await calls.end_all()


async def test_cancelled_call_leaves_the_queue() -> None:
    calls = Calls(most=1)
    await calls.ask("a/1/1", "a/1/2", "b/1/1")

    calls.tasks["a/1/2"].cancel()
    await calls.settle()

    assert await calls.end_all() == ["a/1/1", "b/1/1"]


@pytest.mark.parametrize("cancelled", ["before its turn", "after its turn came"])
async def test_call_that_is_cancelled_in_the_moment_of_its_turn_passes_it_on(cancelled: str) -> None:
    calls = Calls(most=1)
    async with calls.queues.turn("shop", 1, "b", "1"):
        await calls.ask("a/1/1", "a/1/2")
        if cancelled == "before its turn":
            calls.tasks["a/1/1"].cancel()
    calls.tasks["a/1/1"].cancel()
    await calls.settle()

    assert await calls.end_all() == ["a/1/2"]


async def test_raised_limit_holds_for_waiting_calls_once_one_ends() -> None:
    calls = Calls(most=1)
    await calls.ask("a/1/1", "a/1/2", "a/1/3")
    calls.most = 3
    await calls.ask("a/1/4")

    await calls.end("a/1/1")

    assert calls.order == ["a/1/1", "a/1/2", "a/1/3", "a/1/4"]
    await calls.end_all()
