"""A platform of processes over one Postgres, whose runs do what their requests say (`tests.chaos.workload`)."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp

from tests.chaos.workload import TILL, Call, PlannedRequest, Task, answer
from tests.support.command_line import CliWorkspace, Service
from tests.support.effect_recorder import EffectRecorder
from tests.support.local_access import admin_headers
from tests.support.model_server import ModelServer
from tests.support.sse import Event, read_events

_LEASE_SECONDS: Final = 5  # longer than a promotion takes, so that a worker keeps its runs
_SECONDS: Final = 60


@dataclass(frozen=True)
class PlannedRuns:
    """An API and workers. Their MCP server `till` records its effects; a stalled call waits for its gate."""

    workspace: CliWorkspace
    effects: EffectRecorder
    model: ModelServer
    services: list[Service]
    stack: ExitStack

    @property
    def api(self) -> Service:
        return self.services[0]

    @property
    def workers(self) -> Sequence[Service]:
        return self.services[1:]

    async def start(self, *commands: Sequence[str]) -> None:
        """Start services at the same time; they are killed at the end."""
        begun = [self.stack.enter_context(self.workspace.started(*command, "--json")) for command in commands]
        for process in begun:
            self.stack.callback(process.kill)
        self.services.extend([await asyncio.to_thread(Service.ready, process) for process in begun])

    async def request(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Return the status and the content of an answer."""
        headers = admin_headers(self.workspace.folder / "data")
        async with (
            aiohttp.ClientSession(self.api.url, headers=headers) as client,
            client.request(method, path, json=body) as response,
        ):
            return response.status, await response.json()

    async def begin(self, token: str, *calls: Call) -> str:
        """Send a request for these calls, one after the other, each in a task; return the id of its run."""
        tasks = [Task(f"t{n}", TILL, [call], [f"t{n - 1}"] if n > 1 else []) for n, call in enumerate(calls, 1)]
        planned = PlannedRequest(token, "till", tasks)
        body = {"input": planned.text, "thread_id": token}
        status, told = await self.request("POST", "/v1/runs", body)
        assert status == 202, told
        return told["run_id"]

    async def read(self, run_id: str) -> list[Event]:
        """Read the stream of a run over one connection."""
        async with (
            aiohttp.ClientSession(self.api.url) as client,
            client.get(f"/v1/runs/{run_id}/events") as response,
        ):
            assert response.status == 200, await response.text()
            return [event async for event in read_events(response)]

    async def until(self, run_id: str, *statuses: str) -> dict[str, Any]:
        """Return what is told of a run once it has one of these statuses."""
        async with asyncio.timeout(_SECONDS):
            while True:
                status, told = await self.request("GET", f"/v1/runs/{run_id}")
                if status == 200 and told["status"] in statuses:
                    return told
                await asyncio.sleep(0.05)

    async def until_ready(self) -> None:
        """Return once `/ready` says so."""
        async with asyncio.timeout(_SECONDS):
            while (await self.request("GET", "/ready"))[0] != 200:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.05)

    async def resolve(self, run_id: str, resolution: str) -> None:
        """Answer what a run in doubt asks."""
        told = await self.until(run_id, "waiting")
        replies = [
            {"interruptId": asked["id"], "status": "resolved", "payload": {"resolution": resolution}}
            for asked in told["interrupts"]
        ]
        status, said = await self.request("POST", f"/v1/runs/{run_id}/resume", replies)
        assert status < 300, said

    def charges(self, token: str) -> list[str]:
        """Return the key of each charge that was made for a request."""
        done = self.effects.lines("done")
        return [line["key"] for line in done if line["tool"] == "charge" and line["what"].startswith(f"{token}.")]


def first_call(token: str) -> str:
    """Return what the first call of a request is about; its gate is `<this>.gate`."""
    return f"{token}.t1.0.0"


def assert_whole(events: Sequence[Event], status: str = "succeeded") -> None:
    """Check that a stream has no gap and ends with this status, and that each of its calls was answered once."""
    assert [event.id for event in events] == list(range(1, len(events) + 1))
    assert (events[-1].type, events[-1].data["status"]) == ("done", status)
    started, answered = (
        [e.data["call_id"] for e in events if e.type == kind] for kind in ("tool_start", "tool_result")
    )
    assert started == answered


@asynccontextmanager
async def planned_runs(folder: Path, url: str, *, workers: int = 0, **limits: float) -> AsyncGenerator[PlannedRuns]:
    """Start an API and workers on the database at `url`, with `folder` as data folder; stop them after the block."""
    effects = EffectRecorder(folder / "effects")
    config = folder / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"till": effects.as_server()}}))
    async with ModelServer(answer) as model:
        variables: Mapping[str, str] = {
            "DATABASE_URL": url,
            "LOG_LEVEL": "INFO",
            "STARLING_MCP_CONFIG": str(config),
            "STARLING_WORKER_PORT": "0",
            **model.variables,
            "STARLING_LIMITS": json.dumps({"lease_seconds": _LEASE_SECONDS, **limits}),
        }
        workspace = CliWorkspace(folder, variables)
        with ExitStack() as stack:
            runs = PlannedRuns(workspace, effects, model, [], stack)
            await runs.start(("serve", "--port", "0"), *[("worker",)] * workers)
            yield runs
