"""What a request is allowed."""

import pytest

from brain.governance import Allowance, Governance
from starling.core.llm import ModelRole
from starling.core.runs import Channel, Mode, RunLimits
from starling.core.settings.schema import Limits
from starling.core.tool_calls import Effect


def allowance(mode: Mode = Mode.MODERATE, channel: Channel = Channel.CHAT, **limits: int) -> Allowance:
    governance = Governance(Limits(tool_iterations=3, supervisor_calls=6))
    return governance.evaluate_request(channel, mode, RunLimits.model_validate(limits))


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
