"""Arguments that violate the tool's input schema go back to the agent before anything is called."""

from dataclasses import dataclass

from mcp_gateway.path.stage import Stage, not_sent
from mcp_gateway.schemas.validation import Validators, faults
from starling.core.clock import Deadline
from starling.core.tools import CallRecord, ToolCall, ToolOutcome


@dataclass(frozen=True, slots=True)
class SchemaCheck:
    """Checks arguments against the tool's input schema."""

    validators: Validators
    inner: Stage

    async def __call__(self, call: ToolCall, deadline: Deadline, record: CallRecord | None) -> ToolOutcome:
        validator = await self.validators.load(call.tool.schemas_key, "input", call.tool.input_schema)
        if violations := faults(validator, call.arguments, "arguments"):
            text = f"The arguments don't fit {call.tool.full_name}: {'; '.join(violations)}."
            return not_sent("invalid_arguments", text)
        return await self.inner(call, deadline, record)
