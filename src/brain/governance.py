"""What a request is allowed: decided by mode and channel alone."""

from collections.abc import Mapping
from dataclasses import dataclass

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


_CONSERVATIVE_HINT = (
    "Mode CONSERVATIVE: only tools that read may be called, and agents without one are left out. "
    "Name the mode where a part can't be served because of it."
)
_HINTS: Mapping[Channel, str] = {
    Channel.CHAT: "",
    Channel.CODE_TASK: "The request is about code: the coder goes first where it fits.",
    Channel.SYSTEM_HEALTH: "The request is about the state of this system: agents that measure it go first.",
}


@dataclass(frozen=True, slots=True)
class Governance:
    """Bounds what the model may choose from: mode bounds tools, roles and iterations, the channel the default role."""

    limits: Limits

    def evaluate_request(self, channel: Channel, mode: Mode, limits: RunLimits) -> Allowance:
        """Return what a request is allowed, with the caller's tighter limits."""
        conservative = mode is Mode.CONSERVATIVE
        coding = channel is Channel.CODE_TASK and not conservative
        iterations = self.limits.tool_iterations * (2 if mode is Mode.EXPLORATORY else 1)
        return Allowance(
            roles=frozenset({ModelRole.ROUTER, ModelRole.REASONING} if conservative else ModelRole),
            effects=frozenset({Effect.READ} if conservative else Effect),
            default_role=ModelRole.CODING if coding else ModelRole.REASONING,
            tool_iterations=min(iterations, limits.tool_iterations or iterations),
            max_attempts=self.limits.max_attempts,
            supervisor_calls=min(self.limits.supervisor_calls, limits.supervisor_calls or self.limits.supervisor_calls),
            max_tokens=self.limits.max_output_tokens,
            supervisor_temperature=0.3,
            hint=" ".join(filter(None, (_CONSERVATIVE_HINT if conservative else "", _HINTS[channel]))),
        )
