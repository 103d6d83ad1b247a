"""What a request is allowed: a pure table over mode and channel."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from starling.core.llm import ModelRole
from starling.core.runs import Channel, Mode, RunLimits
from starling.core.settings.schema import Limits
from starling.core.tool_calls import Effect


@dataclass(frozen=True, slots=True)
class Allowance:
    """The decision on one request. Times are seconds."""

    roles: frozenset[ModelRole]
    effects: frozenset[Effect]
    default_role: ModelRole
    tool_iterations: int
    max_attempts: int
    supervisor_calls: int
    max_tokens: int
    supervisor_temperature: float
    hint: str

    def role(self, wanted: ModelRole) -> ModelRole:
        """Return `wanted` where it is allowed, else the default role."""
        return wanted if wanted in self.roles else self.default_role


class Governance(Protocol):
    """Bounds what the model may choose from."""

    def evaluate_request(
        self, session_id: str, channel: Channel, mode: Mode, user_message: str, limits: RunLimits
    ) -> Allowance:
        """Return what this request is allowed."""
        ...


_EVERY_EFFECT = frozenset(Effect)
_EFFECTS: Mapping[Mode, frozenset[Effect]] = {
    Mode.CONSERVATIVE: frozenset({Effect.READ}),
    Mode.MODERATE: _EVERY_EFFECT,
    Mode.EXPLORATORY: _EVERY_EFFECT,
}
_ROLES: Mapping[Mode, frozenset[ModelRole]] = {
    Mode.CONSERVATIVE: frozenset({ModelRole.ROUTER, ModelRole.REASONING}),
    Mode.MODERATE: frozenset(ModelRole),
    Mode.EXPLORATORY: frozenset(ModelRole),
}
_ITERATIONS_FACTOR: Mapping[Mode, int] = {Mode.CONSERVATIVE: 1, Mode.MODERATE: 1, Mode.EXPLORATORY: 2}
_MODE_HINTS: Mapping[Mode, str] = {
    Mode.CONSERVATIVE: (
        "Mode CONSERVATIVE: only tools that read may be called, and agents without one are left out. "
        "Name the mode where a part can't be served because of it."
    ),
    Mode.MODERATE: "",
    Mode.EXPLORATORY: "",
}
_HINTS: Mapping[Channel, str] = {
    Channel.CHAT: "",
    Channel.CODE_TASK: "The request is about code: the coder goes first where it fits.",
    Channel.SYSTEM_HEALTH: "The request is about the state of this system: agents that measure it go first.",
}


@dataclass(frozen=True, slots=True)
class TableGovernance:
    """The default: mode bounds tools, roles and iterations, the channel sets the default role; both hint."""

    limits: Limits

    def evaluate_request(
        self, session_id: str, channel: Channel, mode: Mode, user_message: str, limits: RunLimits
    ) -> Allowance:
        """Return the row of the table, with the caller's tighter limits over it."""
        del session_id, user_message
        roles = _ROLES[mode]
        coding = channel is Channel.CODE_TASK and ModelRole.CODING in roles
        iterations = self.limits.tool_iterations * _ITERATIONS_FACTOR[mode]
        return Allowance(
            roles=roles,
            effects=_EFFECTS[mode],
            default_role=ModelRole.CODING if coding else ModelRole.REASONING,
            tool_iterations=min(iterations, limits.tool_iterations or iterations),
            max_attempts=self.limits.max_attempts,
            supervisor_calls=min(self.limits.supervisor_calls, limits.supervisor_calls or self.limits.supervisor_calls),
            max_tokens=self.limits.max_output_tokens,
            supervisor_temperature=0.3,
            hint=" ".join(filter(None, (_MODE_HINTS[mode], _HINTS[channel]))),
        )
