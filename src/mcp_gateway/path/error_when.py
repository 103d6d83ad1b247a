"""Normal results that are errors, because the tool reports its errors that way and the admin says how."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from mcp_gateway.configuration.error_conditions import ErrorCondition
from mcp_gateway.path.stage import Stage, failed
from mcp_gateway.registration.known_servers import Directory
from mcp_gateway.schemas.linear_patterns import found_in
from starling.core.clock import Deadline
from starling.core.json import JsonObject, canonical
from starling.core.tool_calls import Observation
from starling.core.tools import CallRecord, ToolCall, ToolOutcome

_ABSENT: Final = object()
_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,8}")


@dataclass(frozen=True, slots=True)
class ErrorWhen:
    """Turns a result that meets a condition of `error_when` into what the tool's own `isError` would have been."""

    directory: Directory
    inner: Stage

    async def __call__(self, call: ToolCall, deadline: Deadline, record: CallRecord | None) -> ToolOutcome:
        outcome = await self.inner(call, deadline, record)
        conditions = self.directory.tool_options(call).error_when
        if outcome.observation is not Observation.COMPLETED or not any(_met(one, outcome) for one in conditions):
            return outcome
        text = outcome.text or f"{call.tool.full_name} failed without a message."
        return failed(call, Observation.TOOL_ERROR, "tool_error", text)


def _met(condition: ErrorCondition, outcome: ToolOutcome) -> bool:
    if condition.text_contains is not None:
        return condition.text_contains in outcome.text
    value = _value_at(outcome.data, condition.pointer or "")
    if condition.exists is not None:
        return (value is not _ABSENT) is condition.exists
    if condition.matches is not None:
        return isinstance(value, str) and found_in(condition.matches, value)
    return value is not _ABSENT and canonical(value) == canonical(condition.equals)


def _value_at(data: JsonObject | None, pointer: str) -> Any:
    """Return the value at a JSON pointer (RFC 6901), `_ABSENT` where there is none."""
    value: Any = _ABSENT if data is None else data
    for token in pointer.split("/")[1:]:
        key = token.replace("~1", "/").replace("~0", "~")
        if isinstance(value, Mapping):
            value = cast("Mapping[str, Any]", value).get(key, _ABSENT)
        elif isinstance(value, Sequence) and not isinstance(value, str) and _INDEX.fullmatch(key):
            items = cast("Sequence[Any]", value)
            value = items[int(key)] if int(key) < len(items) else _ABSENT
        else:
            return _ABSENT
    return value
