"""A platform for tests without HTTP and workers: runs are accepted, claimed and executed directly.

The model is a script, written as a `ScriptedModel`; servers, database and HTTP are real.
"""

import asyncio
import json
import socket
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sqlalchemy import insert

from brain.execution.run_executor import Brain
from brain.registry.team_cards import with_team
from starling.app.container.database import Database
from starling.app.container.services import open_services
from starling.app.runs.acceptance import RunRequest
from starling.app.services import Services
from starling.core.principal import DEFAULT_TENANT, Principal, Scope
from starling.core.run_document.rows import EventRow
from starling.core.runs import RunConfig, RunResult
from starling.core.settings.schema import Limits, ProviderSettings, Settings
from starling.core.teams.stars import StarSpec
from starling.infra.postgres.audit import Actor
from starling.infra.postgres.runs.acceptance import Claim, RunKey
from starling.infra.postgres.tables.registry import stars
from tests.support import model_documents
from tests.support.gateway_harness import SERVERS, free_port
from tests.support.model_script import Answer, Body, Rule, Script, When
from tests.support.model_server import ModelServer
from tests.support.worker_runtime import WorkerRuntime, open_worker_runtime

CALLER = Principal(DEFAULT_TENANT, "", frozenset(Scope))
_LEASE_SECONDS = 600  # no worker renews it
BENCH, SHOP = "mcp_agent_bench", "mcp_agent_shop"  # the same tools; those of the shop count as unsafe


@dataclass(frozen=True, slots=True)
class Workbench:
    """The address of a running workbench server, and the record of its tool calls."""

    url: str
    file: Path

    def done(self) -> list[str]:
        return self.file.read_text().splitlines() if self.file.exists() else []

    def forget(self) -> None:
        self.file.unlink(missing_ok=True)

    def as_server(self, effect: str) -> dict[str, Any]:
        return {"url": self.url, "x-starling": {"effect": effect}}


@contextmanager
def running_workbench(file: Path) -> Generator[Workbench]:
    """Run the workbench server in a process of its own until the block ends."""
    port = free_port()
    process = subprocess.Popen([sys.executable, SERVERS / "workbench.py", file, str(port)], stderr=subprocess.DEVNULL)
    try:
        while not listens(port):
            assert process.poll() is None, f"the workbench ended with {process.returncode}"
            time.sleep(0.02)  # it starts meanwhile, on a machine that may have one core
        yield Workbench(f"http://127.0.0.1:{port}/mcp", file)
    finally:
        process.kill()
        process.wait()


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True


task = model_documents.task


def decision(*tasks: dict[str, Any], **fields: Any) -> Answer:
    """The supervisor's answer that gives these tasks; `fields` replace the rest of it."""
    return Answer(model_documents.decision_json(*tasks, **fields))


def verdict(status: str, *reasons: str, refined: str = "") -> Answer:
    """The reviewer's answer."""
    return Answer(model_documents.verdict_json(status, *reasons, refined=refined))


def calls(*asked: tuple[str, dict[str, Any] | str]) -> Answer:
    """An agent's answer that asks for tools."""
    return Answer(tool_calls=[{"name": name, "arguments": arguments} for name, arguments in asked])


@dataclass(slots=True)
class ScriptedModel:
    """Scripted answers by role: each answer once, the last one repeatedly.

    While `held`, each answer waits at a gate: the first at "1", and so on.
    """

    rules: list[Rule] = field(default_factory=list[Rule])
    held: bool = False
    _asked: int = 0
    _script: Script = field(default_factory=Script)

    async def __call__(self, body: Body) -> Answer:
        self._asked += 1
        gate = str(self._asked) if self.held else ""
        answer = await self._script(body)
        return replace(answer, hold=gate) if gate else answer

    def forget(self) -> None:
        """Begin anew, for another test: without rules and answers that are held."""
        self.rules.clear()
        self.held, self._asked, self._script = False, 0, Script()

    def supervisor(self, *answers: Answer) -> None:
        self._add(When(schema="supervisor_decision"), answers)

    def reviewer(self, *answers: Answer, of: str = "") -> None:
        self._add(When(schema="verdict", contains=f'<task id="{of}"' if of else ""), answers)

    def agent(self, task_id: str, *answers: Answer) -> None:
        self._add(When(contains=f'<task id="{task_id}">'), answers)

    def run(self, *decisions: Answer, qa: Answer | None = None, **agents: Answer | Sequence[Answer]) -> None:
        """Script a run whose results are all approved: the answers of agents by task, and the final one."""
        self.supervisor(*decisions)
        for task_id, answers in agents.items():
            self.agent(task_id, *([answers] if isinstance(answers, Answer) else answers))
        self.reviewer(verdict("APPROVED"))
        if qa:
            self.qa(qa)

    def designer(self, *answers: Answer) -> None:
        self._add(When(schema="designer"), answers)

    def judge(self, *answers: Answer) -> None:
        self._add(When(schema="judge"), answers)

    def question(self, *answers: Answer) -> None:
        """Script what is asked in place of a final answer; before `qa` and `run`, whose rules fit, too."""
        self._add(When(schema="question"), answers)

    def qa(self, *answers: Answer) -> None:
        self._add(When(contains="You write the final answer"), answers)

    def _add(self, when: When, answers: Sequence[Answer]) -> None:
        *once, last = answers
        limited = When(contains=when.contains, schema=when.schema, nth=1)
        self.rules += [*(Rule(answer, limited) for answer in once), Rule(last, when)]
        self._script = Script(*self.rules)


@dataclass(frozen=True, slots=True)
class RunStream:
    """All events of one run's stream."""

    key: RunKey
    events: Sequence[EventRow]

    def of(self, kind: str) -> list[Mapping[str, Any]]:
        return [event.data for event in self.events if event.type == kind]

    @property
    def kinds(self) -> list[str]:
        return [event.type for event in self.events]

    @property
    def done(self) -> Mapping[str, Any]:
        """The data of the last event, which has to be `done`."""
        assert self.events[-1].type == "done"
        assert [event.seq for event in self.events] == list(range(1, len(self.events) + 1))
        return self.events[-1].data

    @property
    def status(self) -> str:
        return self.done["status"]

    @property
    def reply(self) -> str:
        return self.done["reply"]

    @property
    def codes(self) -> list[str]:
        """The codes of warnings and errors, in order."""
        return [event.data["code"] for event in self.events if event.type in ("warning", "error")]


async def activate_team(services: Services, star: StarSpec, tenant: str = DEFAULT_TENANT) -> None:
    """Make a team of a star, as its activation does."""
    async with services.storage.engine.begin() as connection:
        await connection.execute(insert(stars).values(tenant=tenant, hash=star.hash, star=star.model_dump(mode="json")))
        await services.storage.epochs.activate(
            connection, Actor.local("test"), lambda manifest: with_team(manifest, tenant, star)
        )


@dataclass(frozen=True, slots=True)
class Platform:
    """The parts of a platform, and methods that start and execute runs."""

    settings: Settings
    services: Services
    worker_runtime: WorkerRuntime
    brain: Brain
    model: ModelServer
    caller: Principal = CALLER

    async def activate(self, star: StarSpec) -> None:
        await activate_team(self.services, star, self.caller.tenant)

    async def accept(self, text: str, *, thread: str = "thread", **config: Any) -> RunKey:
        request = RunRequest(text, thread, config=RunConfig.model_validate(config))
        return (await self.services.runs.acceptance.accept(self.caller, request)).key

    async def claim(self, key: RunKey, *, run_seconds: float | None = None) -> Claim:
        claim = await self.services.runs.leases.claim(
            key,
            worker="test",
            lease_seconds=_LEASE_SECONDS,
            run_seconds=run_seconds or self.settings.limits.run_seconds,
        )
        assert claim is not None
        return claim

    async def finish(self, key: RunKey) -> RunStream:
        """Claim and execute a run to its end."""
        await self.brain.execute(await self.claim(key))
        return await self.stream(key)

    async def ask(self, text: str, *, thread: str = "thread", **config: Any) -> RunStream:
        return await self.finish(await self.accept(text, thread=thread, **config))

    async def stream(self, key: RunKey) -> RunStream:
        return RunStream(key, [event async for event in self.services.runs.reader.follow(key)])

    async def result(self, key: RunKey) -> RunResult:
        run = await self.services.runs.documents.row(key)
        assert run.result is not None
        return RunResult.model_validate(run.result)

    @asynccontextmanager
    async def executing(self, key: RunKey) -> AsyncGenerator[asyncio.Task[RunResult | None]]:
        """Execute a run during the block, then cancel it as a crash would, and release its lease."""
        claim = await self.claim(key)
        life = asyncio.get_running_loop().create_task(self.brain.execute(claim))
        try:
            yield life
        finally:
            life.cancel()
            await asyncio.gather(life, return_exceptions=True)
            await self.services.runs.leases.release(claim.run)

    def requests_containing(self, contains: str) -> list[Body]:
        """Return the requests to the model that contain these words."""
        when = When(contains=contains)
        return [body for body in self.model.bodies if when.fits(body)]


@asynccontextmanager
async def open_platform(
    database_url: str,
    model: ModelServer,
    servers: Mapping[str, Any],
    folder: Path,
    *,
    models: Sequence[str] = ("scripted:small",),
    roles: Mapping[str, Sequence[str]] | None = None,
    tracing: Mapping[str, Any] | None = None,
    **limits: Any,
) -> AsyncGenerator[Platform]:
    """Open everything on a migrated database, with these servers and this model; `tracing` sets where spans go.

    `roles` has models by their settings, such as `model_router`.
    """
    config = folder / "mcp.json"
    config.write_text(json.dumps({"mcpServers": servers}))
    settings = Settings(
        data_dir=folder,
        mcp_config=config,
        model=tuple(models),
        **{name: tuple(names) for name, names in (roles or {}).items()},
        providers={"scripted": ProviderSettings(base_url=model.url)},
        limits=Limits(**{"model_wait_seconds": 0, **limits}),  # tests of waits set it
        **(tracing or {}),
    )
    async with (
        open_services(settings, Database(database_url, database_url)) as services,
        open_worker_runtime(settings, services) as worker_runtime,
    ):
        yield Platform(settings, services, worker_runtime, worker_runtime.brain, model)
