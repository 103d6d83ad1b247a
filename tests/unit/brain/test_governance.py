"""What a request is allowed."""

from dataclasses import replace

import pytest

from brain.governance import Allowance, RequestGovernance, with_usable_agent
from brain.registry.cards import CODER, AgentCard, Roster
from starling.core.forks import ForkChanges, ForkOrigin
from starling.core.governance import GovernanceDecision, GovernanceRow, GovernanceTable
from starling.core.llm import ModelRole
from starling.core.principal import Grant
from starling.core.runs import Channel, Mode, Run, RunConfig, RunLimits
from starling.core.settings.schema import Limits
from starling.core.tool_calls import Effect
from tests.support.in_memory_run import make_run

LIMITS = Limits(tool_iterations=3, supervisor_calls=6, max_output_tokens=1_000, run_seconds=300)


def allowance(
    mode: Mode = Mode.MODERATE, channel: Channel = Channel.CHAT, row: GovernanceRow | None = None, **limits: int
) -> Allowance:
    allowed = GovernanceTable(cells={f"{mode}/{channel}": row or GovernanceRow()})
    asked = RunLimits.model_validate(limits)
    return Allowance.of(allowed.row(mode, channel), mode, channel, LIMITS, asked)


def test_conservative_mode_allows_read_tools_and_no_coding_role() -> None:
    allowed = allowance(Mode.CONSERVATIVE)

    assert allowed.effects == {Effect.READ}
    assert allowed.role(ModelRole.CODING) is ModelRole.REASONING


def test_exploratory_mode_doubles_the_tool_iterations() -> None:
    assert [allowance(mode).tool_iterations for mode in Mode] == [3, 3, 6]


@pytest.mark.parametrize(("asked", "allowed"), [(1, 1), (3, 3), (50, 3)])
def test_a_caller_may_ask_for_fewer_turns_but_not_for_more(asked: int, allowed: int) -> None:
    assert allowance(tool_iterations=asked).tool_iterations == allowed


@pytest.mark.parametrize(("asked", "allowed"), [(1, 1), (6, 6), (50, 6)])
def test_a_caller_may_ask_for_fewer_decisions_but_not_for_more(asked: int, allowed: int) -> None:
    assert allowance(supervisor_calls=asked).supervisor_calls == allowed


def test_the_channel_sets_the_default_role_and_a_hint() -> None:
    assert allowance(channel=Channel.CODE_TASK).default_role is ModelRole.CODING
    assert allowance(Mode.CONSERVATIVE, Channel.CODE_TASK).default_role is ModelRole.REASONING
    assert [bool(allowance(channel=channel).hint) for channel in Channel] == [False, True, True]


def test_a_mode_that_leaves_tools_out_is_named_to_the_supervisor() -> None:
    hints = {mode: allowance(mode, Channel.CODE_TASK).hint for mode in Mode}

    assert [mode for mode, hint in hints.items() if "Mode CONSERVATIVE" in hint] == [Mode.CONSERVATIVE]
    assert hints[Mode.CONSERVATIVE].endswith(hints[Mode.MODERATE])


@pytest.mark.parametrize("row", [{"tools": ["bench.look"]}, {"effects": ["read", "idempotent"]}])
def test_a_row_that_leaves_tools_out_is_told_to_the_supervisor(row: dict[str, list[str]]) -> None:
    assert "Only some tools may be called" in allowance(row=GovernanceRow.model_validate(row)).hint


MEMBERS = [  # of a row, what becomes of it, and the member of the allowance
    ({"roles": ["router"]}, frozenset({ModelRole.ROUTER}), "roles"),
    ({"roles": ["router"]}, ModelRole.ROUTER, "default_role"),
    ({"default_role": "router"}, ModelRole.ROUTER, "default_role"),
    ({"effects": ["read"]}, frozenset({Effect.READ}), "effects"),
    ({"iterations": 2}, 2, "tool_iterations"),
    ({"iterations": 50}, 3, "tool_iterations"),
    ({"iteration_factor": 3}, 9, "tool_iterations"),
    ({"max_tokens": 100}, 100, "max_tokens"),
    ({"max_tokens": 9_000}, 1_000, "max_tokens"),
    ({"temperature": 0.0}, 0.0, "supervisor_temperature"),
    ({"temperature": 1.1}, 1.1, "supervisor_temperature"),
    ({"approval": "always"}, "always", "approval"),
    ({"review": "risky"}, "risky", "review"),
    ({"direct_agent": "generalist"}, "generalist", "direct_agent"),
]


@pytest.mark.parametrize(("row", "expected", "member"), MEMBERS)
def test_each_member_of_a_row_holds_within_the_limits(row: dict[str, object], expected: object, member: str) -> None:
    assert getattr(allowance(row=GovernanceRow.model_validate(row)), member) == expected


def test_a_row_without_members_leaves_what_the_limits_allow() -> None:
    allowed = allowance()

    assert (allowed.max_tokens, allowed.supervisor_temperature, allowed.approval) == (1_000, 0.3, "never")
    assert (allowed.review, allowed.direct_agent) == (None, "")


def bounded(
    row: dict[str, object], *, left: float = 300, grant: Grant | None = None, seconds: float | None = None
) -> Run:
    run = make_run(run_seconds=seconds)
    decision = GovernanceDecision(source="table", row=GovernanceRow.model_validate(row))
    return RequestGovernance(LIMITS).bounded(replace(run, remaining_seconds=left, grant=grant), decision)


@pytest.mark.parametrize(
    ("seconds", "left", "asked", "expected"),
    [(None, 200, None, 200), (60, 300, None, 60), (60, 290, None, 50), (60, 100, None, 0), (60, 20, 30, 20)],
)
def test_the_time_of_a_row_goes_on_where_earlier_executions_left_it(
    seconds: float | None, left: float, asked: float | None, expected: float
) -> None:
    assert bounded({"seconds": seconds}, left=left, seconds=asked).remaining_seconds == expected


def test_the_tools_of_a_row_bound_the_grant_of_a_run() -> None:
    both = bounded({"tools": ["bench.*", "shop.look"]}, grant=Grant(frozenset({"shop"}), frozenset({"bench.look"})))

    assert both.grant == Grant(frozenset(), frozenset({"bench.look", "shop.look"}))
    assert bounded({"tools": ["bench.*"]}).grant == Grant(frozenset({"bench"}))
    assert bounded({}).grant is None


async def test_recorded_decision_holds_whatever_the_table_says_now() -> None:
    stored = GovernanceDecision(source="service", row=GovernanceRow(max_tokens=50), warning="w")
    own = {"fit": 1, "governance": stored.model_dump(mode="json")}

    decided = await RequestGovernance(LIMITS).decision(make_run(), GovernanceTable(), own, None)

    assert decided == stored


async def test_run_of_an_earlier_version_gets_no_direct_agent() -> None:
    code = replace(make_run(), config=RunConfig(channel=Channel.CODE_TASK))
    governance = RequestGovernance(LIMITS)

    new = await governance.decision(code, GovernanceTable(), None, None)
    earlier = await governance.decision(code, GovernanceTable(), {"fit": 1}, None)

    assert (new.row.direct_agent, earlier.row.direct_agent) == ("coder", "")


@pytest.mark.parametrize("source", ["service", "fallback"])
async def test_fork_is_bound_by_what_a_service_decided_of_its_original(source: str) -> None:
    row = {"max_tokens": 50, "effects": ["read"], "direct_agent": "coder"}  # of a CODE_TASK
    stored = GovernanceDecision.model_validate({"source": source, "row": row, "warning": "It is away."})
    table = GovernanceTable(modes={Mode.MODERATE: GovernanceRow(max_tokens=40)})
    original = {"governance": stored.model_dump(mode="json")}

    decided = await RequestGovernance(LIMITS).decision(make_run(), table, None, original)

    assert (decided.source, decided.row.max_tokens, decided.row.effects) == (source, 40, (Effect.READ,))
    assert decided.row.direct_agent is None
    assert decided.warning == ("It is away." if source == "fallback" else "")


async def test_fork_with_another_request_is_decided_on_anew() -> None:
    origin = ForkOrigin(run="run", at="start", changes=ForkChanges(input="Another one."), live=True)
    stored = GovernanceDecision(source="service", row=GovernanceRow())
    fork, original = replace(make_run(), forked_from=origin), {"governance": stored.model_dump(mode="json")}

    decided = await RequestGovernance(LIMITS).decision(fork, GovernanceTable(), None, original)

    assert decided.source == "table"


async def test_fork_of_a_run_that_the_table_decided_on_is_decided_on_by_its_own_mode() -> None:
    original = {"governance": {"source": "table", "row": {"effects": ["read"]}}}

    decided = await RequestGovernance(LIMITS).decision(make_run(), GovernanceTable(), None, original)

    assert decided.row.effects is None


@pytest.mark.parametrize(
    ("roster", "reason"),
    [((), "may use no agent of that name"), ((AgentCard("coder", "builtin", "", degraded="Off."),), "Off.")],
)
def test_direct_agent_that_cant_be_used_leaves_the_request_to_the_supervisor(
    roster: tuple[AgentCard, ...], reason: str
) -> None:
    decision = GovernanceDecision(source="table", row=GovernanceRow(direct_agent="coder"))

    found = with_usable_agent(decision, make_run(), Roster({card.name: card for card in roster}))

    assert (found.row.direct_agent, reason in found.warning) == ("", True)


@pytest.mark.parametrize(("at", "expected"), [("start", "coder"), ("d1", "coder"), ("d2", ""), ("t3", "")])
def test_fork_that_goes_on_in_a_plan_gets_no_direct_agent(at: str, expected: str) -> None:
    decision = GovernanceDecision(source="table", row=GovernanceRow(direct_agent="coder"))
    origin = ForkOrigin(run="run", at=at, changes=ForkChanges(), live=False)

    found = with_usable_agent(decision, replace(make_run(), forked_from=origin), Roster({CODER.name: CODER}))

    assert (found.row.direct_agent, found.warning) == (expected, "")


def test_direct_agent_that_can_be_used_stays() -> None:
    decision = GovernanceDecision(source="table", row=GovernanceRow(direct_agent="coder"))

    assert with_usable_agent(decision, make_run(), Roster({CODER.name: CODER})) == decision
