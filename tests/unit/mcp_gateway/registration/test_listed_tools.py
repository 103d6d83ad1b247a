"""Faults of servers that can be used all the same."""

import pytest

from mcp_gateway.configuration.options import ServerOptions
from mcp_gateway.registration.listed_tools import Listed
from starling.core.json import JsonObject


@pytest.mark.parametrize(
    ("hints", "options", "warned"),
    [
        ({"readOnlyHint": False}, {"effect": "read"}, True),
        ({"destructiveHint": True}, {"tools": {"order": {"side_effect_free": True}}}, True),
        ({"readOnlyHint": True, "destructiveHint": False}, {"effect": "read"}, False),
        ({}, {"effect": "read"}, False),
        ({"readOnlyHint": False}, {"effect": "read", "tools": {"order": {"effect": "unsafe"}}}, False),
        ({"readOnlyHint": False}, {}, False),
    ],
)
def test_hint_of_a_server_against_the_effect_read_is_a_warning(
    hints: JsonObject, options: JsonObject, warned: bool
) -> None:
    listed = Listed("", {"order": {"name": "order", "annotations": hints}})

    faults = listed.faults(ServerOptions.model_validate(options))

    assert [("order" in fault, "unsafe" in remedy) for fault, remedy in faults] == [(True, True)] * warned
