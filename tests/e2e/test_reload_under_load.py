"""Twenty runs stream while thirty reloads add, change and remove servers, on two API processes and two workers."""

import asyncio
import random
import re
from collections.abc import AsyncGenerator, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from itertools import cycle
from pathlib import Path
from statistics import median
from time import time
from typing import Any

import aiohttp
import pytest
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine

from mcp_gateway.connections import connect
from mcp_gateway.registration.repository import ServerRepository
from starling.core.settings.schema import Limits
from starling.infra.postgres.tables.run_records import runs
from tests.support.absent_services import open_gateway
from tests.support.command_line import Service, new_workspace
from tests.support.gateway_harness import call, named, wait_for
from tests.support.model_script import Answer, Rule, Script, When
from tests.support.model_server import ModelServer
from tests.support.platform import Workbench, calls, decision, running_workbench, task, verdict
from tests.support.soak import rounds
from tests.support.sse import Event, ask

STEADY, LEAVING = "mcp_agent_steady", "mcp_agent_leaving"
KNOWN = re.compile(r"^starling_known_epoch(|_timestamp_seconds) (\S+)$", re.MULTILINE)
REMOVED_BY = 5  # the reload that takes `leaving` away
SCRIPT = Script(
    Rule(decision(), When(schema="supervisor_decision", contains="leaving was removed")),
    Rule(
        decision(task("t1", STEADY, "stay"), task("t2", STEADY, "look about", ["t1"])),
        When(schema="supervisor_decision", contains="Stay."),
    ),
    Rule(
        decision(task("t1", LEAVING, "stay too long"), task("t2", STEADY, "look about")),
        When(schema="supervisor_decision", contains="Be caught."),
    ),
    Rule(
        decision(task("t1", STEADY, "stay"), task("t2", LEAVING, "look back", ["t1"])),
        When(schema="supervisor_decision", contains="Come late."),
    ),
    Rule(verdict("APPROVED"), When(schema="verdict")),
    Rule(Answer("That is all there is.", hold="the end", hold_after=2), When(contains="You write the final answer")),
    Rule(calls(("wait", {"place": "here"})), When(contains='<task id="t1">')),
    Rule(calls(("look", {"thing": "sky"})), When(contains='<task id="t2">')),
)
OBSERVED: Mapping[str, Sequence[str]] = {  # what their calls of `leaving` come to, the first time
    "Stay.": [],
    "Be caught.": ["The server leaving was removed while it was called."],
    "Come late.": ["The server leaving was removed. The tool was not called."],
}


@dataclass(frozen=True)
class Town:
    """Two API processes and two workers."""

    apis: Sequence[str]
    workers: Sequence[str]
    client: aiohttp.ClientSession

    @cached_property
    def turns(self) -> Iterator[str]:
        """The one API process and the other, in turns."""
        return cycle(self.apis)

    async def reload(self, servers: Mapping[str, Any]) -> int:
        """Reload at one of the API processes; return the epoch that this made."""
        address = f"{next(self.turns)}/v1/registry/reload"
        async with self.client.post(address, json={"mcpServers": servers}) as response:
            report = await response.json()
            assert (response.status, report["warnings"]) == (200, {}), report
            return report["epoch"]

    async def agree_on(self, epoch: int) -> float:
        """Return how many seconds from now it takes until the last of the processes goes by an epoch, as they say.

        An API asks Postgres for each request: it goes by the new epoch at once.
        """
        begun = time()
        assert {*await asyncio.gather(*map(self._asked, self.apis))} == {epoch}
        return max(0.0, *[await self._since(worker, epoch) - begun for worker in self.workers])

    async def _asked(self, api: str) -> int:
        async with self.client.get(f"{api}/ready") as response:
            body = await response.json()
            assert response.status == 200, body
            return body["epoch"]

    async def _since(self, worker: str, epoch: int) -> float:
        """Wait until a worker's tools are those of an epoch; return when that began."""
        async with asyncio.timeout(60):
            while True:
                async with self.client.get(f"{worker}/metrics") as response:
                    found = dict(KNOWN.findall(await response.text()))
                if float(found[""]) == epoch:
                    return float(found["_timestamp_seconds"])


@pytest.fixture
async def model() -> AsyncGenerator[ModelServer]:
    async with ModelServer(SCRIPT) as server:
        yield server


@pytest.fixture
async def town(database_url: str, model: ModelServer) -> AsyncGenerator[Town]:
    """All four, started side by side."""
    variables = {
        "DATABASE_URL": database_url,
        "STARLING_WORKER_PORT": "0",
        **model.variables,
        "STARLING_LIMITS": '{"tool_call_seconds": 200, "model_call_seconds": 200}',
    }
    commands = (("serve", "--port", "0"), ("worker",)) * 2
    with new_workspace(**variables) as workspace, ExitStack() as stack:
        begun = [stack.enter_context(workspace.started(*command, "--json")) for command in commands]
        services = [await asyncio.to_thread(Service.ready, process) for process in begun]
        async with aiohttp.ClientSession(headers=workspace.admin_headers) as client:
            yield Town([api.url for api in services[::2]], [worker.url for worker in services[1::2]], client)


@pytest.fixture
def workbench(tmp_path: Path) -> Generator[Workbench]:
    """The one server behind all names."""
    with running_workbench(tmp_path / "done") as workbench:
        yield workbench


def shapes(workbench: Workbench, reloads: int) -> list[dict[str, Any]]:
    """Return as many documents, each unlike the one before: others come and go, `steady` changes, `leaving` goes."""
    dice = random.Random(0)

    def server(number: int, **options: object) -> dict[str, Any]:
        return {"url": workbench.url, "x-starling": {"effect": "read", "timeout": 200 + number, **options}}

    return [
        {name: server(0, description=f"Ours since {dice.randint(0, 2)}.") for name in dice.sample("abcd", 2)}
        | {"steady": server(number, description=dice.choice(["Ours.", "Theirs."]))}
        | ({"leaving": server(0)} if number < REMOVED_BY else {})
        for number in range(1, reloads + 1)
    ]


async def pass_by(engine: AsyncEngine) -> None:
    """Let everybody go on who waits at the workbench."""
    async with open_gateway(ServerRepository(engine), connect, Limits(), {}) as gateway:
        await call(gateway, named(await gateway.refresh(), "steady"), "go", place="here")


def of(stream: Sequence[Event], kind: str) -> list[dict[str, Any]]:
    return [event.data for event in stream if event.type == kind]


async def missing(engine: AsyncEngine, stream: Sequence[Event]) -> dict[str, str]:
    """Return which parts a run's answer says it lacks, and why."""
    async with engine.connect() as connection:
        result = await connection.scalar(select(runs.c.result).where(runs.c.id == stream[0].data["run_id"]))
    assert result is not None
    return {part["part"]: part["reason"] for part in result["degraded"]}


@rounds(8, soak=30, name="reloads")
async def test_reloads_affect_only_runs_that_use_a_removed_server(
    town: Town, model: ModelServer, engine: AsyncEngine, workbench: Workbench, reloads: int
) -> None:
    documents = iter(shapes(workbench, reloads))
    staying, others = reloads // 2 - 1, reloads // 10 + 1
    requests = ("Stay.",) * staying + ("Be caught.",) * others + ("Come late.",) * others
    first = await town.reload({name: workbench.as_server("read") for name in ("steady", "leaving")})
    await town.agree_on(first)

    async def reload(times: int) -> list[float]:
        return [await town.agree_on(await town.reload(next(documents))) for _ in range(times)]

    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(ask(next(town.turns), text, f"t{number}")) for number, text in enumerate(requests)]
        await wait_for(lambda: workbench.done().count("wait here") == len(requests), seconds=120)
        seconds = await reload(REMOVED_BY + 1)  # while they all wait for a tool
        await pass_by(engine)
        seconds += await reload(reloads - len(seconds))  # while they go on, up to the middle of their answers
        model.release("the end")
    told = [stream.result() for stream in asked]
    print(f"all four agreed after {median(seconds):.3f} s in the median, {max(seconds):.3f} s at most")

    assert len(seconds) == reloads
    assert [stream[-1].data["status"] for stream in told] == ["succeeded"] * len(requests)
    assert {stream[0].data["epoch"] for stream in told} == {first}
    for text, stream in zip(requests, told, strict=True):
        assert [event.id for event in stream] == list(range(1, len(stream) + 1))
        assert of(stream, "warning") == of(stream, "error") == []
        failed = [data["result"] for data in of(stream, "tool_result") if data["status"] == "failed"]
        unanswered = await missing(engine, stream)
        assert failed[:1] == OBSERVED[text]
        assert len(unanswered) == len(OBSERVED[text])
        assert all("The server leaving was removed" in reason for reason in (*failed, *unanswered.values()))
