"""What each setting of a tool does to a call of it, on the whole path."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from mcp import McpError
from mcp.types import INTERNAL_ERROR, CallToolResult, ErrorData

from starling.core.tool_calls import Effect, Observation
from starling.core.tools import ToolCall
from tests.support.scripted_path import Result, ScriptedPath, ScriptedServer, always, answer, large_answer


def configured(tool: str, /, server: ScriptedServer | None = None, **settings: Any) -> ScriptedPath:
    return ScriptedPath({"tools": {tool: settings}}, server=server or ScriptedServer())


# timeout


async def test_timeout_of_a_tool_ends_its_calls_alone() -> None:
    class Slow(ScriptedServer):
        async def call(self, call: ToolCall, arguments: dict[str, Any], meta: Mapping[str, str]) -> Result:
            if call.tool.name == "find":
                await asyncio.Event().wait()
            return await super().call(call, arguments, meta)

    path = ScriptedPath({"timeout": 9, "tools": {"find": {"effect": "read", "timeout": 0.01}}}, server=Slow())

    slow, quick = await path.made(path.call("find")), await path.made(path.call("order"))

    assert (slow.code, quick.status) == ("timeout", "succeeded")
    assert "within 0.01 s" in slow.text


# input_schema and output_schema

SMALL: dict[str, Any] = {"type": "object", "properties": {"id": {"maximum": 9}}}


@pytest.mark.parametrize(("id_", "code"), [(9, ""), (10, "invalid_arguments")])
async def test_arguments_have_to_fit_the_configured_schema(id_: int, code: str) -> None:
    path = configured("order", input_schema=SMALL)

    outcome = await path.made(path.call("order", arguments={"id": id_}))

    assert (outcome.code, len(path.called)) == (code, 0 if code else 1)


async def test_arguments_have_to_fit_the_schema_of_the_server_too_where_agents_see_another() -> None:
    path = configured("order", input_schema=ANY_PAGE)
    wider = replace(path.tool("order"), input_schema=ANY_PAGE, narrowing="digest")
    listed = replace(path.tool("order"), input_schema=SMALL)
    path.list_tools(listed)

    outcome = await path.made(replace(path.call("order", arguments={"id": 10}), tool=wider))

    assert outcome.code == "invalid_arguments"
    assert "the server's schema" in outcome.text


ANY_PAGE: dict[str, Any] = {"type": "object", "description": "any page"}


@pytest.mark.parametrize(
    ("effect", "data", "observation", "note"),
    [
        ("unsafe", {"id": 9}, Observation.COMPLETED, ""),
        ("unsafe", {"id": 10}, Observation.INVALID_RESULT, "its result can't be used"),
        ("read", {"id": 10}, Observation.INVALID_RESULT, "configured output schema"),
        ("read", None, Observation.INVALID_RESULT, "no structured content"),
    ],
)
async def test_result_has_to_fit_the_configured_schema(
    effect: str, data: dict[str, Any] | None, observation: Observation, note: str
) -> None:
    path = configured("order", ScriptedServer(always(answer(data, "done"))), effect=effect, output_schema=SMALL)

    outcome = await path.made(path.call("order"))

    assert outcome.observation is observation
    assert note in outcome.text


# error_when


@pytest.mark.parametrize(
    ("condition", "data", "text", "fails"),
    [
        ({"pointer": "/status", "equals": "error"}, {"status": "error"}, "", True),
        ({"pointer": "/status", "equals": "error"}, {"status": "ok"}, "", False),
        ({"pointer": "/status", "equals": None}, {"status": None}, "", True),
        ({"pointer": "/status", "equals": None}, {}, "", False),
        ({"pointer": "/code", "equals": 1}, {"code": True}, "", False),
        ({"pointer": "/items/1/error", "equals": 0}, {"items": [{}, {"error": 0}]}, "", True),
        ({"pointer": "/items/2/error", "equals": 0}, {"items": [{}, {"error": 0}]}, "", False),
        ({"pointer": "/items/01", "equals": 2}, {"items": [1, 2]}, "", False),
        ({"pointer": "/a~1b/m~0n", "equals": 1}, {"a/b": {"m~n": 1}}, "", True),
        ({"pointer": "", "equals": None}, None, "text alone", False),
        ({"text_contains": "Error:"}, None, "Error: no such page", True),
        ({"text_contains": "Error:"}, None, "No error", False),
    ],
)
async def test_result_that_meets_a_condition_is_the_tools_own_error(
    condition: dict[str, Any], data: dict[str, Any] | None, text: str, fails: bool
) -> None:
    path = configured("order", ScriptedServer(always(answer(data, text))), error_when=[condition])

    outcome = await path.made(path.call("order"))

    expected = (Observation.TOOL_ERROR, "tool_error") if fails else (Observation.COMPLETED, "")
    assert (outcome.observation, outcome.code) == expected


@pytest.mark.parametrize(
    ("settings", "code", "said"),
    [
        ({"error_when": [{"pointer": "/status", "equals": "error"}]}, "tool_error", ""),
        ({"error_when": [{"pointer": "/status", "equals": "bad"}, {"pointer": "/n", "equals": 2}]}, "", ""),
        ({"output_schema": {"type": "object", "required": ["status"]}}, "", ""),
        ({"output_schema": SMALL, "error_when": [{"text_contains": "Error"}]}, "invalid_result", "10 is greater than"),
    ],
)
async def test_large_structured_content_is_judged_as_a_small_one(
    settings: dict[str, Any], code: str, said: str
) -> None:
    path = configured("order", ScriptedServer(always(large_answer(status="error", n=1, id=10))), **settings)

    outcome = await path.made(path.call("order"))

    assert (outcome.code, said in outcome.text, outcome.large_data) == (code, True, b"")


async def test_result_that_takes_too_much_to_judge_is_no_success() -> None:
    unreadable = replace(large_answer(), data=b"[" * 300_000)  # more levels than the process can read
    path = configured(
        "order", ScriptedServer(always(unreadable)), error_when=[{"pointer": "/status", "equals": "error"}]
    )

    outcome = await path.made(path.call("order"))

    assert (outcome.code, outcome.observation) == ("invalid_result", Observation.INVALID_RESULT)
    assert "takes too much time or memory to check for errors" in outcome.text


# requires_context


async def test_tool_that_requires_context_is_told_run_thread_and_tenant() -> None:
    path = configured("order", requires_context=True)

    await path.made(path.call("order", tenant="red", idempotency_key="k"))
    await path.made(path.call("put"))

    assert [meta for _, _, meta in path.server.calls] == [
        {
            "starling/run-id": "run",
            "starling/thread-id": "thread",
            "starling/tenant": "red",
            "starling/idempotency-key": "k",
            "starling/fence": 0,
        },
        {},
    ]


async def test_tool_that_requires_context_is_not_called_outside_of_a_thread() -> None:
    path = configured("order", requires_context=True)

    outcome = await path.made(path.call("order", thread_id=""))

    assert (outcome.observation, outcome.code, path.called) == (Observation.NOT_SENT, "no_context", [])


# cache_ttl


async def test_equal_read_is_answered_from_the_cache_until_it_expires() -> None:
    path = configured("find", effect="read", cache_ttl=10)
    first = await path.made(path.call("find", arguments={"a": 1, "b": 2}))

    path.now = 9.9
    again = await path.made(path.call("find", arguments={"b": 2, "a": 1}))
    calls_before, path.now = len(path.called), 10.0
    await path.made(path.call("find", arguments={"a": 1, "b": 2}))

    assert (again, calls_before, len(path.called)) == (first, 1, 2)


@pytest.mark.parametrize(
    "other",
    [{"tenant": "red"}, {"arguments": {"id": 2}}, {"arguments": {"id": True}}],
    ids=["tenant", "arguments", "type"],
)
async def test_other_tenants_and_arguments_have_results_of_their_own(other: dict[str, Any]) -> None:
    path = configured("find", effect="read", cache_ttl=10)

    await path.made(path.call("find"))
    await path.made(path.call("find", **other))

    assert len(path.called) == 2


async def test_changed_definition_or_configuration_has_results_of_its_own() -> None:
    options: dict[str, Any] = {"tools": {"find": {"effect": "read", "cache_ttl": 10}}}
    path = ScriptedPath(options)
    await path.made(path.call("find"))

    path.configure({"description": "Moved.", **options})
    await path.made(path.call("find"))
    changed = replace(path.tool("find"), hash="other")
    path.list_tools(changed)
    await path.made(replace(path.call("find"), tool=changed))

    assert len(path.called) == 3


@pytest.mark.parametrize(("pinned", "now"), [*product(Effect, Effect)])
async def test_only_what_reads_in_its_run_and_now_is_answered_from_the_cache(pinned: Effect, now: Effect) -> None:
    """Also where a result was kept while the tool counted as `read`."""
    path = configured("find", effect="read", cache_ttl=10)
    await path.made(path.call("find", Effect.READ))
    options = path.config.options
    changed = options.tool("find").model_copy(update={"effect": now})  # unchecked, as no configuration is
    path.config = path.config.model_copy(update={"options": options.model_copy(update={"tools": {"find": changed}})})
    path.list_tools(path.tool("find"))

    await path.made(path.call("find", pinned))

    assert len(path.called) == (1 if pinned is now is Effect.READ else 2)


@pytest.mark.parametrize("settings", [{"effect": "unsafe"}, {"effect": "read", "requires_context": True}])
async def test_cache_that_contradicts_the_tool_now_is_not_used(settings: dict[str, Any]) -> None:
    path = configured("find", effect="read", cache_ttl=10)
    await path.made(path.call("find"))
    options, _ = path.config.options.with_tool_settings({"find": settings})

    path.configure(options.model_dump(mode="json", exclude_defaults=True))
    await path.made(path.call("find", Effect.READ))

    assert len(path.called) == 2


async def test_failed_reads_are_not_kept() -> None:
    path = configured("find", ScriptedServer(always(answer(text="no", error=True))), effect="read", cache_ttl=10)

    for _ in range(2):
        await path.made(path.call("find"))

    assert len(path.called) == 2


# post_effects

SHOP: dict[str, Any] = {
    "find": {"effect": "read", "cache_ttl": 100},
    "order": {"post_effects": [{"invalidate": "find"}, "relist", {"event": "order.made"}]},
}


def lost(*_: object) -> CallToolResult:
    raise McpError(ErrorData(code=INTERNAL_ERROR, message="lost"))


@pytest.mark.parametrize(
    ("script", "invalidated", "followed"),
    [
        (always(answer({"n": 1})), True, True),
        (lost, True, False),
        (always(answer(text="sold out", error=True)), False, False),
    ],
    ids=["succeeded", "uncertain", "failed"],
)
async def test_effects_follow_what_became_of_a_call(script: Any, invalidated: bool, followed: bool) -> None:
    path = ScriptedPath({"tools": SHOP})
    await path.made(path.call("find"))

    path.server.script = script
    outcome = await path.made(path.call("order", tenant="default"))
    path.server.script = always(answer({"n": 2}))
    await path.made(path.call("find"))

    assert path.called.count("find") == (2 if invalidated else 1)
    assert path.announced == ([("default", "shop.find")] if invalidated else [])
    assert path.relisted == (["shop"] if followed else [])
    assert outcome.events == (("order.made",) if followed else ())


async def test_read_that_was_under_way_during_an_invalidation_is_not_kept() -> None:
    path = configured("find", effect="read", cache_ttl=10)

    def invalidating(*_: object) -> CallToolResult:
        path.cache.invalidate("default", "shop.find")
        return answer({"n": 1})

    path.server.script = invalidating
    for _ in range(2):
        await path.made(path.call("find"))

    assert len(path.called) == 2
