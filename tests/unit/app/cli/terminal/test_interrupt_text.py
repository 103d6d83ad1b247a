"""What a person is told to type."""

from typing import Any

from starling.app.cli.terminal.interrupt_text import interrupt_lines, run_reference

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
