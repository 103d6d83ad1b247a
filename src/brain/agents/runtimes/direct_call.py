"""The runtime of runs that are one tool call: it makes the call that was asked for, and asks no model."""

from dataclasses import dataclass

from brain.agents.tools.tool_calling import ToolAccess, ToolCallBatch
from brain.agents.tools.toolbox import Toolbox
from brain.agents.turn.agent_runtime import AttemptOutput, TaskExecution, joined_results
from starling.core.llm import ModelToolCall


@dataclass(frozen=True, slots=True)
class DirectCallRuntime:
    """Makes the call of the run as if it were that of a model's answer: announced, recorded, resumed after a crash."""

    access: ToolAccess

    async def attempt(self, execution: TaskExecution) -> AttemptOutput:
        """Make the call. A failed one ends the task, since another attempt would make it again."""
        call, journal, place = execution.context.run.call, execution.context.journal, execution.place("call")
        assert call is not None  # the pipeline chose this runtime because of it
        toolbox = Toolbox.of(execution.card.tools)
        name = next((name for name, tool in toolbox.tools.items() if tool.full_name == call.tool), call.tool)
        replayed = journal.knows(place, "context")
        if not replayed:
            journal.record(place, "context", {})
        batch = await ToolCallBatch.announced(
            self.access, execution, toolbox, 0, [ModelToolCall("call", name, call.arguments)], replayed=replayed
        )
        made = await batch.use_all()
        execution.keep(made)
        failed = any(use.outcome.status == "failed" for use in made)
        return AttemptOutput(joined_results(made), tuple(made), unable=failed)
