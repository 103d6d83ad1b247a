"""What a person is told to type."""

from typing import Any

from starling.app.cli.terminal import interrupt_text
from starling.app.cli.terminal.interrupt_text import interrupt_lines, run_reference
from starling.core.teams import building
from tests.support.build_events import APPROVAL

_ASKED: dict[str, Any] = {
    "id": "i1",
    "message": "Somebody wants to call shop.order.",
    "reason": "It may change something.",
    "responseSchema": {"type": "object"},
    "expiresAt": "2026-11-21T11:12:03+00:00",
}


def test_a_run_of_the_default_tenant_is_named_by_its_id() -> None:
    assert run_reference("r1", "default") == "r1"


def test_what_to_type_for_another_tenants_run_names_the_tenant() -> None:
    *_, how = interrupt_lines("approval_required", _ASKED, run_reference("r1", "shop"))

    assert "`starling run approve r1 --tenant shop --id i1` approves it" in how


def test_commands_and_options_are_left_to_a_prompt() -> None:
    options = {"properties": {"answer": {"type": "string", "examples": ["The first disk."]}}}

    lines = list(interrupt_lines("clarification", _ASKED | {"responseSchema": options}, "r1", commands=False))

    assert lines == ["Waits: Somebody wants to call shop.order.", "  It may change something."]


def test_activation_of_a_team_is_shown_with_a_line_for_each_fact() -> None:
    lines = list(interrupt_lines("approval_required", APPROVAL, "r1", commands=False))

    assert lines[:3] == [f"Waits: {APPROVAL['message']}", "  team: machine_watch", "  version: 1"]
    assert "  proof: unproven" in lines


def test_activation_is_known_by_the_name_that_builds_give_it() -> None:
    assert interrupt_text.ACTIVATE_TEAM == building.ACTIVATE_TEAM


def test_exact_arguments_of_an_approval_show_what_would_be_invisible_or_reordered() -> None:
    call = {"name": "shop.order", "args": {"item": "tea\u202e :100: \x9b[bold]"}}

    lines = list(interrupt_lines("approval_required", _ASKED | {"call": call}, "r1", commands=False))

    assert '  shop.order {"item":"tea\\u202e :100: \\u009b[bold]"}' in lines
