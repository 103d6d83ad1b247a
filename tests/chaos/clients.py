"""Clients that send requests, streamed or in the background, retry after every failure and read each run to its end."""

import asyncio
import random
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from time import monotonic, time
from typing import Any
from uuid import UUID

from aiohttp import ClientTimeout

from tests.chaos.api_client import LOST, PAUSE_SECONDS, ApiClient
from tests.chaos.approvers import Approver
from tests.chaos.builds import BuildGenerator, BuildWish
from tests.chaos.client_history import Accepted, ClientHistory, Reading
from tests.chaos.cluster import TENANTS, Cluster
from tests.chaos.workload import CLERKS, DESK, TILL, Call, PlannedRequest, RequestGenerator, Task, single_call
from tests.support.sse import read_events

_THREADS = 4
_READ = Call("read_it")
_EVERYBODY = (  # an agent, a member of a team, and one of the team inside it
    Task("t1", TILL, [_READ]),
    Task(
        "t2",
        DESK,
        members=[Task("t1", "cashier", [_READ]), Task("t2", CLERKS, members=[Task("t1", "keeper", [_READ])])],
    ),
)
_CANCELLED, _READ_TWICE, _SENT_AGAIN, _IMPATIENT, _POOR = 0.1, 0.3, 0.1, 0.08, 0.1  # fractions of the requests
_BUILDS = 0.2
_DOORS = 0.3  # fraction of the others that OpenAI's clients send, or other services as single calls
_RETRIES = "x-stainless-retry-count"  # which OpenAI's clients send; they have no idempotency key
_LAST_TEAM = "last_crew"
_NOT_POSSIBLE = (404, 409)  # there is no such team, or another run builds it


@dataclass(slots=True)
class _Asking:
    """A request and what its client knows about it."""

    planned: PlannedRequest
    body: dict[str, Any]
    headers: dict[str, str]
    reading: Reading
    text: str | None
    path: str = "/v1/runs"
    refused: bool = False
    key_id: str = ""
    since: float = field(default_factory=time)

    @property
    def settled(self) -> bool:
        return self.refused or bool(self.reading.run_id)


@dataclass(frozen=True, slots=True)
class Clients:
    """Clients of one tenant, each with one request at a time."""

    api: ApiClient
    count: int = 1

    async def call(self, stop: asyncio.Event) -> None:
        """Send requests until `stop` is set, then finish those that were sent."""
        requests = RequestGenerator(self.api.tenant, self.api.rng)
        builds = BuildGenerator(self.api.tenant, self.api.rng)
        async with asyncio.TaskGroup() as group:
            for _ in range(self.count):
                group.create_task(self._send_requests(requests, builds, stop))

    async def send_final_request(self) -> None:
        """Build a last team after all faults have ended, and send a last request, also for it: both have to succeed."""
        members = [Task("t1", "till_member", [_READ])]
        goal = PlannedRequest(f"{self.api.tenant}-last-build", "build", members)
        await self._send_last(goal, {"goal": goal.text, "name": _LAST_TEAM, "partial": True}, "/v1/teams")
        use = Task("t3", _LAST_TEAM, members=members, shape="team")
        planned = PlannedRequest(f"{self.api.tenant}-last", "everybody", [*_EVERYBODY, use])
        body = {"input": planned.text, "thread_id": f"of {planned.token}", "correlation_id": planned.token}
        told = await self._send_last(planned, body)
        if not any(event.type == "task_start" and event.data["agent"] == _LAST_TEAM for event in told.events):
            self.api.history.add_violation("a built team works", "it was given no task", told.run_id)

    async def _send_last(self, planned: PlannedRequest, body: dict[str, Any], path: str = "/v1/runs") -> Reading:
        headers = {"Idempotency-Key": planned.token}
        asking = _Asking(planned, body, headers, Reading("", "who asked last"), planned.text, path)
        while not asking.settled:
            await self._send_in_background(asking)
        await self.read(asking.reading)
        told = asking.reading.events[-1].data
        if told["status"] != "succeeded":
            self.api.history.add_violation("what has healed works", str(told), asking.reading.run_id)
        return asking.reading

    async def _send_requests(self, requests: RequestGenerator, builds: BuildGenerator, stop: asyncio.Event) -> None:
        while not stop.is_set():
            if self.api.rng.random() < _BUILDS:
                await self._send_and_read(self._build_for(builds.next()), in_background=True)
            elif self.api.rng.random() < _DOORS:
                await self._send_and_read(self._request_at_door(requests.next()), in_background=True)
            else:
                await self._send_and_read(self._request_for(requests.next()), self.api.rng.random() < 0.5)
            await asyncio.sleep(self.api.rng.uniform(0.0, 0.3))

    async def _send_and_read(self, asking: _Asking, in_background: bool) -> None:
        """Send a request, retry it under the same key until its outcome is known, and read the run to its end."""
        with self.api.history.pending_request(asking.since):
            while not asking.settled:
                await (self._send_in_background(asking) if in_background else self._stream(asking))
        if asking.refused:
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(self.read(asking.reading))
            for share, task in (
                (_READ_TWICE, self._read_again(asking)),
                (_CANCELLED, self._cancel(asking.reading.run_id)),
                (_SENT_AGAIN, self._send_again(asking)),
            ):
                if self.api.rng.random() < share:
                    group.create_task(task)
                else:
                    task.close()

    def _request_for(self, planned: PlannedRequest) -> _Asking:
        number = self.api.rng.randint(1, _THREADS)
        # a message on a thread with an open question is its answer, so these requests have threads of their own
        thread_id = f"of {planned.token}" if planned.asks else f"thread-{number}"
        body: dict[str, Any] = {"input": planned.text, "thread_id": thread_id, "correlation_id": planned.token}
        if self.api.rng.random() < _IMPATIENT:
            body["multitask_strategy"] = self.api.rng.choice(["reject", "interrupt"])
        if self.api.rng.random() < _POOR:
            body["config"] = {"limits": {"tokens": 40}}
        reading = Reading("", f"the caller of {planned.token}")
        return _Asking(planned, body, {"Idempotency-Key": f"key-{planned.token}"}, reading, planned.text)

    def _request_at_door(self, planned: PlannedRequest) -> _Asking:
        reading, headers = Reading("", f"the caller of {planned.token}"), {_RETRIES: "0"}
        match self.api.rng.choice(["chat", "response", "call"]):
            case "chat":
                body: dict[str, Any] = {"model": "starling", "messages": [{"role": "user", "content": planned.text}]}
                return _Asking(planned, body, headers, reading, planned.text, "/v1/chat/completions")
            case "response":
                body = {"model": "starling", "input": planned.text, "background": self.api.rng.random() < 0.5}
                return _Asking(planned, body, headers, reading, planned.text, "/v1/responses")
            case _:
                tool, arguments = single_call(planned, self.api.rng)
                body = {"tool_name": tool, "arguments": arguments, "timeout": self.api.rng.choice([1, 30])}
                headers = {"Idempotency-Key": f"key-{planned.token}"}
                return _Asking(planned, body, headers, reading, None, "/execute")

    def _build_for(self, wish: BuildWish) -> _Asking:
        token = wish.planned.token
        reading = Reading("", f"the caller of {token}")
        return _Asking(wish.planned, {**wish.body}, {"Idempotency-Key": f"key-{token}"}, reading, wish.text, wish.path)

    async def _send_again(self, asking: _Asking) -> None:
        with self.api.history.pending_request(asking.since):
            await self._send_in_background(asking)

    async def _send_in_background(self, asking: _Asking) -> None:
        """Start a background run, or one whose answer is waited for. An SDK repeats nothing with another key."""
        key = self.api.cluster.keys[self.api.tenant].id
        asking.key_id = asking.key_id or key
        if _RETRIES in asking.headers and asking.key_id != key:
            asking.refused = not asking.reading.run_id
            return
        asked = monotonic()
        patience = {"timeout": ClientTimeout(self.api.rng.choice([2, 30]))} if _RETRIES in asking.headers else {}
        status, told = await self.api.request("POST", asking.path, json=asking.body, headers=asking.headers, **patience)
        if status == 202:
            self._enter(asking, told["run_id"], told["thread_id"])
            self.api.history.record_status(told["run_id"], told["status"], asked)
        if status == 200:
            self._enter(asking, told.get("run_id") or str(UUID(told["id"][-32:])), "")
        if _RETRIES in asking.headers:
            asking.headers[_RETRIES] = "1"
        asking.refused = status in _NOT_POSSIBLE and not asking.reading.run_id
        if status == 0:
            await asyncio.sleep(PAUSE_SECONDS)

    async def _stream(self, asking: _Asking) -> None:
        """Start a streamed run and read it while the connection lasts."""
        try:
            streamed = self.api.stream("POST", "/v1/agent/run", asking.headers, json=asking.body)
            async with streamed as response:
                asking.refused = response is not None and response.status == 409
                if response is not None and response.status == 200:
                    async for event in read_events(response):
                        self._enter(asking, asking.reading.run_id or event.data["run_id"], asking.body["thread_id"])
                        self.api.history.record_event(asking.reading, event)
        except LOST:
            pass
        await asyncio.sleep(0.0 if asking.settled else PAUSE_SECONDS)

    def _enter(self, asking: _Asking, run_id: str, thread_id: str) -> None:
        asking.reading.run_id = asking.reading.run_id or run_id
        accepted = Accepted(run_id, self.api.tenant, thread_id, asking.planned, asking.text, asking.path)
        self.api.history.accept(accepted)

    async def read(self, reading: Reading) -> None:
        """Read a run to its end at any API, reconnecting as often as necessary."""
        self.api.history.readings.append(reading)
        while not reading.done:
            try:
                await self._read_on(reading)
            except LOST:
                await asyncio.sleep(PAUSE_SECONDS)

    async def _read_on(self, reading: Reading) -> None:
        reading.connections += 1
        headers = {"Last-Event-ID": str(reading.last)}
        async with self.api.stream("GET", f"/v1/runs/{reading.run_id}/events", headers) as response:
            if response is not None and response.status == 200:
                reading.resumed += reading.last > 0
                async for event in read_events(response):
                    self.api.history.record_event(reading, event)
                return
            if response is not None and response.status == 404:
                self.api.history.add_violation(
                    "an accepted run is there", f"{reading.who} was told 404", reading.run_id
                )
        await asyncio.sleep(PAUSE_SECONDS)

    async def _read_again(self, asking: _Asking) -> None:
        """Read the run from its start with a second reader, after a delay."""
        await asyncio.sleep(self.api.rng.uniform(0.0, 1.0))
        await self.read(Reading(asking.reading.run_id, f"a second reader of {asking.planned.token}"))

    async def _cancel(self, run_id: str) -> None:
        """Cancel a run after a delay, and retry until the API has confirmed it."""
        await asyncio.sleep(self.api.rng.uniform(0.0, 2.0))
        status = 0
        while not status:
            asked = monotonic()
            status, told = await self.api.request("POST", f"/v1/runs/{run_id}/cancel")
            if status in (200, 202):
                self.api.history.record_status(run_id, told["status"], asked)
            else:
                await asyncio.sleep(PAUSE_SECONDS)


async def keep_busy(cluster: Cluster, history: ClientHistory, callers: int, stop: asyncio.Event) -> None:
    """Send requests of both tenants and answer what their runs ask, until `stop` is set and all of them have ended."""
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(ApiClient.of(cluster, history, tenant, random.Random(tenant)))
            for tenant in TENANTS
        ]
        group = await stack.enter_async_context(asyncio.TaskGroup())
        answering = [group.create_task(Approver(api).answer()) for api in clients]
        await asyncio.gather(*(Clients(api, callers).call(stop) for api in clients))
        for task in answering:
            task.cancel()
