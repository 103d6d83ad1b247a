"""Which results are reviewed: what governance, an agent and its tools set, and what the caller of the run asks for."""

from dataclasses import dataclass
from functools import reduce

from brain.agents.turn.agent_runtime import TaskExecution
from starling.core.governance import stricter_review
from starling.core.tool_calls import ReviewPolicy


@dataclass(frozen=True, slots=True)
class ReviewPolicies:
    """The policies that hold for the results of one agent, each None where nobody set it.

    `demanded` if the agent's maker asks for a review of each result, whatever the policy of a tool is.
    """

    governance: ReviewPolicy | None = None
    agent: ReviewPolicy | None = None
    caller: ReviewPolicy | None = None
    demanded: bool = False

    @classmethod
    def of_task(cls, execution: TaskExecution) -> "ReviewPolicies":
        """Return the policies for the task of an agent."""
        card, context = execution.card, execution.context
        demanded = card.config is not None and card.config.demands_review
        return cls(context.allowance.review, card.reflect, context.run.config.reflect, demanded)

    def policy(self, tool: ReviewPolicy | None = None) -> ReviewPolicy:
        """Return the policy for a result of a tool that has this policy of its own, or of no tool.

        A tool's policy comes before its agent's, and that before the one of governance, which is also the least that
        holds. Where none is set, the caller's replaces the default, `always`; else it can only be stricter.
        """
        own: ReviewPolicy | None = "always" if self.demanded else tool or self.agent
        chosen: ReviewPolicy = own or self.governance or self.caller or "always"
        return reduce(stricter_review, (policy for policy in (self.governance, self.caller) if policy), chosen)
