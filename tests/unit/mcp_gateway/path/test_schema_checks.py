"""Arguments that can't be sent unchanged are refused, all others sent as they are."""

from typing import Any

import pytest

from tests.support.scripted_path import ScriptedPath


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("a\0b", r"the character NUL in the text 'a\x00b'"),
        ({"\0": 1}, "the character NUL"),
        (float("nan"), "the number nan"),
        (2**64 + 1, f"the number {2**64 + 1}, which a double doesn't hold"),
        (10**4_000, "the number of 13,288 bits"),
    ],
)
async def test_arguments_that_json_cannot_carry_unchanged_are_refused(value: Any, named: str) -> None:
    path = ScriptedPath({"effect": "read"})

    outcome = await path.made(path.call("find", arguments={"id": value}))

    assert (outcome.code, outcome.observation, path.called) == ("invalid_arguments", "not_sent", [])
    assert f"The arguments of shop.find can't be sent unchanged: they contain {named}" in outcome.text


@pytest.mark.parametrize(
    "value", [2**64, -(2**63), 2**63 - 1, 1e308, 5e-324, -0.0, "😀 \u2028\x1b\x7f", None, [None, {"a": None}]]
)
async def test_unusual_arguments_are_sent_as_they_are(value: Any) -> None:
    path = ScriptedPath({"effect": "read"})

    await path.made(path.call("find", arguments={"id": value}))

    [(_, arguments, _)] = path.server.calls
    assert repr(arguments) == repr({"id": value})
