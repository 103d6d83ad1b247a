"""Calls whose server is unavailable: which are made again, and under which key; which count as failures of it."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from mcp import McpError
from mcp.types import INVALID_PARAMS, ErrorData

from brain.durability.ledger import Ledger
from mcp_gateway.path import attempts
from mcp_gateway.sessions.messages import IDEMPOTENCY_KEY
from starling.core.clock import Deadline, SystemClock
from starling.core.errors import ServerUnavailableError
from starling.core.tool_calls import CallState, Effect, Observation
from starling.core.tools import ToolCall
from tests.support.in_memory_run import make_execution
from tests.support.scripted_path import Result, ScriptedPath, ScriptedServer

GONE = ServerUnavailableError("shop", "it has ended.")
KEY = "shop", ScriptedPath().config.hash
type Failure = Literal["while it opens", "during the call"]


@dataclass
class UnavailableOnce(ScriptedServer):
    """Fails the first time that it is used, before or after the call has left."""

    failure: Failure = "during the call"
    used: int = 0

    async def opened(self) -> None:
        self.used += 1
        if self.used == 1 and self.failure == "while it opens":
            raise GONE

    async def call(self, call: ToolCall, arguments: dict[str, Any], meta: Mapping[str, str]) -> Result:
        result = await super().call(call, arguments, meta)
        if self.used == 1:
            raise GONE
        return result

    @property
    def keys(self) -> list[str | None]:
        """The idempotency key that each call was sent with."""
        return [meta.get(IDEMPOTENCY_KEY) for _, _, meta in self.calls]


class LostThenRejected(ScriptedServer):
    """Carries a call out and loses its connection, then refuses its repetition."""

    async def call(self, call: ToolCall, arguments: dict[str, Any], meta: Mapping[str, str]) -> Result:
        await super().call(call, arguments, meta)
        if len(self.calls) == 1:
            raise GONE
        raise McpError(ErrorData(code=INVALID_PARAMS, message="HTTP 429"))


class Silent(ScriptedServer):
    async def call(self, call: ToolCall, arguments: dict[str, Any], meta: Mapping[str, str]) -> Result:
        await asyncio.Event().wait()
        return await super().call(call, arguments, meta)


def intended(path: ScriptedPath, effect: Effect) -> tuple[ToolCall, Ledger]:
    """Return a call of a run and the run's real ledger, which has a row of it unless it only reads."""
    ledger = make_execution().context.ledger
    call = ledger.with_keys(path.call("order", effect))
    if effect is not Effect.READ:
        ledger.intend([call])
    return call, ledger


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "_PAUSE_SECONDS", (0.0, 0.0))


async def test_read_whose_connection_was_lost_is_made_again_without_a_row_in_the_ledger() -> None:
    server = UnavailableOnce()
    path = ScriptedPath(server=server)
    call, ledger = intended(path, Effect.READ)

    outcome = await path.made(call, ledger)

    assert (outcome.status, server.keys, ledger.has_calls(call.path)) == ("succeeded", [None, None], False)


async def test_idempotent_call_whose_connection_was_lost_is_made_again_under_its_key_and_settled_once() -> None:
    server = UnavailableOnce()
    path = ScriptedPath(server=server)
    call, ledger = intended(path, Effect.IDEMPOTENT)

    outcome = await path.made(call, ledger)

    assert (outcome.status, server.keys) == ("succeeded", [call.idempotency_key] * 2)
    assert (ledger.state(call), ledger.settled) == (CallState.SUCCEEDED, 1)


async def test_refused_repetition_leaves_a_call_whose_connection_was_lost_in_doubt() -> None:
    server = LostThenRejected()
    path = ScriptedPath(server=server)
    call, ledger = intended(path, Effect.IDEMPOTENT)

    outcome = await path.made(call, ledger)

    assert (len(server.calls), outcome.observation) == (2, Observation.CONNECTION_LOST)
    assert ledger.state(call) is not CallState.FAILED


@pytest.mark.parametrize("effect", list(Effect))
async def test_call_that_never_left_is_made_again_whatever_its_effect(effect: Effect) -> None:
    server = UnavailableOnce(failure="while it opens")
    path = ScriptedPath(server=server)
    call, ledger = intended(path, effect)

    outcome = await path.made(call, ledger)

    assert (outcome.status, server.used, len(server.calls)) == ("succeeded", 2, 1)


@pytest.mark.parametrize("failure", ["while it opens", "during the call"])
async def test_call_is_not_made_again_while_the_breaker_of_its_server_is_open(failure: Failure) -> None:
    server = UnavailableOnce(failure=failure)
    path = ScriptedPath(server=server)
    for _ in range(4):
        path.breakers.failed(KEY, GONE)

    outcome = await path.made(path.call("order", Effect.READ))

    assert (outcome.code, server.used) == ("server_unavailable", 1)


@pytest.mark.parametrize(("own", "of_the_run", "counts"), [(0.01, 9, True), (9, 0.01, False)])
async def test_only_calls_that_used_up_their_own_time_limit_are_failures_of_their_server(
    own: float, of_the_run: float, counts: bool
) -> None:
    path = ScriptedPath({"timeout": own}, server=Silent())

    for _ in range(4):
        outcome = await path.path(path.call("order"), Deadline(SystemClock(), of_the_run), None)
        assert outcome.code == "timeout"

    assert path.breakers.refuses(("shop", path.config.hash)) is counts
