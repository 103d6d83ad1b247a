"""Arguments that don't fit go back to the agent, with what was expected, before anything is called."""

from dataclasses import dataclass

from mcp_gateway.path.stage import NOTHING_DONE, Step, failed
from mcp_gateway.schema_validation import Validators, faults
from starling.core.clock import Deadline
from starling.core.tools import ToolCall, ToolOutcome


@dataclass(frozen=True, slots=True)
class SchemaCheck:
    """Checks arguments against the tool's input schema."""

    validators: Validators
    inner: Step

    async def __call__(self, call: ToolCall, deadline: Deadline) -> ToolOutcome:
        validator = self.validators.get(call.tool.hash, "input", call.tool.input_schema)
        wrong = faults(validator, call.arguments, "arguments")
        if wrong:
            text = f"The arguments don't fit {call.tool.full_name}: {'; '.join(wrong)}. {NOTHING_DONE}"
            return failed("invalid_arguments", text)
        return await self.inner(call, deadline)
