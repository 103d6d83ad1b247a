"""Calls of a trial: those that may change something are answered by its fixtures, and go no further."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mcp_gateway.configuration.servers import server_of
from mcp_gateway.connections import build_path
from mcp_gateway.gateway import GatewayParts
from mcp_gateway.path.trials import NOT_EXECUTED
from mcp_gateway.registration.known_servers import Directory
from mcp_gateway.sessions.pool import SessionPool
from starling.core.clock import Deadline, SystemClock
from starling.core.json import Json
from starling.core.principal import Grant
from starling.core.settings.schema import Limits
from starling.core.tool_calls import Effect, Observation
from starling.core.tools import CallRecord, ServerListing, ToolCall, ToolDefinition, ToolOutcome, Trial, TrialResult
from tests.support.absent_services import DISABLED_ARTIFACT_STORE, NO_HALTS

NAMED = {"type": "object", "properties": {"id": {"type": "integer", "minimum": 7}}, "required": ["id"]}
INPUT = {"type": "object", "properties": {"item": {"type": "string"}}}


@dataclass
class RefusedError(Exception):
    """A server was called, or the record of a run was used."""

    what: str


@dataclass
class NothingUsed:
    """Sessions and a record that must not be used."""

    used: list[str] = field(default_factory=list[str])

    def __getattr__(self, name: str) -> Any:
        raise RefusedError(name)

    def sent_by_original(self, call: ToolCall) -> str:
        del call
        return ""


def order(effect: Effect = Effect.UNSAFE, output: dict[str, Any] | None = None) -> ToolDefinition:
    return ToolDefinition("shop", "order", "", INPUT, output, effect, "hash")


def fixture(result: Json, arguments: dict[str, Json] | None = None, tool: str = "shop.order") -> TrialResult:
    return TrialResult(tool, arguments, result)


def call(tool: ToolDefinition, *fixtures: TrialResult, item: object = "tea") -> ToolCall:
    return ToolCall("t1.0.0", "run", "t1", tool, {"item": cast("Json", item)}, trial=Trial(fixtures))


async def made(call: ToolCall, *, chars: int = 20_000, approval: Any = "always") -> ToolOutcome:
    """Take a call through the whole path, in which every call needs approval, and no server can be reached."""
    directory = Directory()
    config = server_of({"command": "shop", "x-starling": {"approval": approval}})
    directory.replace({"shop": config}, [ServerListing("shop", "", config.hash, "ready", (call.tool,))])
    sessions, record = cast("SessionPool", NothingUsed()), cast("CallRecord", NothingUsed())
    stored, live = cast("Any", SimpleNamespace(claims=NothingUsed())), cast("Any", SimpleNamespace(relist=None))
    limits = Limits(tool_result_chars=chars)
    parts = GatewayParts(stored, stored, limits, {}, NO_HALTS, DISABLED_ARTIFACT_STORE, directory)
    path = build_path(parts, sessions, live, cast("Any", None))
    return await path(call, Deadline(SystemClock(), 1), record)


@pytest.mark.parametrize("effect", [Effect.UNSAFE, Effect.IDEMPOTENT])
@pytest.mark.parametrize(
    ("fixtures", "text"),
    [
        ([fixture("any"), fixture("exact", {"item": "tea"}), fixture("second", {"item": "tea"})], "exact"),
        ([fixture("other", {"item": "milk"}), fixture("any"), fixture("later")], "any"),
        ([fixture(["a", 1])], '["a",1]'),
        ([fixture({"ok": True})], '{"ok":true}'),
    ],
    ids=["exact", "any", "list", "object"],
)
async def test_call_of_a_trial_gets_the_fixture_that_fits(
    effect: Effect, fixtures: Sequence[TrialResult], text: str
) -> None:
    outcome = await made(call(order(effect), *fixtures))

    mark, _, result = outcome.text.partition("\n")
    assert (outcome.observation, outcome.simulated, result) == (Observation.COMPLETED, "fixture", text)
    assert mark.startswith("[simulated: ")
    assert "shop.order was not called" in mark
    assert outcome.data == ({"ok": True} if text.startswith("{") else None)


async def test_fixture_that_is_not_an_object_is_wrapped_as_servers_do_it() -> None:
    output = {"type": "object", "properties": {"result": {"type": "string"}}, "required": ["result"]}

    outcome = await made(call(order(output=output), fixture("bought")))

    assert (outcome.status, outcome.data) == ("succeeded", {"result": "bought"})
    assert outcome.text.endswith("]\nbought")


async def test_fixture_for_equal_numbers_fits_however_they_are_written() -> None:
    tool = replace(order(), input_schema={"type": "object"})

    outcome = await made(call(tool, fixture("exact", {"item": 1}), item=1.0))

    assert outcome.text.endswith("]\nexact")


async def test_fixture_that_is_a_failure_fails() -> None:
    failed = ToolOutcome(Observation.TOOL_ERROR, "Sold out.", code="tool_error")

    outcome = await made(call(order(output=NAMED), TrialResult("shop.order", {"item": "tea"}, outcome=failed)))

    assert (outcome.status, outcome.code, outcome.simulated) == ("failed", "tool_error", "fixture")
    assert outcome.text.endswith("]\nSold out.")


async def test_fixture_that_was_cut_before_keeps_its_artifact() -> None:
    text = "x" * 1_000
    cut = ToolOutcome(Observation.COMPLETED, text, truncated=True, artifact="a" * 64, characters=5_000)

    outcome = await made(call(order(output=NAMED), TrialResult("shop.order", None, outcome=cut)), chars=1_000)

    assert (outcome.artifact, outcome.characters, outcome.text.partition("\n")[2]) == ("a" * 64, 5_000, text)


@pytest.mark.parametrize("output", [NAMED, None])
async def test_call_without_a_fixture_is_recorded_and_not_executed(output: dict[str, Any] | None) -> None:
    outcome = await made(call(order(output=output), fixture("of another tool", tool="shop.put")))

    assert (outcome.observation, outcome.simulated, outcome.data) == (Observation.COMPLETED, "simulated", None)
    mark, _, result = outcome.text.partition("\n")
    assert (mark.startswith("[simulated: "), result) == (True, NOT_EXECUTED)
    assert "take it as done" in mark


@pytest.mark.parametrize(
    ("result", "why"), [({"id": 3}, "result.id: 3 is less than the minimum of 7"), ("3", "it is not an object")]
)
async def test_fixture_that_violates_the_output_schema_is_an_invalid_result(result: Json, why: str) -> None:
    outcome = await made(call(order(output=NAMED), fixture(result)))

    assert (outcome.status, outcome.code, outcome.simulated) == ("failed", "invalid_result", "fixture")
    assert outcome.text.startswith("[simulated: ")
    assert why in outcome.text


async def test_fixture_that_is_too_long_is_cut() -> None:
    outcome = await made(call(order(), fixture("x" * 5_000)), chars=1_000)

    assert (outcome.truncated, outcome.simulated) == (True, "fixture")
    assert len(outcome.text) <= 1_000


@pytest.mark.parametrize(
    ("changed", "code"),
    [({"arguments": {"item": 3}}, "invalid_arguments"), ({"grant": Grant(frozenset(["bench"]))}, "not_allowed")],
)
async def test_call_of_a_trial_keeps_to_grant_and_input_schema(changed: dict[str, Any], code: str) -> None:
    outcome = await made(replace(call(order(), fixture("given")), **changed))

    assert (outcome.observation, outcome.code, outcome.simulated) == (Observation.NOT_SENT, code, "")


@pytest.mark.parametrize(
    ("changed", "approval", "reached"),
    [
        ({"tool": order(Effect.READ)}, "always", "approve"),
        ({"tool": order(Effect.READ)}, "never", "use"),
        ({"trial": None}, "always", "approve"),
        ({"trial": None}, "never", "dispatch"),
    ],
    ids=["read_approved", "read", "no_trial_approved", "no_trial"],
)
async def test_read_tools_and_calls_outside_of_trials_take_the_usual_path(
    changed: dict[str, Any], approval: str, reached: str
) -> None:
    with pytest.raises(RefusedError) as refused:
        await made(replace(call(order(), fixture("given")), **changed), approval=approval)

    assert refused.value.what == reached
