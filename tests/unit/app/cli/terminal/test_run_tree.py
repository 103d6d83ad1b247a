"""The tree of a run as lines of text."""

from typing import Any

from rich.cells import cell_len

from starling.app.cli.terminal.run_tree import tree_lines


def node(text: str, state: str, *children: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"text": text, "state": state, "seconds": None, "tokens": None, "children": list(children)} | more


TREE = node(
    "How warm is it?",
    "failed",
    node("decision 1", "planned", tokens=1800, seconds=0.25),
    node(
        "t1 mcp_agent_weather: " + "How warm is it in Lima? " * 5, "failed", node("attempt 1", "rejected"), seconds=2.5
    ),
    node("最終的な答え" * 20, "written"),
)


def test_lines_have_state_time_and_tokens_and_fit_in_eighty_columns() -> None:
    lines = [line for line, _ in tree_lines(TREE, 80)]

    assert lines[:2] == ["How warm is it?  failed", "├─ decision 1  planned  250 ms  1,800 tokens"]
    assert lines[2].endswith("…  failed  2.5 s")
    assert lines[3] == "│  └─ attempt 1  rejected"
    assert max(map(cell_len, lines)) <= 80


def test_lines_come_with_the_state_of_what_they_show() -> None:
    assert [state for _, state in tree_lines(TREE, 80)] == ["failed", "planned", "failed", "rejected", "written"]
