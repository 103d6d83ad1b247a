"""Settings of single tools on top of a server's configuration: what may be set, and where each value comes from."""

from collections.abc import Mapping
from typing import Any

import pytest

from mcp_gateway.configuration.servers import server_of
from mcp_gateway.registration.repository import ServerRow
from mcp_gateway.registration.server_rows import effective, row_faults, tool_values, with_tool_settings
from starling.core.errors import InvalidRequestError, NotFoundError

LISTED = {"description": "Finds.", "inputSchema": {"type": "object"}}


def shop(options: Mapping[str, Any], settings: Mapping[str, Any] | None = None) -> ServerRow:
    config = server_of({"command": "shop", "x-starling": options})
    tools = {"order": "1", "find": "2"}
    return ServerRow(
        "shop", config.document, config.hash, "file", "ready", "", tools, tool_settings={"find": settings or {}}
    )


def test_each_value_says_where_it_comes_from() -> None:
    row = shop(
        {"effect": "read", "approval": "unsafe", "tools": {"find": {"timeout": 3, "reflect": "never"}}},
        {"timeout": 9.0, "cache_ttl": 5.0},
    )

    found = {name: (value.value, value.source) for name, value in tool_values(row, "find", LISTED).items()}

    assert found == {
        "description": ("Finds.", "listing"),
        "input_schema": ({"type": "object"}, "listing"),
        "output_schema": (None, "listing"),
        "timeout": (9.0, "tool_settings"),
        "approval": ("unsafe", "configuration"),
        "effect": ("read", "configuration"),
        "side_effect_free": (False, "default"),
        "reconcile": (None, "default"),
        "reflect": ("never", "configuration"),
        "cache_ttl": (5.0, "tool_settings"),
        "dedup_ttl": (None, "default"),
        "requires_context": (False, "default"),
        "post_effects": ([], "default"),
        "error_when": ([], "default"),
        "secrets": ([], "default"),
    }


def test_effect_by_its_alias_has_the_source_of_the_alias() -> None:
    values = tool_values(shop({}, {"side_effect_free": True}), "find", LISTED)

    assert (values["effect"].value, values["effect"].source) == ("read", "tool_settings")


@pytest.mark.parametrize(
    ("written", "settings", "effect"),
    [
        ({"effect": "unsafe"}, {"side_effect_free": False}, "unsafe"),
        ({"effect": "unsafe"}, {"side_effect_free": True}, "read"),
        ({"side_effect_free": True}, {"side_effect_free": False}, "read"),
        ({"side_effect_free": True}, {"effect": "idempotent"}, "idempotent"),
    ],
)
def test_effect_set_for_a_tool_wins_and_an_alias_that_is_off_sets_none(
    written: dict[str, Any], settings: dict[str, Any], effect: str
) -> None:
    row = shop({"effect": "read", "tools": {"find": written}}, settings)

    assert effective(row).options.effect_of("find").value == effect


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"retries": 3}, "retries: there is no such field"),
        ({"reconcile": "find"}, "can't reconcile itself"),
        ({"reconcile": "lookup"}, "tools that the server doesn't have: lookup"),
        ({"post_effects": [{"invalidate": "lookup"}]}, "tools that the server doesn't have: lookup"),
        ({"description": "a\x00b"}, "NUL"),
    ],
)
def test_settings_that_cannot_work_are_refused(document: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        with_tool_settings(shop({}), "find", document)

    assert said in refused.value.message


def test_settings_of_a_tool_that_is_not_there_are_refused() -> None:
    with pytest.raises(NotFoundError, match=r"shop\.lookup"):
        with_tool_settings(shop({}), "lookup", {"timeout": 3})


@pytest.mark.parametrize("document", [{}, {"timeout": None}])
def test_empty_settings_take_back_those_that_were_set(document: dict[str, Any]) -> None:
    row = with_tool_settings(shop({}, {"timeout": 9.0}), "find", document)

    assert row.tool_settings == {}
    assert effective(row) == server_of(row.config)


def test_file_that_contradicts_the_settings_later_is_a_fault_of_its_server() -> None:
    row = shop({"tools": {"find": {"effect": "unsafe"}}}, {"cache_ttl": 5.0})

    error, remedy = row_faults(row)

    assert "find: cache_ttl needs the effect read" in error
    assert "--unset" in remedy
    assert effective(row).options.tool("find").cache_ttl is None
