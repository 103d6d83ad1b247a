"""The build of a task in an execution in memory."""

from typing import Never

from brain.agents.runtimes.architect import TaskBuildRun
from brain.agents.runtimes.team import TeamTrial
from brain.agents.turn.agent_runtime import TaskExecution
from brain.retrieval.agent_finder import AgentFinder
from brain.run.context import RunContext
from brain.state import GraphState
from starling.core.clock import SystemClock
from starling.core.settings.schema import Limits
from starling.core.teams.stars import StarSpec
from tests.support.in_memory_run import Execution
from tests.support.runtime_harness import dispatch


class _NoStars:
    """Executes nothing."""

    async def run(self, spec: StarSpec, context: RunContext, initial: GraphState) -> Never:
        raise AssertionError(spec, context, initial)


def task_build(begun: Execution) -> TaskBuildRun:
    """Return what the architect's task `t1` has of its run; it can't try teams."""
    card = begun.context.roster.cards["architect"]
    execution = TaskExecution(begun.context, card, dispatch("Build a team."), "t1")
    clock = SystemClock()
    return TaskBuildRun(execution, AgentFinder(None, clock), TeamTrial(_NoStars(), clock), Limits())
