"""Those who order: in the foreground or the background, again after every cut until they know, and read to the end."""

import asyncio
from dataclasses import dataclass, field
from time import monotonic, time
from typing import Any

from tests.chaos.books import Accepted, Reading
from tests.chaos.desk import LOST, PAUSE_SECONDS, Desk
from tests.chaos.orders import QUESTION, TILL, Call, Order, OrderBook, Task
from tests.support.sse import read_events

_THREADS = 4
_CANCELLED, _READ_TWICE, _SENT_AGAIN, _IMPATIENT, _POOR = 0.1, 0.3, 0.1, 0.08, 0.1  # shares of the requests


@dataclass(slots=True)
class _Asking:
    """A request, and what its caller knows of it."""

    order: Order
    body: dict[str, Any]
    headers: dict[str, str]
    reading: Reading
    refused: bool = False
    since: float = field(default_factory=time)

    @property
    def settled(self) -> bool:
        return self.refused or bool(self.reading.run_id)


@dataclass(frozen=True, slots=True)
class Callers:
    """One tenant's callers, each with one request at a time."""

    desk: Desk
    count: int = 1

    async def call(self, enough: asyncio.Event) -> None:
        """Send orders until it is enough, then come to an end with those that were sent."""
        orders = OrderBook(self.desk.tenant, self.desk.dice)
        async with asyncio.TaskGroup() as group:
            for _ in range(self.count):
                group.create_task(self._keep_asking(orders, enough))

    async def ask_once_more(self) -> None:
        """Send a last order, now that all is whole and switched on: it has to succeed."""
        order = Order(f"{self.desk.tenant}-last", "read", [Task("t1", TILL, [Call("read_it")])])
        body = {"input": order.text, "thread_id": f"of {order.token}", "correlation_id": order.token}
        asking = _Asking(order, body, {"Idempotency-Key": order.token}, Reading("", "who asked last"))
        while not asking.settled:
            await self._begin(asking)
        await self.read(asking.reading)
        told = asking.reading.events[-1].data
        if told["status"] != "succeeded":
            self.desk.books.wrong("what has healed works", str(told), asking.reading.run_id)

    async def _keep_asking(self, orders: OrderBook, enough: asyncio.Event) -> None:
        while not enough.is_set():
            await self._ask(orders.next())
            await asyncio.sleep(self.desk.dice.uniform(0.0, 0.3))

    async def _ask(self, order: Order) -> None:
        """Send an order, under the same key until it is known what became of it, and read to its end."""
        asking = self._request_for(order)
        in_background = self.desk.dice.random() < 0.5
        with self.desk.books.sending(asking.since):
            while not asking.settled:
                await (self._begin(asking) if in_background else self._stream(asking))
        if asking.refused:
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(self.read(asking.reading))
            for share, task in (
                (_READ_TWICE, self._read_again(asking)),
                (_CANCELLED, self._cancel(asking.reading.run_id)),
                (_SENT_AGAIN, self._send_again(asking)),
            ):
                if self.desk.dice.random() < share:
                    group.create_task(task)
                else:
                    task.close()

    def _request_for(self, order: Order) -> _Asking:
        number = self.desk.dice.randint(1, _THREADS)
        # a message on a thread that asks is the answer: such orders have threads of their own
        thread_id = f"of {order.token}" if order.shape == QUESTION else f"thread-{number}"
        body: dict[str, Any] = {"input": order.text, "thread_id": thread_id, "correlation_id": order.token}
        if self.desk.dice.random() < _IMPATIENT:
            body["multitask_strategy"] = self.desk.dice.choice(["reject", "interrupt"])
        if self.desk.dice.random() < _POOR:
            body["config"] = {"limits": {"tokens": 40}}
        reading = Reading("", f"the caller of {order.token}")
        return _Asking(order, body, {"Idempotency-Key": f"key-{order.token}"}, reading)

    async def _send_again(self, asking: _Asking) -> None:
        with self.desk.books.sending(asking.since):
            await self._begin(asking)

    async def _begin(self, asking: _Asking) -> None:
        """Ask in the background."""
        asked = monotonic()
        status, told = await self.desk.asked("POST", "/v1/runs", json=asking.body, headers=asking.headers)
        if status == 202:
            self._enter(asking, told["run_id"])
            self.desk.books.saw(told["run_id"], told["status"], asked)
        asking.refused = status == 409 and not asking.reading.run_id
        if status == 0:
            await asyncio.sleep(PAUSE_SECONDS)

    async def _stream(self, asking: _Asking) -> None:
        """Ask and read along, as long as the connection holds."""
        try:
            streamed = self.desk.streamed("POST", "/v1/agent/run", asking.headers, json=asking.body)
            async with streamed as response:
                asking.refused = response is not None and response.status == 409
                if response is not None and response.status == 200:
                    async for event in read_events(response):
                        self._enter(asking, asking.reading.run_id or event.data["run_id"])
                        self.desk.books.heard(asking.reading, event)
        except LOST:
            pass
        await asyncio.sleep(0.0 if asking.settled else PAUSE_SECONDS)

    def _enter(self, asking: _Asking, run_id: str) -> None:
        asking.reading.run_id = asking.reading.run_id or run_id
        thread_id = asking.body["thread_id"]
        self.desk.books.accept(Accepted(run_id, self.desk.tenant, thread_id, asking.order))

    async def read(self, reading: Reading) -> None:
        """Read a run to its end, at any API and as often as it takes."""
        self.desk.books.readings.append(reading)
        while not reading.done:
            try:
                await self._read_on(reading)
            except LOST:
                await asyncio.sleep(PAUSE_SECONDS)

    async def _read_on(self, reading: Reading) -> None:
        reading.connections += 1
        headers = {"Last-Event-ID": str(reading.last)}
        async with self.desk.streamed("GET", f"/v1/runs/{reading.run_id}/events", headers) as response:
            if response is not None and response.status == 200:
                async for event in read_events(response):
                    self.desk.books.heard(reading, event)
                return
            if response is not None and response.status == 404:
                self.desk.books.wrong("an accepted run is there", f"{reading.who} was told 404", reading.run_id)
        await asyncio.sleep(PAUSE_SECONDS)

    async def _read_again(self, asking: _Asking) -> None:
        """Read from the start, somewhat later."""
        await asyncio.sleep(self.desk.dice.uniform(0.0, 1.0))
        await self.read(Reading(asking.reading.run_id, f"a second reader of {asking.order.token}"))

    async def _cancel(self, run_id: str) -> None:
        """Cancel a run after a while, and be sure of it."""
        await asyncio.sleep(self.desk.dice.uniform(0.0, 2.0))
        status = 0
        while not status:
            asked = monotonic()
            status, told = await self.desk.asked("POST", f"/v1/runs/{run_id}/cancel")
            if status in (200, 202):
                self.desk.books.saw(run_id, told["status"], asked)
            else:
                await asyncio.sleep(PAUSE_SECONDS)
