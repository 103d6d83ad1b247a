"""What the key of a run may reach: all that the supervisor sees, and all that a call can get to."""

from dataclasses import replace

import pytest

from starling.app.runs.acceptance import RunRequest
from starling.core.clock import Deadline, SystemClock
from starling.core.ids import new_id
from starling.core.principal import Grant
from starling.core.tools import ToolCall
from tests.support.model_script import Answer
from tests.support.platform import (
    BENCH,
    CALLER,
    SHOP,
    Platform,
    RunStream,
    ScriptedModel,
    Workbench,
    calls,
    decision,
    task,
    verdict,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def ask_with(platform: Platform, grant: Grant) -> RunStream:
    """Make a run for a caller with a grant."""
    request = RunRequest(input="How is the disk?", thread_id=new_id())
    accepted = await platform.services.runs.acceptance.accept(replace(CALLER, grant=grant), request)
    return await platform.finish(accepted.key)


async def test_run_sees_only_the_specialists_that_its_key_is_granted(platform: Platform, script: ScriptedModel) -> None:
    script.supervisor(decision(reply="Nothing to do.", is_request_satisfied=True))

    await ask_with(platform, Grant(servers=frozenset({"bench"})))

    (asked,) = platform.requests_containing("<agents>")
    assert BENCH in str(asked)
    assert SHOP not in str(asked)


async def test_grant_of_a_single_tool_allows_that_tool_only(platform: Platform, script: ScriptedModel) -> None:
    script.supervisor(decision(task("t1", SHOP), plan=["look"]))
    script.agent("t1", calls(("look", {"thing": "disk"})))
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("That is the answer."))

    stream = await ask_with(platform, Grant(tools=frozenset({"shop.look"})))

    tools = platform.requests_containing('<task id="t1">')[0]["tools"]
    assert [tool["function"]["name"] for tool in tools] == ["look", "continue"]
    assert stream.status == "succeeded"


async def test_call_outside_the_grant_is_not_dispatched(platform: Platform, workbench: Workbench) -> None:
    listing = platform.worker_runtime.gateway.listing("bench")
    assert listing
    look = next(tool for tool in listing.tools if tool.name == "look")
    call = ToolCall(new_id(), "run", "t1", look, {"thing": "disk"}, Grant(servers=frozenset({"shop"})))

    outcome = await platform.worker_runtime.gateway.call(call, Deadline(SystemClock(), 10))

    assert (outcome.status, outcome.code) == ("failed", "not_allowed")
    assert workbench.done() == []
