"""The agents node: one agent works on one task; several of these run in parallel."""

from dataclasses import dataclass
from typing import Protocol

from langgraph.runtime import Runtime

from brain.blackboard import board_of
from brain.interrupts.requests import interrupt_on_suspension
from brain.run.context import RunContext
from brain.state import TaskDispatch, TaskOutcome, Update
from starling.core.task_paths import team_task_path


class TaskPipeline(Protocol):
    """Takes a task from dispatch to outcome."""

    async def run(self, context: RunContext, dispatch: TaskDispatch) -> TaskOutcome:
        """Return the outcome of the task. Raises SuspendedError while it waits for an answer."""
        ...


@dataclass(frozen=True, slots=True)
class AgentsNode:
    """The worker node, for whichever agent the task names."""

    pipeline: TaskPipeline

    async def __call__(self, state: TaskDispatch, runtime: Runtime[RunContext]) -> Update:
        """Return the update that carries the task's outcome and its new status."""
        context = runtime.context
        card, path = context.roster.get(state["task"]["agent"]), state["path"]
        path = context.at(team_task_path(path) if card and card.star else path)
        with interrupt_on_suspension():
            outcome = await self.pipeline.run(context, {**state, "path": path})
        update: Update = {"tasks": [{**state["task"], "status": outcome["status"]}], "results": [outcome]}
        return {**update, "global_state": board} if (board := board_of([outcome])) else update
