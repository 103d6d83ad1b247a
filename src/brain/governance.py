"""What a request is allowed: the row of its mode and channel within the limits of the platform and its caller."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from brain.registry.cards import Roster
from starling.core.forks import decision_number
from starling.core.governance import (
    Governance,
    GovernanceDecision,
    GovernanceRow,
    GovernanceTable,
    TableGovernance,
)
from starling.core.llm import ModelRole
from starling.core.runs import Channel, Mode, Run, RunLimits
from starling.core.settings.schema import Limits
from starling.core.tool_calls import ApprovalPolicy, Effect, ReviewPolicy


@dataclass(frozen=True, slots=True)
class Allowance:
    """What one request is allowed. Times are seconds.

    `approval` and `review` hold where the policy of a server or an agent asks for less. `direct_agent` gets the whole
    request if its caller names no agent. Which tools are allowed is in the grant of the run.
    """

    roles: frozenset[ModelRole]
    effects: frozenset[Effect]
    default_role: ModelRole
    tool_iterations: int
    max_attempts: int
    supervisor_calls: int
    max_tokens: int
    supervisor_temperature: float
    hint: str
    approval: ApprovalPolicy = "never"
    review: ReviewPolicy | None = None
    direct_agent: str = ""

    def role(self, wanted: ModelRole) -> ModelRole:
        """Return `wanted` where it is allowed, else the default role."""
        return wanted if wanted in self.roles else self.default_role

    @classmethod
    def of(cls, row: GovernanceRow, mode: Mode, channel: Channel, limits: Limits, asked: RunLimits) -> Self:
        """Return what a row allows within the limits of the platform and those that its caller `asked` for."""
        roles = frozenset(ModelRole if row.roles is None else row.roles)
        preferred = (row.default_role or ModelRole.REASONING, ModelRole.REASONING, *ModelRole)
        iterations = limits.tool_iterations * (row.iteration_factor or 1)
        return cls(
            roles=roles,
            effects=frozenset(Effect if row.effects is None else row.effects),
            default_role=next(role for role in preferred if role in roles),
            tool_iterations=min(iterations, row.iterations or iterations, asked.tool_iterations or iterations),
            max_attempts=limits.max_attempts,
            supervisor_calls=min(limits.supervisor_calls, asked.supervisor_calls or limits.supervisor_calls),
            max_tokens=min(limits.max_output_tokens, row.max_tokens or limits.max_output_tokens),
            supervisor_temperature=_TEMPERATURE if row.temperature is None else row.temperature,
            hint=" ".join(filter(None, (_hint_of_tools(row, mode), _HINTS[channel]))),
            approval=row.approval or "never",
            review=row.review,
            direct_agent=row.direct_agent or "",
        )


_TEMPERATURE: Final = 0.3
_CONSERVATIVE_HINT: Final = (
    "Mode CONSERVATIVE: only tools that read may be called, and agents without one are left out. "
    "Name the mode where a part can't be served because of it."
)
_BOUND_HINT: Final = (
    "Only some tools may be called in this run, and agents without one are left out. "
    "Say so where a part can't be served because of it."
)
_HINTS: Final[Mapping[Channel, str]] = {
    Channel.CHAT: "",
    Channel.CODE_TASK: "The request is about code: the coder goes first where it fits.",
    Channel.SYSTEM_HEALTH: "The request is about the state of this system: agents that measure it go first.",
}


def _hint_of_tools(row: GovernanceRow, mode: Mode) -> str:
    if mode is Mode.CONSERVATIVE and row.effects == (Effect.READ,) and row.tools is None:
        return _CONSERVATIVE_HINT
    is_bound = row.tools is not None or (row.effects is not None and len(row.effects) < len(Effect))
    return _BOUND_HINT if is_bound else ""


@dataclass(frozen=True, slots=True)
class RequestGovernance:
    """Decides once what the request of a run is allowed; the journal keeps the decision for all its executions.

    `service` returns what decides in place of a table, and within it; None where no service is set.
    """

    limits: Limits
    service: Callable[[TableGovernance], Governance] | None = None

    async def decision(
        self, run: Run, table: GovernanceTable, own: Mapping[str, Any] | None, original: Mapping[str, Any] | None
    ) -> GovernanceDecision:
        """Return the decision that is recorded in `own`, else a new one.

        For a fork of a run that recorded what a service decided (`original`), that bounds the fork, too: no service is
        asked again, unless the fork has another request. A run of an earlier version, which recorded none, gets no
        direct agent.
        """
        mode, channel = run.config.mode, run.config.channel
        by_table = TableGovernance(table, run.tenant)
        if own is not None and "governance" in own:
            return GovernanceDecision.model_validate(own["governance"])
        has_other_request = run.forked_from is not None and run.forked_from.changes.input
        if own is None and not has_other_request and original is not None and "governance" in original:
            stored = GovernanceDecision.model_validate(original["governance"])
            if stored.source != "table":
                choices = {"default_role": None, "direct_agent": None}  # are of the original's channel
                whole = table.row(mode, channel, run.tenant)
                row = whole.narrowed(stored.row.model_copy(update=choices))
                if row.roles == ():  # the two rows have no role in common
                    row = row.model_copy(update={"roles": whole.roles, "default_role": whole.default_role})
                warning = stored.warning if stored.source == "fallback" else ""
                return GovernanceDecision(source=stored.source, row=row, warning=warning)
        governance = by_table if self.service is None or own is not None else self.service(by_table)
        decided = await governance.evaluate_request(run.thread_id, channel, mode, run.input)
        if own is None:
            return decided
        return decided.model_copy(update={"row": decided.row.model_copy(update={"direct_agent": ""})})

    def allowance(self, run: Run, decision: GovernanceDecision) -> Allowance:
        """Return what the decision allows a run, within the limits."""
        return Allowance.of(decision.row, run.config.mode, run.config.channel, self.limits, run.config.limits)

    def bounded(self, run: Run, decision: GovernanceDecision) -> Run:
        """Return the run with the tools and the time that the decision leaves it."""
        most, left = decision.row.seconds, run.remaining_seconds
        if most is not None:
            whole = min(self.limits.run_seconds, run.config.limits.run_seconds or self.limits.run_seconds)
            left = max(0.0, min(most, left - max(0.0, whole - most)))
        return replace(run, remaining_seconds=left, grant=decision.row.granted(run.grant))


def with_usable_agent(decision: GovernanceDecision, run: Run, roster: Roster) -> GovernanceDecision:
    """Return the decision with its direct agent only where that works in this run, else with a warning.

    A fork that goes on in the middle of a plan gets none.
    """
    name = decision.row.direct_agent
    if not name or run.call or run.config.agent:
        return decision
    if run.forked_from and decision_number(run.forked_from.at) != 1:
        return decision.model_copy(update={"row": decision.row.model_copy(update={"direct_agent": ""})})
    card = roster.get(name)
    if card is not None and not card.degraded:
        return decision
    reason = card.degraded if card else "The run may use no agent of that name."
    said = f"The request isn't sent to the direct agent {name} of its channel, but planned. {reason}"
    row = decision.row.model_copy(update={"direct_agent": ""})
    return decision.model_copy(update={"row": row, "warning": " ".join(filter(None, (decision.warning, said)))})
