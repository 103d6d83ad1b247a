"""How a server is described that says nothing about itself."""

import pytest

from mcp_gateway.registration.listed_tools import described_by_tools
from starling.core.json import JsonObject


@pytest.mark.parametrize(
    ("tools", "text"),
    [
        ({}, "mcp-time"),
        (
            {
                "get_current_time": {"description": "Get the time in a zone. Uses IANA names."},
                "convert_time": {"description": "Convert time\nbetween zones"},
            },
            "mcp-time: Get the time in a zone; Convert time between zones",
        ),
        ({"list-all_zones": {}}, "mcp-time: list all zones"),
        ({"now": {"description": "Version 1.2 of now!\n\nMore."}}, "mcp-time: Version 1.2 of now!"),
    ],
)
def test_server_is_described_by_the_first_sentences_of_its_tools(tools: dict[str, JsonObject], text: str) -> None:
    assert described_by_tools("mcp-time", tools) == text
