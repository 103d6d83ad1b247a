"""The governance table: how its rows add up, and what it refuses."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from starling.core.governance import CELLS, GovernanceRow, GovernanceTable
from starling.core.llm import ModelRole
from starling.core.runs import Channel, Mode

ROWS = st.fixed_dictionaries(
    {},
    optional={
        "roles": st.lists(st.sampled_from(list(ModelRole)), min_size=1, max_size=3),
        "tools": st.lists(st.sampled_from(["a.*", "b.*", "a.x", "a.y", "b.x"]), max_size=3),
        "effects": st.lists(st.sampled_from(["read", "idempotent", "unsafe"]), max_size=3),
        "iterations": st.integers(1, 50),
        "iteration_factor": st.integers(1, 10),
        "max_tokens": st.integers(16, 5_000),
        "temperature": st.floats(0, 2),
        "seconds": st.floats(1, 100),
        "approval": st.sampled_from(["never", "unsafe", "always"]),
        "review": st.sampled_from(["never", "risky", "always"]),
        "direct_agent": st.sampled_from(["", "coder", "generalist"]),
    },
).map(GovernanceRow.model_validate)


def table(**parts: Any) -> GovernanceTable:
    return GovernanceTable.model_validate(parts)


@given(ROWS, ROWS)
def test_narrowed_row_allows_no_more_than_either_row(first: GovernanceRow, second: GovernanceRow) -> None:
    both = first.narrowed(second)

    for row in (first, second.model_copy(update={"review": None})):
        assert row.joined(both).members() | {"direct_agent": "", "default_role": ""} == both.members() | {
            "direct_agent": "",
            "default_role": "",
        }


@given(ROWS)
def test_row_is_the_same_once_it_was_stored(row: GovernanceRow) -> None:
    assert GovernanceRow.model_validate_json(row.model_dump_json()) == row


def test_every_cell_can_be_set_by_itself() -> None:
    cells = {f"{mode}/{channel}": {"seconds": number} for number, (mode, channel) in enumerate(CELLS, 1)}

    made = table(cells=cells)

    assert [made.row(*cell).seconds for cell in CELLS] == [*range(1, 10)]


def test_members_that_are_left_out_have_their_defaults() -> None:
    row = table(modes={"CONSERVATIVE": {"seconds": 60}}).row(Mode.CONSERVATIVE, Channel.CHAT)

    assert (row.seconds, row.effects, row.roles) == (60, ("read",), ("reasoning", "router"))


def test_cell_holds_in_place_of_its_mode_and_channel() -> None:
    made = table(
        modes={"MODERATE": {"seconds": 60, "max_tokens": 100}},
        cells={"MODERATE/CODE_TASK": {"direct_agent": "", "seconds": 90}},
    )

    row = made.row(Mode.MODERATE, Channel.CODE_TASK)

    assert (row.seconds, row.max_tokens, row.direct_agent) == (90, 100, "")


def test_rows_of_a_tenant_only_narrow_those_of_all() -> None:
    made = table(
        modes={"MODERATE": {"tools": ["bench.*"], "max_tokens": 500, "approval": "unsafe"}},
        tenants={
            "acme": {
                "modes": {"MODERATE": {"tools": ["bench.look", "shop.*"], "max_tokens": 900, "approval": "never"}},
                "channels": {"CHAT": {"seconds": 30, "iteration_factor": 9, "review": "never"}},
            }
        },
    )

    own, others = (made.row(Mode.MODERATE, Channel.CHAT, tenant) for tenant in ("acme", "other"))

    assert own.members() == {
        "tools": ("bench.look",),
        "iteration_factor": 1,
        "max_tokens": 500,
        "temperature": 0.3,
        "seconds": 30,
        "approval": "unsafe",
    }
    assert others == made.row(Mode.MODERATE, Channel.CHAT)


def test_bounds_of_a_tenant_that_have_no_effect_are_named() -> None:
    made = table(
        modes={"MODERATE": {"max_tokens": 500}},
        tenants={
            "acme": {
                "modes": {
                    "CONSERVATIVE": {"effects": ["read", "unsafe"]},
                    "MODERATE": {"max_tokens": 400, "review": "risky"},  # where no policy is set, all is reviewed
                    "EXPLORATORY": {"review": "always"},
                },
                "channels": {"CHAT": {"effects": ["read", "unsafe"]}},  # narrows the other two modes
            }
        },
    )

    found = [text.partition(" ")[0] for text in made.ineffective()]

    assert found == ["tenants.acme.modes.CONSERVATIVE.effects", "tenants.acme.modes.MODERATE.review"]


WRONG: dict[str, list[Any]] = {
    "second": [5],
    "seconds": [0, -1, "soon"],
    "iterations": [0, 1.5],
    "iteration_factor": [0],
    "max_tokens": [0],
    "temperature": [-0.1, 99],
    "roles": [["router", "poet"], []],
    "effects": [["read", "none"], "read"],
    "tools": [["effects"], ["*"], [7]],
    "approval": ["sometimes"],
    "review": [True],
}


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"modes": {"BOLD": {}}}, "modes.BOLD"),
        ({"modes": {"moderate": {}}}, "modes.moderate"),
        ({"modes": {"MODERATE": []}}, "modes.MODERATE"),
        ({"modes": list[Any]()}, "modes"),
        ({"channels": {"MODERATE": {}}}, "channels.MODERATE"),
        ({"cells": {"CHAT/MODERATE": {}}}, "cells.CHAT/MODERATE"),
        ({"cells": {"MODERATE/CHAT/": {}}}, "cells.MODERATE/CHAT/"),
        ({"rows": {}}, "rows"),
        ({"tenants": {"acme": {"tenants": {}}}}, "tenants.acme.tenants"),
        ({"tenants": {"acme": {"modes": {"MODERATE": {"seconds": 0}}}}}, "tenants.acme.modes.MODERATE.seconds"),
        *(
            ({"modes": {"MODERATE": {name: value}}}, f"modes.MODERATE.{name}")
            for name, values in WRONG.items()
            for value in values
        ),
        ({"cells": {"MODERATE": {}}}, "cells.MODERATE"),
        ({"channels": {"CHAT": {"roles": ["poet"]}}}, "channels.CHAT.roles.0"),
        ({"channels": {"CHAT": {"roles": []}}}, "channels.CHAT.roles"),
        ({"channels": {"CHAT": {"tools": ["look"]}}}, "channels.CHAT.tools.0"),
        ({"tenants": {"acme": {"modes": {"MODERATE": {"budget": 1}}}}}, "tenants.acme.modes.MODERATE.budget"),
        (
            {"modes": {"MODERATE": {"roles": ["router"]}}, "channels": {"CHAT": {"roles": ["reasoning"]}}},
            "no role is left in MODERATE/CHAT",
        ),
        (
            {"tenants": {"acme": {"modes": {"CONSERVATIVE": {"roles": ["coding"]}}}}},
            "no role is left in CONSERVATIVE/CHAT for the tenant acme",
        ),
    ],
)
def test_wrong_table_is_refused_with_the_place(parts: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as raised:
        table(**parts)

    assert said in str(raised.value)
