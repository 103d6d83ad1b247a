"""Plays run stories over HTTP on one platform: real Postgres, MCP servers, worker and API, and a scripted model."""

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import aiohttp
from pydantic import SecretStr
from sqlalchemy import text

from starling.app.access.keys import KeySpec
from starling.app.container.database import Database
from starling.app.container.services import open_services
from starling.app.services import Services
from starling.core.agents import Persona
from starling.core.clock import Deadline, SystemClock
from starling.core.ids import new_id
from starling.core.principal import HOST_ADMIN, Scope
from starling.core.settings.schema import Limits, ProviderSettings, Settings
from starling.core.teams.stars import Member, StarSpec
from starling.core.tools import ToolCall
from starling.infra.postgres.audit import Actor
from tests.integration.run_stories.scripted_servers import ScriptedServers, Step, says
from tests.integration.run_stories.story import Act, Story
from tests.support.http_app import served_api
from tests.support.local_access import AS_ADMIN
from tests.support.model_script import Answer, Body, no_rule
from tests.support.model_server import ModelServer
from tests.support.platform import ScriptedModel, activate_team
from tests.support.sse import Event, read_events
from tests.support.worker_runtime import WorkerRuntime, open_worker_runtime, running_worker

_STORY_SECONDS: Final = 90
_AT_ONCE: Final = 12
_MODEL_CALL_SECONDS: Final = 6
_FORK_SECONDS: Final = 8  # of forks of runs that wait for something that never comes
_READ, _UNSAFE = {"effect": "read"}, {"effect": "unsafe"}
_TOOLS: Final[Mapping[str, Sequence[str]]] = {
    "desk": ("look", "find", "count", "rate"),
    "till": ("pay",),
    "vault": ("transfer",),
    "bank": ("pay",),
    "broker": ("order",),
    "lab": ("look",),
    "annex": ("look",),
    **dict.fromkeys(("flaky", "wobbly", "slow", "queue", "archive", "press", "toll", "tide", "kiosk"), ("fetch",)),
}
_OPTIONS: Final[Mapping[str, Mapping[str, Any]]] = {  # of servers that don't just read
    "desk": {**_READ, "tools": {"rate": {"cache_ttl": 300}}},
    "till": _UNSAFE,
    "vault": {**_UNSAFE, "approval": "unsafe"},
    "bank": {**_UNSAFE, "timeout": 4},
    "broker": {**_UNSAFE, "timeout": 4},
    "slow": {**_READ, "timeout": 4},
    "tide": {**_READ, "timeout": 4},
}
UNSAFE: Final = frozenset(name for name, options in _OPTIONS.items() if options["effect"] == "unsafe")
_SWITCHED_OFF: Final = "lab"
_PERSONA: Final = Persona(role="finder", goal="look things up")
_FINDER: Final = Member(name="finder", persona=_PERSONA, server="desk", tools=("desk.look",), runtime="native")
_SEEKER: Final = Member(name="seeker", persona=_PERSONA, server="desk", tools=("desk.look",), runtime="crewai")
_GUILD: Final = StarSpec(name="guild", purpose="Seeks things.", members=(_SEEKER,))
_CREW: Final = StarSpec(name="crew", purpose="Looks things up.", members=(_FINDER,))
_HOUSE: Final = StarSpec(name="house", purpose="Leads.", members=(Member(name="crew", persona=_PERSONA, team=_CREW),))
_EXPIRE = text("UPDATE interrupts SET expires_at = now() - interval '1 second' WHERE id = :id")


@dataclass(frozen=True, slots=True)
class Played:
    """What became of a story: its record, its events, its states, its explanation, and real tool calls."""

    story: Story
    record: Mapping[str, Any]
    events: Sequence[Event]
    states: Sequence[Mapping[str, Any]]
    explanation_status: int
    explanation: Mapping[str, Any]
    made: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class PlayedFork:
    """What became of a fork of a story: its events, the requests to the model, and real tool calls."""

    at: str
    events: Sequence[Event]
    asked: Sequence[str]
    made: Mapping[str, int]


@dataclass
class StoryModels:
    """Answers each request to the model as the story does whose mark it contains; `asked` are all of a story."""

    scripts: dict[str, tuple[Story, ScriptedModel]] = field(default_factory=dict[str, tuple[Story, ScriptedModel]])
    asked: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict[str, list[str]](list))

    async def __call__(self, body: Body) -> Answer:
        words = " ".join(str(message.get("content") or "") for message in body["messages"])
        for mark, (story, script) in self.scripts.items():
            if mark in words:
                self.asked[mark].append(words)
                answer = await script(body)
                sent = [{**call, "arguments": {**call["arguments"], "ref": story.ref}} for call in answer.tool_calls]
                return replace(answer, tool_calls=sent)
        return await no_rule(body)


@dataclass(frozen=True, slots=True)
class Stage:
    """One platform that all stories are played on."""

    client: aiohttp.ClientSession
    services: Services
    servers: ScriptedServers
    models: StoryModels

    async def play(self, stories: Sequence[Story]) -> dict[str, Played]:
        """Play all stories, some at a time, and return them by name. What one raises is raised once all have ended."""
        turns = asyncio.Semaphore(_AT_ONCE)

        async def one(story: Story) -> Played:
            async with turns, asyncio.timeout(_STORY_SECONDS):
                return await self._play(story)

        ended = await asyncio.gather(*map(one, stories), return_exceptions=True)
        if errors := [(s.name, e) for s, e in zip(stories, ended, strict=True) if isinstance(e, BaseException)]:
            raise ExceptionGroup("stories that did not end", [RuntimeError(f"{n}: {e!r}") for n, e in errors])
        assert self.servers.unscripted == set()
        return {played.story.name: played for played in ended if isinstance(played, Played)}

    async def fork(self, played: Sequence[Played]) -> dict[str, list[PlayedFork]]:
        """Fork each played run at every task and decision, and return its forks by the name of its story.

        They are not live and ask nothing. What can't be forked at a place has no fork there.
        """
        turns = asyncio.Semaphore(_AT_ONCE)

        async def all_of(run: Played) -> list[PlayedFork]:
            plans = (event.data for event in run.events if event.type == "plan" and not event.data["path"])
            tasks = dict.fromkeys(task["id"] for plan in plans for task in plan["tasks"])
            async with turns, asyncio.timeout(_STORY_SECONDS):
                forks = [await self._fork(run, at) for at in (*tasks, "d2", "d3")]
            return [fork for fork in forks if fork]

        return dict(zip((run.story.name for run in played), await asyncio.gather(*map(all_of, played)), strict=True))

    async def _fork(self, run: Played, at: str) -> PlayedFork | None:
        story, made = run.story, self._made(run.story)
        asked = len(self.models.asked[story.mark])
        body = {"at": at, "limits": {"max_clarifications": 0, "run_seconds": _FORK_SECONDS}}
        async with self.client.post(f"/v1/runs/{run.record['run_id']}/fork", json=body) as response:
            accepted = await response.json()
            if response.status != 202:
                assert accepted["code"] in ("not_forkable", "invalid_request"), accepted
                return None
        async with self.client.get(f"/v1/runs/{accepted['run_id']}/events") as response:
            events = [event async for event in read_events(response)]
        return PlayedFork(at, events, self.models.asked[story.mark][asked:], self._made(story) - made)

    def _made(self, story: Story) -> Counter[str]:
        return Counter({tool: count for (ref, tool), count in self.servers.calls.items() if ref == story.ref})

    async def _play(self, story: Story) -> Played:
        self.models.scripts[story.mark] = (story, story.model())
        self.servers.steps |= {(story.ref, tool): steps for tool, steps in story.servers.items()}
        body = {"input": f"{story.request} {story.mark}", "thread_id": new_id(), "config": {"limits": story.limits}}
        accepted = await self._call("POST", "/v1/runs", body, headers=await self._key_of(story))
        run_id = accepted["run_id"]
        events = await self._watch(run_id, story)
        record = await self._call("GET", f"/v1/runs/{run_id}?include=tasks")
        states = await self._call("GET", f"/v1/threads/{body['thread_id']}/states?limit=200")
        async with self.client.get(f"/v1/runs/{run_id}/explanation") as response:
            status, explanation = response.status, await response.json()
        return Played(story, record, events, states["states"], status, explanation, self._made(story))

    async def _watch(self, run_id: str, story: Story) -> list[Event]:
        """Return all events of a run; each act is done at its event."""
        left, events = list(story.people), list[Event]()
        async with self.client.get(f"/v1/runs/{run_id}/events") as response:
            async for event in read_events(response):
                events.append(event)
                if act := next((act for act in left if act.at == event.type), None):
                    left.remove(act)
                    await self._do(act, story, run_id, event)
        assert not left, f"{left[0].at} never came"
        return events

    async def _do(self, act: Act, story: Story, run_id: str, event: Event) -> None:
        if act.cancels:
            name = event.data.get("name")  # only of a call
            while name and (story.ref, name) not in self.servers.calls:  # noqa: ASYNC110
                await asyncio.sleep(0.02)  # the call was announced and is just being sent
            await self._call("POST", f"/v1/runs/{run_id}/cancel")
        elif act.expires:
            while (await self._call("GET", f"/v1/runs/{run_id}"))["status"] != "waiting":  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            async with self.services.storage.engine.begin() as connection:
                await connection.execute(_EXPIRE, {"id": event.data["id"]})
            await self.services.runs.interrupts.expire()
        else:
            status = "cancelled" if act.payload is None else "resolved"
            answer = {"interruptId": event.data["id"], "status": status, "payload": act.payload or {}}
            await self._call("POST", f"/v1/runs/{run_id}/resume", [answer])

    async def _key_of(self, story: Story) -> Mapping[str, str]:
        if story.grant is None:
            return AS_ADMIN
        spec = KeySpec(story.ref, "default", frozenset([Scope.RUN]), story.grant)
        _, secret = await self.services.storage.keys.create(HOST_ADMIN, spec, Actor.local("test"))
        return {"Authorization": f"Bearer {secret}"}

    async def _call(self, method: str, path: str, body: Any = None, **options: Any) -> dict[str, Any]:
        async with self.client.request(method, path, json=body, **options) as response:
            assert response.status < 300, await response.text()
            return await response.json()


@asynccontextmanager
async def open_stage(database_url: str, folder: Path) -> AsyncGenerator[Stage]:
    """Open the platform with all servers of the stories; one of these is switched off."""
    models = StoryModels()
    probe: dict[tuple[str, str], Sequence[Step]] = {("", "lab.look"): (says("ready"),)}
    async with ScriptedServers(_TOOLS, probe) as servers, ModelServer(models) as model:
        configured = {name: {"url": servers.url(name), "x-starling": _OPTIONS.get(name, _READ)} for name in _TOOLS}
        config = folder / "mcp.json"
        config.write_text(json.dumps({"mcpServers": {**configured, "gone": {"url": "http://127.0.0.1:9/mcp"}}}))
        settings = Settings(
            database_url=SecretStr(database_url),
            data_dir=folder,
            mcp_config=config,
            model=("scripted:small",),
            providers={"scripted": ProviderSettings(base_url=model.url)},
            limits=Limits(model_call_seconds=_MODEL_CALL_SECONDS, model_wait_seconds=0),
        )
        async with (
            open_services(settings, Database(database_url, database_url)) as services,
            open_worker_runtime(settings, services) as runtime,
            running_worker(runtime.worker),
            served_api(settings, services) as served,
        ):
            await activate_team(services, _HOUSE)
            await activate_team(services, _GUILD)
            await _switch_off(served.client, runtime)
            yield Stage(served.client, services, servers, models)


async def _switch_off(client: aiohttp.ClientSession, runtime: WorkerRuntime) -> None:
    """Switch an agent and a server off; return once the gateway refuses the server's calls."""
    agent = {"kind": "agent", "name": "mcp_agent_annex", "reason": "It is being renovated."}
    async with client.put("/v1/switches", json=agent) as response:
        assert response.status == 200, await response.text()
    switch = {"kind": "server", "name": _SWITCHED_OFF, "reason": "Maintenance: everything works, no error."}
    async with client.put("/v1/switches", json=switch) as response:
        assert response.status == 200, await response.text()
    listing = runtime.gateway.listing(_SWITCHED_OFF)
    assert listing is not None
    call = ToolCall(new_id(), "run", "t1", listing.tools[0], {"what": "probe"})
    while (await runtime.gateway.call(call, Deadline(SystemClock(), 20))).code != "switched_off":  # noqa: ASYNC110
        await asyncio.sleep(0.01)
