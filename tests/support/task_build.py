"""The build of a task in an execution in memory."""

from typing import Never

from brain.agents.runtimes.architect import TaskBuildRun
from brain.agents.turn.agent_runtime import TaskExecution
from brain.registry.cards import AgentCard
from brain.retrieval.agent_finder import AgentFinder
from starling.core.clock import SystemClock
from starling.core.settings.schema import Limits
from starling.core.teams.spec import Example
from tests.support.in_memory_run import Execution
from tests.support.runtime_harness import dispatch


class _NoTrial:
    """Tries nothing."""

    async def run(self, execution: TaskExecution, card: AgentCard, case: Example, name: str) -> Never:
        raise AssertionError(execution, card, case, name)


def task_build(begun: Execution) -> TaskBuildRun:
    """Return what the architect's task `t1` has of its run; it can't try teams."""
    card = begun.context.roster.cards["architect"]
    execution = TaskExecution(begun.context, card, dispatch("Build a team."), "t1")
    return TaskBuildRun(execution, AgentFinder(None, SystemClock()), _NoTrial(), Limits())
