"""Names of agents and tools as models write them."""

import pytest

from starling.core.model_output.names import aliases, near_matches, resolve

TOOLS = aliases(
    {
        "get_current_time": ["time.get_current_time", "mcp_agent_time.get_current_time"],
        "read": ["files.read"],
        "read_2": ["notes.read"],
    }
)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("get_current_time", "get_current_time"),
        ("time.get_current_time", "get_current_time"),
        ("time_get_current_time", "get_current_time"),
        ("mcp_agent_time.get_current_time", "get_current_time"),
        ("Get-Current-Time", "get_current_time"),
        ("`getCurrentTime`", "get_current_time"),
        ("functions.get_current_time", "get_current_time"),
        ("functions.time.get_current_time", "get_current_time"),
        ("notes.read", "read_2"),
        ("time", None),
        ("current_time", None),
        ("clock.get_current_time", None),  # of a server that isn't there
        ("delete", None),
        ("", None),
    ],
)
def test_name_is_resolved_where_only_one_can_be_meant(written: str, meant: str | None) -> None:
    assert resolve(written, TOOLS) == meant


def test_alias_of_two_names_means_neither() -> None:
    known = aliases({"mcp_agent_test_db": ["db"], "mcp_agent_prod_db": ["db"]})

    assert resolve("db", known) is None


def test_name_counts_before_the_alias_of_another() -> None:
    assert resolve("time", aliases({"time": (), "mcp_agent_time": ["time"]})) == "time"


@pytest.mark.parametrize(
    ("written", "near"),
    [
        ("get_curent_time", ["get_current_time"]),
        ("current_time", ["get_current_time"]),
        ("get_weather", ["get_forecast", "get_current_time"]),
        ("xyz", []),
    ],
)
def test_near_matches_are_alike_or_share_a_word(written: str, near: list[str]) -> None:
    found = near_matches(written, ["get_current_time", "get_forecast", "delete_file"])

    assert sorted(found) == sorted(near)
