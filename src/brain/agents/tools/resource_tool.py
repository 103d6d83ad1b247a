"""The built-in tool `read_resource`: follows links to resources that results of a task's own calls have."""

from typing import Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from brain.agents.tools.artifact_tool import READ_ARTIFACT_SPEC
from brain.agents.tools.toolbox import Toolbox
from brain.agents.turn.agent_runtime import TaskExecution
from starling.core.json import JsonObject
from starling.core.llm import ToolSpec
from starling.core.tool_calls import Effect, Observation
from starling.core.tools import READ_RESOURCE, ToolCall, ToolOutcome

READ_RESOURCE_SPEC: Final = ToolSpec(
    READ_RESOURCE,
    "Read a resource that a result above names as [resource …], from the server that named it.",
    {
        "type": "object",
        "properties": {"uri": {"type": "string", "description": "Its address, exactly as the result has it."}},
        "required": ["uri"],
    },
)


class _ReadRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    uri: str = Field(min_length=1, max_length=10_000)


def reading_tools(execution: TaskExecution, toolbox: Toolbox) -> tuple[ToolSpec, ...]:
    """Return the built-in tools that read what earlier results left out; those that have nothing to read are not shown.

    A server's own tool of the name `read_resource` is what its agent gets.
    """
    found = (READ_ARTIFACT_SPEC,) if execution.artifacts else ()
    return (*found, READ_RESOURCE_SPEC) if offers_resources(execution, toolbox) else found


def offers_resources(execution: TaskExecution, toolbox: Toolbox) -> bool:
    """Whether there is a link to follow, and the name of the tool means nothing else."""
    return bool(execution.links) and READ_RESOURCE not in toolbox.tools


def resource_call(
    execution: TaskExecution, place: tuple[int, int], arguments: JsonObject | None
) -> ToolCall | ToolOutcome:
    """Return the read of a linked resource, on behalf of the tool that linked it, or why there is none.

    `place` is the position of the answer that asks for it, and the index of the call in it.
    """
    try:
        uri = _ReadRequest.model_validate(arguments).uri
    except ValidationError:
        return _fault(f"{READ_RESOURCE} takes a `uri`, as a result has it.")
    linking = next((tool for tool in execution.card.tools if tool.full_name == execution.links.get(uri)), None)
    if linking is None:
        known = ", ".join(execution.links)
        return _fault(f"No result of this task names the resource {uri!r}. Named are: {known}.")
    run = execution.context.run
    call = ToolCall(
        id=f"{execution.path}.{place[0]}.{place[1]}",
        run_id=run.id,
        path=execution.path,
        tool=linking.reading(),
        arguments={"uri": uri},
        grant=run.grant,
        tenant=run.tenant,
        agent=execution.card.name,
        caller=run.caller,
        position=place[0],
        index=place[1],
        teams=execution.context.teams,
        thread_id=run.thread_id,
        resource=uri,
    )
    assert call.tool.effect is Effect.READ
    return execution.context.ledger.with_keys(call)


def _fault(text: str) -> ToolOutcome:
    return ToolOutcome(Observation.NOT_SENT, text, code="invalid_arguments")
