"""The tool calls of a trial, as the outcomes of its tasks carry them."""

from brain.agents.turn.agent_runtime import TaskExecution
from brain.state import TrialUse
from starling.core.tool_calls import AnswerSource, Effect, Observation
from starling.core.tools import ToolOutcome


def trial_calls(execution: TaskExecution) -> list[TrialUse]:
    """Return the calls of an agent's tools in all attempts at a task, and those inside the team that it is."""
    path, tools = execution.path, {tool.full_name for tool in execution.card.tools}
    own = [
        TrialUse(tool=use.name, path=path, status=use.outcome.status, source=_source(use.outcome))
        for use in execution.uses
        if use.name in tools and not use.repeated
    ]
    return own + [call for outcome in execution.inner for call in outcome.get("calls", ())]


def has_simulated_effects(execution: TaskExecution) -> bool:
    """Whether a trial has a call that may change something, which the run's ledger doesn't know."""
    if execution.context.trial is None:
        return False
    effectful = {tool.full_name for tool in execution.card.tools if tool.effect is not Effect.READ}
    return any(call["tool"] in effectful for call in trial_calls(execution))


def _source(outcome: ToolOutcome) -> AnswerSource:
    """Return what answered a call; of one that was stopped before it left, no server did."""
    if outcome.simulated:
        return outcome.simulated
    return "simulated" if outcome.observation is Observation.NOT_SENT else "live"
