"""Agents that users make: over the API, in epochs, with no more rights than their maker."""

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest

from starling.app.access.keys import KeySpec
from starling.app.http.authentication import open_access_control
from starling.app.http.listener import bind
from starling.app.http.uvicorn_server import serving
from starling.core.agents import LLMAgentConfig
from starling.core.principal import HOST_ADMIN, Grant, Scope
from starling.infra.postgres.audit import Actor, latest
from tests.integration.brain.conftest import Open
from tests.support.http_app import make_app
from tests.support.model_script import Answer
from tests.support.platform import BENCH, Platform, ScriptedModel, Workbench, calls, decision, task
from tests.support.platform import CALLER as OWNER

POET = {"id": "poet", "behavior_template": "You write haiku about <ships>."}
CALLER = {"id": "caller", "behavior_template": "You look things up.", "tools": ["bench.look", "bench.change"]}


@dataclass(frozen=True, slots=True)
class Api:
    """The API of a platform whose runs the test executes."""

    platform: Platform
    client: aiohttp.ClientSession

    async def key(self, tenant: str, grant: Grant | None = None) -> dict[str, str]:
        """Return the header that shows a new key of a tenant."""
        wish = KeySpec("test", tenant, frozenset({Scope.RUN, Scope.TEAMS}), grant)
        _, key = await self.platform.services.storage.keys.create(HOST_ADMIN, wish, Actor.local("test"))
        return {"Authorization": f"Bearer {key}"}

    async def send(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, dict[str, Any]]:
        async with self.client.request(method, path, json=body, headers=headers) as response:
            return response.status, await response.json()

    async def create(self, config: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> dict[str, Any]:
        status, made = await self.send("POST", "/v1/agents", config, headers)
        assert status == 201, made
        return made

    async def listed(self, headers: Mapping[str, str] | None = None) -> dict[str, dict[str, Any]]:
        _, found = await self.send("GET", "/v1/agents", headers=headers)
        return {agent["name"]: agent for agent in found["agents"]}


@pytest.fixture
async def api(platform: Platform) -> AsyncGenerator[Api]:
    services = platform.services
    async with (
        open_access_control(platform.settings, services.storage.keys) as access,
        serving(make_app(services, "test", access), bind("127.0.0.1", 0)) as url,
        aiohttp.ClientSession(url) as client,
    ):
        yield Api(platform, client)


async def test_run_uses_a_custom_agent_right_after_its_creation(api: Api, script: ScriptedModel) -> None:
    script.run(decision(task("t1", "poet")), t1=Answer("Masts in morning mist."))
    made = await api.create(POET)

    stream = await api.platform.ask("write a haiku")

    (asked,) = api.platform.requests_containing('<task id="t1">')[:1]
    assert stream.reply == "Masts in morning mist."
    assert stream.of("thinking")
    assert stream.of("run_started")[0]["epoch"] == made["epoch"]
    assert "You write haiku about <ships>." in asked["messages"][0]["content"]
    assert (
        '<agent name="poet" kind="custom" state="ready">You write haiku about &lt;ships&gt;</agent>'
        in (api.platform.requests_containing("<agents>")[0]["messages"][1]["content"])
    )


async def test_custom_agent_calls_the_tools_that_the_epoch_pins(
    api: Api, script: ScriptedModel, workbench: Workbench
) -> None:
    script.run(decision(task("t1", "caller")), t1=calls(("look", {"thing": "ships"})))
    await api.create(CALLER)

    stream = await api.platform.ask("look for ships")

    (asked,) = [body for body in api.platform.requests_containing('<task id="t1">') if body.get("tools")]
    assert stream.status == "succeeded"
    assert [event["name"] for event in stream.of("tool_start")] == ["bench.look"]
    assert [tool["function"]["name"] for tool in asked["tools"]] == ["look", "change", "continue"]


async def test_new_version_of_an_agent_is_used_by_later_runs_only(api: Api, script: ScriptedModel) -> None:
    script.run(decision(task("t1", "poet")), t1=Answer("A poem."))
    first = await api.create(POET)
    earlier = await api.platform.accept("write", thread="one")
    second = await api.create(POET | {"behavior_template": "You write sonnets."})

    later = await api.platform.accept("write", thread="two")
    for run in (earlier, later):
        await api.platform.finish(run)

    asked = [body for body in api.platform.requests_containing('<task id="t1">') if "response_format" not in body]
    stream = [body["messages"][0]["content"] for body in asked]
    assert second["epoch"] == first["epoch"] + 1
    assert ["haiku" in text for text in stream] == [True, False]
    assert ["sonnets" in text for text in stream] == [False, True]


async def test_archived_agent_is_unavailable_to_later_runs_and_keeps_its_versions(api: Api) -> None:
    first = await api.create(POET)
    second = await api.create(POET | {"render_policy": "none"})

    status, _ = await api.send("DELETE", "/v1/agents/poet")

    _, shown = await api.send("GET", "/v1/agents/poet")
    assert status == 200
    assert "poet" not in await api.listed()
    assert shown["agent"]["state"] == "archived"
    assert [version["version"] for version in shown["versions"]] == [first["version"], second["version"]]
    assert not any(version["active"] for version in shown["versions"])
    assert (await api.send("DELETE", "/v1/agents/poet"))[0] == 404


async def test_same_configuration_keeps_version_and_epoch(api: Api) -> None:
    first = await api.create(POET)

    assert await api.create(POET) == first
    _, shown = await api.send("GET", "/v1/agents/poet")
    assert [version["active"] for version in shown["versions"]] == [True]


async def test_custom_agent_is_visible_to_its_tenant_only(api: Api) -> None:
    ours, theirs, others = await api.key("ours"), await api.key("theirs"), await api.key("others")
    await api.create(POET, ours)
    await api.create(POET | {"behavior_template": "You write limericks."}, theirs)
    await api.send("DELETE", "/v1/agents/poet", headers=theirs)

    _, shown = await api.send("GET", "/v1/agents/poet", headers=ours)

    assert shown["agent"]["state"] == "ready"
    assert "poet" not in await api.listed(theirs)
    assert "poet" not in await api.listed(others)
    assert (await api.send("GET", "/v1/agents/poet", headers=others))[0] == 404


async def test_created_agent_gets_only_tools_that_the_key_is_granted(api: Api) -> None:
    narrow = await api.key("ours", Grant(tools=frozenset({"bench.look"})))

    made = await api.create(CALLER | {"tools": ["bench.*"]}, narrow)

    assert made["tools"] == ["bench.look"]
    assert made["left_out"] == ["bench.*"]
    assert (await api.listed(await api.key("ours")))["caller"]["tools"] == ["bench.look"]
    assert (await api.send("POST", "/v1/agents", CALLER | {"tools": ["shop.look"]}, narrow))[0] == 403


@pytest.mark.parametrize("tool", ["nowhere.*", "bench.nothing"])
async def test_refusal_names_only_tools_that_the_key_is_granted(api: Api, tool: str) -> None:
    narrow = await api.key("ours", Grant(tools=frozenset({"bench.look"})))

    status, problem = await api.send("POST", "/v1/agents", CALLER | {"tools": [tool]}, narrow)

    assert status == 422
    assert problem["remedy"] in ("There are: bench.", "There are: bench.look.")


async def test_listed_agent_has_only_the_tools_that_the_key_is_granted(api: Api) -> None:
    await api.create(CALLER, await api.key("ours"))

    one = await api.listed(await api.key("ours", Grant(tools=frozenset({"bench.look"}))))
    other = await api.listed(await api.key("ours", Grant(servers=frozenset({"shop"}))))

    assert one["caller"]["tools"] == ["bench.look"]
    assert "caller" not in other


async def test_agent_whose_server_is_removed_is_degraded_with_the_reason(api: Api, script: ScriptedModel) -> None:
    script.supervisor(decision(task("t1", "caller")), decision(reply="No."))
    await api.create(CALLER)
    await api.platform.services.registry.remove("bench", Actor.local("test"))

    stream = await api.platform.ask("look for ships")

    agent = (await api.listed())["caller"]
    assert agent["state"] == "degraded"
    assert "bench" in agent["reason"]
    assert not stream.of("tool_start")
    assert (
        'name="caller" kind="custom" state="degraded"'
        in api.platform.requests_containing("<agents>")[0]["messages"][1]["content"]
    )


async def test_review_uses_instruction_and_model_of_the_reviewing_agent(api: Api, script: ScriptedModel) -> None:
    script.run(decision(task("t1", "poet")), t1=Answer("Masts in morning mist."))
    await api.create({"id": "critic", "behavior_template": "You count syllables.", "llm_model": "scripted/large"})
    await api.create(POET | {"reflection_agent_id": "critic", "llm_model": "scripted:medium"})

    stream = await api.platform.ask("write a haiku")

    models = {body["model"]: body["messages"][0]["content"] for body in api.platform.model.bodies}
    assert stream.status == "succeeded"
    assert "You count syllables." in models["large"]
    assert "You write haiku" in models["medium"]
    assert set(models) == {"small", "medium", "large"}


@pytest.mark.parametrize(("policy", "shown"), [("last_messages", 5), ("none", 0), ("summary", 7)])
async def test_render_policy_sets_how_many_messages_the_prompt_shows(
    opened: Open, script: ScriptedModel, policy: str, shown: int
) -> None:
    script.run(*[decision(reply="Noted.")] * 4, decision(task("t1", "poet")), t1=Answer("A poem."))
    async with opened(max_history=7) as platform:
        config = LLMAgentConfig.model_validate(POET | {"render_policy": policy})
        await platform.services.agents.create(OWNER, config, Actor.local("test"))
        for number in range(4):
            await platform.ask(f"remember {number}")

        await platform.ask("write")

        (asked,) = [body for body in platform.requests_containing('<task id="t1">') if "response_format" not in body]
        assert asked["messages"][1]["content"].count('"role"') == shown


@pytest.mark.parametrize(
    ("policy", "roles"),
    [
        ("full", ["user", "assistant", "tool", "assistant", "tool", "assistant"]),
        ("last_n", ["assistant", "tool", "assistant", "tool", "assistant"]),
        ("tools_collapsed", ["user", "assistant", "assistant", "assistant"]),
    ],
)
async def test_policies_over_turns_show_an_agent_calls_with_their_results(
    opened: Open, script: ScriptedModel, policy: str, roles: list[str]
) -> None:
    look, poem = decision(task("t1", BENCH)), decision(task("t2", "poet"))
    script.run(look, poem, t1=calls(("look", {"thing": "disk"})), t2=Answer("A poem."))
    async with opened() as platform:
        config = LLMAgentConfig.model_validate(POET | {"render_policy": policy})
        await platform.services.agents.create(OWNER, config, Actor.local("test"))
        await platform.ask("Look at the disk.")

        await platform.ask("write")

        (asked,) = [body for body in platform.requests_containing('<task id="t2">') if "response_format" not in body]
        shown = asked["messages"][1]["content"]
        assert re.findall(r'"role": "(\w+)"', shown) == roles
        assert "the disk is fine" in shown


INVALID: list[tuple[Mapping[str, Any], str]] = [
    ({"id": "generalist"}, "built-in"),
    ({"id": "architect"}, "built-in"),
    ({"id": "mcp_agent_bench"}, "mcp_agent_"),
    ({"id": "mcp-agent_bench"}, "specialists"),
    ({"id": "Has Spaces"}, "id"),
    ({"id": "x" * 49}, "id"),
    ({"colour": "red"}, "colour"),
    ({"type": "tool"}, "type"),
    ({"tools": ["bench.nothing"]}, "bench.look"),
    ({"tools": ["nowhere.*"]}, "bench"),
    ({"reflection_agent_id": "nobody"}, "nobody"),
    ({"render_policy": "sideways"}, "last_messages"),
    ({"llm_model": "nonsense"}, "provider:model"),
    ({"llm_model": "nobody:small"}, "nobody"),
]


async def test_invalid_agent_is_refused_with_the_possible_values(api: Api) -> None:
    before = await api.listed()

    for wrong, named in INVALID:
        status, problem = await api.send("POST", "/v1/agents", {**POET, **wrong})

        assert status == 422, (wrong, problem)
        assert named in f"{problem['detail']} {problem['remedy']}"
    assert await api.listed() == before


async def test_concurrently_created_agents_are_all_stored_in_one_epoch_each(api: Api) -> None:
    made = await asyncio.gather(*(api.create(POET | {"id": f"poet-{number}"}) for number in range(6)))

    assert {agent["epoch"] for agent in made} == set(range(2, 8))
    assert {f"poet-{number}" for number in range(6)} <= (await api.listed()).keys()


async def test_creation_and_archiving_of_an_agent_are_audited(api: Api) -> None:
    made = await api.create(POET)
    await api.create(POET)
    await api.send("DELETE", "/v1/agents/poet")

    entries = await latest(api.platform.services.storage.engine, "default", limit=5)

    assert [(entry.action, entry.target) for entry in entries] == [
        ("agent.archive", "poet"),
        ("agent.create", "poet"),
    ]
    assert entries[1].detail == {"hash": made["version"]}
    assert entries[0].origin == "127.0.0.1"


async def test_roster_is_built_once_per_tenant_and_epoch(api: Api) -> None:
    for number in range(3):
        await api.create(POET | {"id": f"poet-{number}"})
    registry = api.platform.services.storage.rosters
    epoch = await api.platform.services.storage.epochs.active_number()
    assert epoch is not None

    rosters = [await registry.roster(epoch, tenant) for tenant in ("default", "default", "other")]

    assert rosters[0] is rosters[1]
    assert {"poet-0", "poet-1", "poet-2"} <= rosters[0].cards.keys()
    assert not any(card.kind == "custom" for card in rosters[2].cards.values())
