"""Names that a model can say."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brain.agents.tools.toolbox import Toolbox
from starling.core.tool_calls import Effect
from starling.core.tools import CONTINUE, ToolDefinition


def tool(name: str) -> ToolDefinition:
    return ToolDefinition("bench", name, f"Does {name}.", {"type": "object"}, None, Effect.READ, name)


def test_a_name_that_can_be_said_stays() -> None:
    toolbox = Toolbox.of([tool("get_time")])

    assert list(toolbox.tools) == ["get_time"]
    assert [spec.name for spec in toolbox.specs] == ["get_time", CONTINUE]
    assert toolbox.specs[0].description == "Does get_time."


def test_names_that_collide_get_a_number() -> None:
    toolbox = Toolbox.of([tool("a.b"), tool("a/b"), tool("a_b")])

    assert [(name, tool.name) for name, tool in toolbox.tools.items()] == [
        ("a_b", "a.b"),
        ("a_b_2", "a/b"),
        ("a_b_3", "a_b"),
    ]


@pytest.mark.parametrize("written", ["get_time", "bench.get_time", "mcp_agent_bench.get_time", "Get-Time"])
def test_tool_is_found_by_names_that_can_only_mean_it(written: str) -> None:
    found = Toolbox.of([tool("get_time"), tool("set_time")]).tool(written)

    assert found is not None
    assert found.name == "get_time"


@pytest.mark.parametrize("written", ["time", "shop.get_time", "get_tim"])
def test_tool_that_was_not_offered_is_not_replaced_by_another(written: str) -> None:
    toolbox = Toolbox.of([tool("get_time"), tool("set_time")])

    assert toolbox.tool(written) is None
    assert toolbox.unknown("get_tim") == "There is no tool 'get_tim'. Did you mean get_time or set_time?"


def test_no_tool_takes_the_name_of_continue() -> None:
    toolbox = Toolbox.of([tool(CONTINUE)])

    assert list(toolbox.tools) == ["continue_2"]


def test_without_tools_there_is_nothing_to_continue() -> None:
    assert Toolbox.of([]).specs == ()


@given(st.lists(st.text(max_size=80), max_size=8))
def test_every_tool_has_a_name_of_its_own_that_models_accept(names: list[str]) -> None:
    toolbox = Toolbox.of([tool(name) for name in names])

    assert [tool.name for tool in toolbox.tools.values()] == names
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in toolbox.tools)
