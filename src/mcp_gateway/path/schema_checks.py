"""Schema checks: values fit the call's own schemas, and the server's and the admin's as both are now."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from mcp_gateway.path.stage import Stage, failed, not_sent
from mcp_gateway.registration.known_servers import Directory
from mcp_gateway.schemas.large_values import large_value_faults
from mcp_gateway.schemas.validation import Validators, faults
from starling.core.clock import Deadline
from starling.core.json import JsonObject, digest, unsendable
from starling.core.tool_calls import Observation
from starling.core.tools import CallRecord, ToolCall, ToolOutcome


@dataclass(frozen=True, slots=True)
class SchemaCheck:
    """Checks that JSON carries the arguments unchanged, and that they fit the input schemas of the tool."""

    directory: Directory
    validators: Validators
    inner: Stage

    async def __call__(self, call: ToolCall, deadline: Deadline, record: CallRecord | None) -> ToolOutcome:
        name = call.tool.full_name
        if fault := unsendable(call.arguments):
            text = f"The arguments of {name} can't be sent unchanged: they contain {fault}."
            return not_sent("invalid_arguments", text)
        own = ("", call.tool.schemas_key, call.tool.input_schema)
        for whose, key, schema in (own, *_narrowing_schemas(self.directory, call, "input")):
            if violations := faults(await self.validators.load(key, "input", schema), call.arguments, "arguments"):
                what = f"the {whose} schema of {name}" if whose else name
                text = f"The arguments don't fit {what}: {'; '.join(violations)}."
                return not_sent("invalid_arguments", text)
        return await self.inner(call, deadline, record)


@dataclass(frozen=True, slots=True)
class NarrowedOutput:
    """Finds results that don't fit one of the tool's output schemas: the call was made, its result isn't used.

    It is the last that sees structured content which is too large to be data.
    """

    directory: Directory
    validators: Validators
    inner: Stage

    async def __call__(self, call: ToolCall, deadline: Deadline, record: CallRecord | None) -> ToolOutcome:
        outcome = await self.inner(call, deadline, record)
        if outcome.observation is not Observation.COMPLETED:
            return outcome
        for whose, key, schema in _narrowing_schemas(self.directory, call, "output"):
            violations = await result_violations(self.validators, key, schema, outcome.data, outcome.large_data)
            if violations:
                text = f"The result of {call.tool.full_name} violates its {whose} output schema: {violations}."
                return failed(call, Observation.INVALID_RESULT, "invalid_result", text)
        return replace(outcome, large_data=b"") if outcome.large_data else outcome


async def result_violations(
    validators: Validators, key: str, schema: Mapping[str, Any], data: JsonObject | None, large_data: bytes = b""
) -> str:
    """Return how structured content violates an output schema, which has this key; empty if it doesn't.

    Content that is too large to be `data` is `large_data`, in JSON text.
    """
    if large_data:
        return "; ".join(await large_value_faults(schema, large_data, "result"))
    if data is None:
        return "there is no structured content"
    return "; ".join(faults(await validators.load(key, "output", schema), data, "result"))


def _narrowing_schemas(
    directory: Directory, call: ToolCall, part: Literal["input", "output"]
) -> list[tuple[str, str, Mapping[str, Any]]]:
    """Return the schemas that a value has to fit besides the call's own: whose, the key of a validator, the schema."""
    options, listed = directory.tool_options(call), directory.tool(call)
    if part == "input":
        configured, shown, own = options.input_schema, call.tool.input_schema, listed and listed.input_schema
    else:
        configured, shown, own = options.output_schema, call.tool.output_schema, listed and listed.output_schema
    found: list[tuple[str, str, Mapping[str, Any]]] = []
    if listed and own is not None and (call.tool.narrowing or configured is not None):
        found.append(("server's", listed.hash, own))
    if configured is not None and configured != shown:  # else it is checked as the call's own
        found.append(("configured", digest(configured), configured))
    return found
