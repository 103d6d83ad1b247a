"""The grant, looked at where a call leaves."""

import pytest

from starling.core.principal import Grant
from tests.support.scripted_path import ScriptedPath


@pytest.mark.parametrize(
    ("grant", "reached"),
    [
        (None, True),
        (Grant(servers=frozenset({"shop"})), True),
        (Grant(tools=frozenset({"shop.order"})), True),
        (Grant(), False),
        (Grant(servers=frozenset({"shops", "sho"})), False),
        (Grant(servers=frozenset({"git"}), tools=frozenset({"shop.find"})), False),
    ],
)
async def test_only_what_is_granted_is_reached(grant: Grant | None, reached: bool) -> None:
    path = ScriptedPath()

    outcome = await path.made(path.call("order", grant=grant))

    assert (path.called == ["order"]) is reached
    assert outcome.code == ("" if reached else "not_allowed")
