"""The settings of tools under `x-starling`: what is refused, and what wins over what."""

from typing import Any

import pytest
from pydantic import ValidationError

from mcp_gateway.configuration.options import ServerOptions
from mcp_gateway.configuration.servers import checked_server, server_of
from mcp_gateway.registration.repository import ServerRow
from mcp_gateway.registration.server_rows import effective, row_faults, with_tool_settings
from starling.core.errors import ConfigurationError, InvalidRequestError
from starling.core.json import JsonObject
from starling.core.tool_calls import Effect

ALL: dict[str, Any] = {
    "description": "Look at a thing.",
    "input_schema": {"type": "object", "properties": {"id": {"maximum": 9}}},
    "output_schema": {"type": "object", "required": ["id"]},
    "timeout": 3.0,
    "approval": "always",
    "effect": "idempotent",
    "reconcile": "find",
    "reflect": "never",
    "dedup_ttl": 60.0,
    "requires_context": True,
    "post_effects": ["relist", {"invalidate": "find"}, {"event": "order.made"}],
    "error_when": [{"pointer": "/error", "equals": None}, {"text_contains": "Error"}],
}


def test_stored_document_of_all_settings_reads_back_as_they_were() -> None:
    options = {"tools": {"order": ALL, "find": {"effect": "read", "cache_ttl": 9.0}}}
    config = server_of({"command": "shop", "x-starling": options})

    assert config.document["x-starling"] == options
    assert server_of(config.document) == config


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"retries": 3}, "Extra inputs"),
        ({"cache_ttl": 3}, "cache_ttl needs the effect read"),
        ({"effect": "idempotent", "cache_ttl": 3}, "cache_ttl needs the effect read"),
        ({"effect": "read", "cache_ttl": 3, "requires_context": True}, "can't be used with requires_context"),
        ({"effect": "read", "dedup_ttl": 3}, "dedup_ttl is for tools that may change something"),
        ({"side_effect_free": True, "dedup_ttl": 3}, "dedup_ttl is for tools that may change something"),
        ({"dedup_ttl": 0}, "greater than 0"),
        ({"effect": "read", "cache_ttl": 1e9}, "less than or equal"),
        ({"timeout": -1}, "greater than 0"),
        ({"input_schema": {"type": "string"}}, "input_schema doesn't describe an object"),
        ({"output_schema": {"type": "object", "properties": 3}}, "output_schema is not a valid JSON schema"),
        ({"reflect": "sometimes"}, "'always', 'risky' or 'never'"),
        ({"post_effects": ["exec"]}, 'must be "relist"'),
        ({"post_effects": [{"invalidate": "find", "run": "rm"}]}, "Extra inputs"),
        ({"post_effects": [{"event": "Not A Name"}]}, "match pattern"),
        ({"error_when": [{"pointer": "/a"}]}, "either a pointer and equals, or text_contains"),
        ({"error_when": [{"equals": 1}]}, "either a pointer and equals, or text_contains"),
        ({"error_when": [{"pointer": "/a", "text_contains": "x"}]}, "either a pointer and equals, or text_contains"),
        ({"error_when": [{"text_contains": None}]}, "either a pointer and equals, or text_contains"),
        ({"error_when": [{"pointer": "a", "equals": 1}]}, "must be a JSON pointer"),
        ({"error_when": [{"text": "a"}]}, "Extra inputs"),
    ],
)
def test_setting_outside_of_the_closed_schema_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said.replace("(", "\\(")):
        ServerOptions.model_validate({"tools": {"order": settings}})


OLD: dict[str, Any] = {"error_when": [{"pointer": "/a", "matches": "^x"}, {"text_contains": "Error"}]}


def test_removed_condition_is_refused_where_it_is_configured() -> None:
    with pytest.raises(ConfigurationError, match="order: its `error_when` has `matches` or `exists`"):
        checked_server("shop", {"command": "shop", "x-starling": {"tools": {"order": OLD}}})
    with pytest.raises(InvalidRequestError, match="has `matches` or `exists`"):
        with_tool_settings(stored_row({}), "order", OLD)


@pytest.mark.parametrize("tool_settings", [{}, {"order": OLD}])
def test_removed_condition_that_is_stored_is_ignored_and_reported(tool_settings: dict[str, JsonObject]) -> None:
    row = stored_row({} if tool_settings else {"tools": {"order": OLD}}, tool_settings)

    [kept] = effective(row).options.tool("order").error_when
    assert kept.text_contains == "Error"
    assert row_faults(row)[0] == "Conditions of these tools are ignored: order."


def stored_row(options: JsonObject, tool_settings: dict[str, JsonObject] | None = None) -> ServerRow:
    config: JsonObject = {"command": "shop", "x-starling": options}
    tools = {"order": "hash"}
    return ServerRow("shop", config, "", "file", "ready", "", tools, tool_settings=tool_settings or {})


def test_cache_and_deduplication_go_by_the_effect_of_the_server_too() -> None:
    reading = ServerOptions.model_validate({"effect": "read", "tools": {"find": {"cache_ttl": 3}}})

    assert reading.effect_of("find") is Effect.READ
    with pytest.raises(ValidationError, match="dedup_ttl"):
        ServerOptions.model_validate({"effect": "read", "tools": {"find": {"dedup_ttl": 3}}})


@pytest.mark.parametrize(("flag", "policy"), [(True, "always"), (False, None), ("risky", "risky")])
def test_reflect_takes_the_flag_of_old_configurations(flag: object, policy: object) -> None:
    assert ServerOptions.model_validate({"tools": {"find": {"reflect": flag}}}).tool("find").reflect == policy


@pytest.mark.parametrize(
    ("below", "above", "expected"),
    [
        ({"timeout": 3, "approval": "always"}, {"timeout": 5}, {"timeout": 5.0, "approval": "always"}),
        ({"effect": "read"}, {"effect": "unsafe"}, {"effect": "unsafe"}),
        ({"side_effect_free": True}, {"effect": "unsafe"}, {"effect": "unsafe"}),
        ({"effect": "unsafe"}, {"side_effect_free": True}, {"side_effect_free": True}),
        ({"requires_context": True}, {"requires_context": False}, {}),
        ({}, {"description": "Ours."}, {"description": "Ours."}),
    ],
)
def test_settings_of_a_tool_win_over_those_of_the_configuration(
    below: dict[str, Any], above: dict[str, Any], expected: dict[str, Any]
) -> None:
    options = ServerOptions.model_validate({"timeout": 9, "tools": {"order": below}})

    merged, faults = options.with_tool_settings({"order": above})

    assert (merged.tool("order").model_dump(mode="json", exclude_defaults=True), faults) == (expected, ())
    assert merged.timeout == 9


@pytest.mark.parametrize(
    ("below", "above", "said"),
    [
        ({"effect": "read", "requires_context": True}, {"cache_ttl": 5}, "requires_context"),
        ({"effect": "unsafe"}, {"cache_ttl": 5}, "cache_ttl needs the effect read"),
        ({"effect": "read", "cache_ttl": 5}, {"effect": "unsafe"}, "cache_ttl needs the effect read"),
        ({"dedup_ttl": 5}, {"effect": "read"}, "dedup_ttl is for tools"),
    ],
)
def test_contradiction_of_both_uses_neither_cache_nor_deduplication(
    below: dict[str, Any], above: dict[str, Any], said: str
) -> None:
    options = ServerOptions.model_validate({"tools": {"order": below}})

    merged, (fault,) = options.with_tool_settings({"order": above})

    assert (merged.tool("order").cache_ttl, merged.tool("order").dedup_ttl) == (None, None)
    assert fault.startswith("order: ")
    assert said in fault
