"""Runs in which one known thing goes wrong, or nothing, on one platform: each for a tenant of its own.

What goes wrong really happens: servers die, keys are revoked, approvals expire. Only the model is a script. Each run
has a reference, which its request and the requests of its teams name; the script of a run is found by it.
"""

import asyncio
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sqlalchemy import insert, text

from brain.explanation.shape import Explanation
from brain.registry.team_cards import with_team
from starling.app.runs.acceptance import RunRequest
from starling.core.clock import Deadline, SystemClock
from starling.core.ids import new_id
from starling.core.principal import Principal, Scope
from starling.core.runs import RunConfig
from starling.core.teams.stars import StarSpec
from starling.core.tools import ToolCall
from starling.infra.postgres.audit import Actor
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.interrupts import InterruptAnswer
from starling.infra.postgres.tables import stars
from tests.support.effect_recorder import EffectRecorder
from tests.support.gateway_harness import SERVERS, free_port, wait_for_port
from tests.support.interrupted_runs import execute_run, open_interrupts
from tests.support.model_script import Answer, Body, When
from tests.support.model_server import ModelServer
from tests.support.platform import Platform, RunStream, ScriptedModel, calls, decision, open_platform, task, verdict

ARCHIVE, DEPOT, TRAVEL = "mcp_agent_archive", "mcp_agent_depot", "mcp_agent_travel"
PRINTING, BILLING, PAYROLL = "mcp_agent_printing", "mcp_agent_billing", "mcp_agent_payroll"
BAROMETER, SCANNER = "mcp_agent_depot_outside", "mcp_agent_scanner"
SCALES, COPIER = "mcp_agent_scales", "mcp_agent_copier"
CLINIC, GARAGE, SCHOOL, HARBOUR = (f"mcp_agent_{name}" for name in ("clinic", "garage", "school", "harbour"))
BAHNHOF, MERCADO, XRAY = "mcp_agent_bahnhof", "mcp_agent_mercado", "mcp_agent_xray"
_DEVICES: Final = {  # how each misbehaves, and the seconds that it has for its answer
    "scanner": ("dying", 60),
    "scales": ("hanging", 2),
    "copier": ("dying-once", 60),
    "xray": ("crashing-later", 60),
}
ADMIN: Final = Actor.local("test")
APPROVED: Final = verdict("APPROVED")
_OFFICE: Final = ("archive", "depot", "travel", "printing")
_TOWN: Final = ("clinic", "garage", "school", "harbour", "bahnhof", "mercado")
_WRITES: Final = (
    *("write_document", "delete_document", "reserve", "book", "print_pages", "replace_printer"),
    *("book_hour", "order_part", "withdraw_part", "enter_mark", "publish_report", "assign_berth", "free_berth", "fuel"),
    *("platz_buchen", "aushang", "apartar", "anotar"),
)
_TAKE_JOB = text("DELETE FROM procrastinate_jobs WHERE queueing_lock = :run AND status = 'todo'")
_LAPSE = text("UPDATE interrupts SET expires_at = now() - interval '1 second' WHERE run_id = :run AND state = 'open'")
_STEPS = text("SELECT count(*) FROM steps WHERE run_id = :run")


class ScriptsByReference:
    """Answers a request by the script whose reference its messages name."""

    def __init__(self) -> None:
        self.scripts: dict[str, ScriptedModel] = {}

    async def __call__(self, body: Body) -> Answer:
        for reference, script in self.scripts.items():
            if When(contains=reference).fits(body):
                return await script(body)
        return Answer(status=404, body='{"error": {"message": "no script fits this request"}}')


@dataclass(slots=True)
class Plan:
    """A plan and the answers of all models that work on it; each task adds its own."""

    script: ScriptedModel
    tasks: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def task(
        self,
        name: str,
        agent: str,
        words: str,
        *answers: Answer,
        after: Sequence[str] = (),
        verdicts: Sequence[Answer] = (),
    ) -> None:
        """Add a task with what its agent answers, and its reviewer where that doesn't simply approve."""
        self.tasks.append(task(name, agent, words, after))
        if verdicts:
            self.script.reviewer(*verdicts, of=name)
        if answers:
            self.script.agent(name, *answers)

    def quick(self, name: str, flight: str = "LH760", after: Sequence[str] = ()) -> None:
        """Add a task that goes well at once."""
        self.task(name, TRAVEL, f"Find the gate of {flight}.", calls(("gate", {"flight": flight})), after=after)

    def slow(self, name: str, words: str = "trade fair", after: Sequence[str] = ()) -> None:
        """Add a task with a tool that takes its time and whose answer speaks of errors that there are none of."""
        asked = calls(("search", {"words": words}), ("read_document", {"name": "guide-2"}))
        self.task(name, ARCHIVE, f"Look up what the archive has about the {words}.", asked, after=after)

    def retried(self, name: str, after: Sequence[str] = ()) -> None:
        """Add a task whose first call is refused and whose second attempt goes well."""
        wrong, right = calls(("stock", {"item": "tees"})), calls(("stock", {"item": "tea"}))
        self.task(name, DEPOT, "Count the boxes of tea.", wrong, right, after=after)

    def rejected_once(self, name: str, after: Sequence[str] = ()) -> None:
        """Add a task whose first result is rejected for a reason, and whose second one is right."""
        wrong, right = calls(("gate", {"flight": "LH454"})), calls(("gate", {"flight": "IB311"}))
        rejected = verdict("REJECTED", "This is the gate of LH454; the task asks for IB311.")
        self.task(name, TRAVEL, "Find the gate of IB311.", wrong, right, after=after, verdicts=[rejected, APPROVED])

    def fixed(self, name: str, after: Sequence[str] = ()) -> None:
        """Add a task whose result is put into another form by its reviewer."""
        fixed = verdict(
            "FIXED", "Said as a sentence.", refined="In the hall there are 19 degrees: the hall has 19 degrees"
        )
        asked = calls(("temperature", {"room": "hall"}))
        self.task(name, DEPOT, "Say how warm the hall is.", asked, after=after, verdicts=[fixed, APPROVED])

    def warned(self, name: str, after: Sequence[str] = ()) -> None:
        """Add a task with a warning: its agent asks for the same change twice, which is made once."""
        same = ("write_document", {"name": "paper-note", "text": "260 boxes"})
        words = "Write down in paper-note that there are 260 boxes of paper."
        self.task(name, ARCHIVE, words, calls(same, same), after=after)

    def give(self, *further: Answer, reply: str = "This is what was found [1].") -> None:
        """Let the supervisor give this plan, then answer as told, and else name no further task."""
        self.script.supervisor(decision(*self.tasks), *further, decision())
        self.script.reviewer(APPROVED)
        self.script.qa(Answer(reply))


@dataclass(frozen=True, slots=True)
class SeededRun:
    """A run in which something goes wrong. `cause` is the code of what; None where nothing goes wrong.

    `named` are words of which the explanation has to have one: the agent, tool or task concerned.
    """

    name: str
    cause: str | None
    request: str
    play: Callable[["Stage"], Awaitable[RunStream]]
    named: Sequence[str] = ()
    teams: Sequence[StarSpec] = ()

    @property
    def reference(self) -> str:
        """Return what the request and those of its teams name."""
        return f"({self.name})"


@dataclass(frozen=True, slots=True)
class Outside:
    """What all runs share: a server that can be killed, the record of effects, the sweep of questions."""

    barometer: subprocess.Popen[bytes]
    payroll: EffectRecorder
    sweep: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(frozen=True, slots=True)
class Stage:
    """What one run is played with."""

    run: SeededRun
    platform: Platform
    outside: Outside
    script: ScriptedModel

    @property
    def tenant(self) -> str:
        return self.run.name

    def plan(self) -> Plan:
        return Plan(self.script)

    async def accept(self, request: str = "", key_id: str = "", **config: Any) -> RunKey:
        caller = Principal(self.tenant, key_id, frozenset(Scope))
        words = f"{request or self.run.request} {self.run.reference}"
        asked = RunRequest(words, new_id(), config=RunConfig.model_validate(config))
        return (await self.platform.services.runs.acceptance.accept(caller, asked)).key

    async def finish(self, key: RunKey) -> RunStream:
        return await self.platform.finish(key)

    async def ask(self, request: str = "", **config: Any) -> RunStream:
        return await self.finish(await self.accept(request, **config))

    async def answered(self, key: RunKey, **payload: Any) -> None:
        """Give the open questions of a run this answer; without one, refuse to answer."""
        state = "resolved" if payload else "cancelled"
        asked = await open_interrupts(self.platform, key)
        assert asked, f"{self.run.name} asks nothing"
        await self._take_job(key)
        await self.platform.services.runs.interrupts.answer(
            key, [InterruptAnswer(item.id, state, payload) for item in asked], "somebody"
        )

    async def lapsed(self, key: RunKey) -> None:
        """Let the time for answering the open questions of a run be over."""
        assert await open_interrupts(self.platform, key), f"{self.run.name} asks nothing"
        await self._take_job(key)
        async with self.outside.sweep:  # another run's sweep would take this one's questions, and end later
            async with self.platform.services.storage.engine.begin() as connection:
                await connection.execute(_LAPSE, {"run": key.id})
            await self.platform.services.runs.interrupts.expire()

    async def unanswered(self, key: RunKey) -> RunStream:
        """Let each question of a run lapse until it ends."""
        while await open_interrupts(self.platform, key):
            await self.lapsed(key)
            await self.begin(key)
        return await self.platform.stream(key)

    async def begin(self, key: RunKey) -> None:
        """Execute a run until it waits or ends."""
        await execute_run(self.platform, key)

    @asynccontextmanager
    async def held_at(self, key: RunKey, path: str) -> AsyncGenerator[asyncio.Task[RunStream]]:
        """Execute a run; the block is entered once the task at `path` has begun, and its model is let go after it.

        The agent's answer has to be held at the gate `self.gate`.
        """
        life = asyncio.get_running_loop().create_task(self.finish(key))
        async for event in self.platform.services.runs.reader.follow(key):
            if event.type == "task_start" and event.data["path"] == path:
                break
        yield life
        self.platform.model.release(self.gate)

    @property
    def gate(self) -> str:
        return f"gate of {self.run.name}"

    async def refused(self, server: str, tool: str, arguments: Mapping[str, Any], **whose: Any) -> None:
        """Return once calls for this caller are refused in this process."""
        listing = self.platform.worker_runtime.gateway.listing(server)
        assert listing is not None
        definition = next(found for found in listing.tools if found.name == tool)
        async with asyncio.timeout(60):
            while True:
                call = ToolCall(new_id(), "run", "t1", definition, dict(arguments), **whose)
                outcome = await self.platform.worker_runtime.gateway.call(call, Deadline(SystemClock(), 20))
                if outcome.code == "switched_off":
                    return
                await asyncio.sleep(0.01)  # a call that is refused waits for nothing

    async def _take_job(self, key: RunKey) -> None:
        async with self.platform.services.storage.engine.begin() as connection:
            await connection.execute(_TAKE_JOB, {"run": key.id})


@dataclass(frozen=True, slots=True)
class Explained:
    """A seeded run that has ended, its explanation, and what of it can be referred to."""

    run: SeededRun
    stream: RunStream
    explanation: Explanation
    steps: int

    @property
    def found(self) -> str | None:
        """Return the code of the cause that is named first."""
        return self.explanation.cause.code if self.explanation.cause else None

    @property
    def tasks(self) -> set[str]:
        """Return the paths of all tasks that were planned or begun."""
        planned = {
            f"{plan['path']}/{item['id']}".removeprefix("/")
            for plan in self.stream.of("plan")
            for item in plan["tasks"]
        }
        return planned | {event["path"] for event in self.stream.of("task_start")}

    def exists(self, kind: str, number: str) -> bool:
        """Return whether the run has this step, event, call or task."""
        match kind:
            case "event":
                return number in {str(event.seq) for event in self.stream.events}
            case "call":
                return number in {event["call_id"] for event in self.stream.of("tool_start")}
            case "task":
                return number in self.tasks
            case _:
                return 1 <= int(number) <= self.steps


@contextmanager
def _outside(folder: Path) -> Any:
    """Run the servers of the office until the block ends."""
    with ExitStack() as stack:

        def running(*names: str) -> tuple[subprocess.Popen[bytes], dict[str, str]]:
            ports = {name: free_port() for name in names}
            arguments = [f"{name}={port}" for name, port in ports.items()]
            process = subprocess.Popen([sys.executable, SERVERS / "office.py", *arguments], stderr=subprocess.DEVNULL)
            stack.callback(process.wait)
            stack.callback(process.kill)
            for port in ports.values():
                wait_for_port(port, process)
            return process, {name: f"http://127.0.0.1:{port}/mcp" for name, port in ports.items()}

        _, urls = running(*_OFFICE, *_TOWN)
        barometer, more = running("depot_outside")
        payroll, billing = EffectRecorder(folder / "payroll"), EffectRecorder(folder / "billing")
        tools = {name: {"effect": "idempotent"} for name in _WRITES}
        servers: dict[str, Any] = {
            name: {"url": url, "x-starling": {"effect": "read", "tools": tools}} for name, url in (urls | more).items()
        }
        for name, (how, seconds) in _DEVICES.items():
            options = {"effect": "read", "tools": {"act": {"timeout": seconds}}}
            arguments = [str(SERVERS / "misbehaving.py"), how, str(folder / name)]
            servers[name] = {"command": sys.executable, "args": arguments, "x-starling": options}
        servers["payroll"] = payroll.as_server()
        servers["billing"] = billing.as_server(approval="unsafe")
        yield Outside(barometer, payroll), servers


async def explain_seeded_runs(database_url: str, folder: Path, runs: Sequence[SeededRun]) -> dict[str, Explained]:
    """Play all runs at the same time on one platform; return what became of each, by its name.

    What one run raises is raised once all have ended.
    """
    scripts = ScriptsByReference()
    with _outside(folder) as (outside, servers):
        async with (
            ModelServer(scripts) as model,
            open_platform(database_url, model, servers, folder) as platform,
        ):
            for run in runs:
                scripts.scripts[run.reference] = ScriptedModel()
                for team in run.teams:
                    await _activate(platform, run.name, team)
            stages = [Stage(run, platform, outside, scripts.scripts[run.reference]) for run in runs]
            ended = await asyncio.gather(*map(_explained, stages), return_exceptions=True)
    if failed := [(run.name, end) for run, end in zip(runs, ended, strict=True) if isinstance(end, BaseException)]:
        raise ExceptionGroup("seeded runs that did not end", [RuntimeError(f"{n}: {e!r}") for n, e in failed])
    return {end.run.name: end for end in ended if isinstance(end, Explained)}


async def _explained(stage: Stage) -> Explained:
    async with asyncio.timeout(240):
        stream = await stage.run.play(stage)
    explanation = await stage.platform.services.runs.explanations.explain(stream.key)
    async with stage.platform.services.storage.engine.connect() as connection:
        steps = await connection.scalar(_STEPS, {"run": stream.key.id})
    return Explained(stage.run, stream, explanation, steps or 0)


async def _activate(platform: Platform, tenant: str, star: StarSpec) -> None:
    async with platform.services.storage.engine.begin() as connection:
        await connection.execute(insert(stars).values(tenant=tenant, hash=star.hash, star=star.model_dump(mode="json")))
        await platform.services.storage.epochs.activate(
            connection, ADMIN, lambda manifest: with_team(manifest, tenant, star)
        )
