"""The runtime of the architect: its task is a build of a team."""

from dataclasses import dataclass

from brain.agents.runtimes.build_run import CaseTrial, TaskBuildRun
from brain.agents.turn.agent_runtime import AttemptOutput, TaskExecution
from brain.retrieval.search import AgentRanker
from brain.run.stream_buffer import StreamBuffer
from starling.core.settings.schema import Limits
from starling.core.teams.building import BuildRequest, TeamBuilder


@dataclass(frozen=True, slots=True)
class ArchitectRuntime:
    """Has a team built: as the run was requested, or with the task as its goal where a supervisor gave it."""

    builder: TeamBuilder
    ranker: AgentRanker
    trial: CaseTrial
    limits: Limits

    async def attempt(self, execution: TaskExecution) -> AttemptOutput:
        """Build a team, and return the report. Raises what the steps of a build raise."""
        execution.position += 1
        context = execution.context
        given = context.run.build if context.assigned_agent else None
        request = (given or BuildRequest()).model_copy(update={"goal": execution.task})
        built = await self.builder.build(request, TaskBuildRun(execution, self.ranker, self.trial, self.limits))
        if built.done and execution.dispatch["whole_plan"]:
            message_id = f"{execution.path}.{execution.position}.{context.run.fence}"
            with StreamBuffer(context.recorder, message_id) as buffer:
                buffer.write(built.text)
        return AttemptOutput(built.text, unable=not built.done, code=built.code)
