"""Arguments that can't be sent unchanged or violate the tool's input schema go back to the agent uncalled."""

from dataclasses import dataclass

from mcp_gateway.path.stage import Stage, not_sent
from mcp_gateway.schemas.validation import Validators, faults
from starling.core.clock import Deadline
from starling.core.json import unsendable
from starling.core.tools import CallRecord, ToolCall, ToolOutcome


@dataclass(frozen=True, slots=True)
class SchemaCheck:
    """Checks that JSON carries the arguments unchanged, and that they fit the tool's input schema."""

    validators: Validators
    inner: Stage

    async def __call__(self, call: ToolCall, deadline: Deadline, record: CallRecord | None) -> ToolOutcome:
        if fault := unsendable(call.arguments):
            text = f"The arguments of {call.tool.full_name} can't be sent unchanged: they contain {fault}."
            return not_sent("invalid_arguments", text)
        validator = await self.validators.load(call.tool.schemas_key, "input", call.tool.input_schema)
        if violations := faults(validator, call.arguments, "arguments"):
            text = f"The arguments don't fit {call.tool.full_name}: {'; '.join(violations)}."
            return not_sent("invalid_arguments", text)
        return await self.inner(call, deadline, record)
