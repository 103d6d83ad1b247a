"""Which calls have to be approved, by the configuration as it is now, and what becomes of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from mcp_gateway.configuration.servers import server_of
from mcp_gateway.path.approval import CallApproval
from mcp_gateway.registration.known_servers import Directory
from starling.core.clock import Deadline, SystemClock
from starling.core.tool_calls import Effect, Observation
from starling.core.tools import CallRecord, ServerListing, ToolCall, ToolDefinition, ToolOutcome

REFUSED = ToolOutcome(Observation.NOT_SENT, "no", code="not_approved")


@dataclass
class Inner:
    """The end of a path that does nothing but remember."""

    reached: list[str] = field(default_factory=list[str])

    async def __call__(self, call: ToolCall, deadline: Deadline, record: CallRecord | None) -> ToolOutcome:
        self.reached.append(call.tool.full_name)
        return ToolOutcome(Observation.COMPLETED, "done")


@dataclass
class Person:
    """What a call's record does about approvals: somebody always says the same."""

    says: ToolOutcome | None
    asked: list[str] = field(default_factory=list[str])

    async def approve(self, call: ToolCall, reason: str) -> ToolOutcome | None:
        self.asked.append(reason)
        return self.says


def shop(options: Mapping[str, Any]) -> Directory:
    directory = Directory()
    config = server_of({"command": "shop", "x-starling": options})
    directory.replace({"shop": config}, [ServerListing("shop", "", config.hash, "ready")])
    return directory


def call(name: str) -> ToolCall:
    tool = ToolDefinition("shop", name, "", {"type": "object"}, None, Effect.UNSAFE, "hash")
    return ToolCall("1", "run", "t1", tool, {})


async def made(path: CallApproval, name: str, person: Person | None) -> ToolOutcome:
    return await path(call(name), Deadline(SystemClock(), 1), cast("CallRecord | None", person))


@pytest.mark.parametrize(
    ("options", "asking"),
    [
        ({}, set[str]()),
        ({"approval": "unsafe"}, {"order", "put"}),
        ({"approval": "unsafe", "tools": {"put": {"effect": "idempotent"}, "look": {"effect": "read"}}}, {"order"}),
        ({"approval": "always", "tools": {"look": {"effect": "read", "approval": "never"}}}, {"order", "put"}),
        ({"tools": {"look": {"effect": "read", "approval": "always"}}}, {"look"}),
        ({"effect": "read", "approval": "unsafe", "tools": {"order": {"effect": "unsafe"}}}, {"order"}),
    ],
)
async def test_who_is_asked_about_what(options: dict[str, Any], asking: set[str]) -> None:
    options = {"tools": {"look": {"effect": "read"}}} | options
    path = CallApproval(shop(options), Inner())
    people = {name: Person(None) for name in ("order", "put", "look")}

    for name, person in people.items():
        await made(path, name, person)

    assert {name for name, person in people.items() if person.asked} == asking


@pytest.mark.parametrize(
    ("options", "asking"),
    [
        ({}, {"order", "put"}),
        ({"tools": {"put": {"approval": "never"}}}, {"order"}),
        ({"approval": "never"}, set[str]()),
        ({"approval": "always", "tools": {"look": {"effect": "read"}}}, {"order", "put", "look"}),
    ],
    ids=["unset", "tool", "server", "stricter"],
)
async def test_setting_holds_for_servers_and_tools_without_a_policy(options: dict[str, Any], asking: set[str]) -> None:
    tools = {"look": {"effect": "read"}} | options.get("tools", {})
    person, path = Person(None), CallApproval(shop(options | {"tools": tools}), Inner(), "unsafe")

    for name in ("order", "put", "look"):
        await made(path, name, person)

    assert {reason.split("shop.")[1].split()[0] for reason in person.asked} == asking


@pytest.mark.parametrize(("says", "reached"), [(None, ["shop.order"]), (REFUSED, [])])
async def test_a_call_goes_on_once_it_is_approved(says: ToolOutcome | None, reached: list[str]) -> None:
    inner = Inner()

    outcome = await made(CallApproval(shop({"approval": "always"}), inner), "order", Person(says))

    assert inner.reached == reached
    assert outcome.code == ("not_approved" if says else "")


async def test_where_nobody_can_be_asked_the_answer_is_no() -> None:
    inner = Inner()

    outcome = await made(CallApproval(shop({"approval": "unsafe"}), inner), "order", None)

    assert (inner.reached, outcome.code) == ([], "not_approved")
