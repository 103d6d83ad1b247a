"""Conditions of `error_when` on one result; on a large one in a process of its own, as this module's `main`."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from mcp_gateway.configuration.error_conditions import ErrorCondition
from mcp_gateway.schemas.large_values import check_stdin, checked_elsewhere
from mcp_gateway.schemas.linear_patterns import found_in
from starling.core.json import JsonObject, canonical

_ABSENT: Final = object()
_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,8}")


async def is_met_by_large(conditions: Sequence[ErrorCondition], data: bytes) -> bool | None:
    """Whether structured content in JSON text meets a condition; None if that takes too much time or memory."""
    asked = [condition.model_dump(mode="json") for condition in conditions]
    return await checked_elsewhere(__name__, asked, data)


def main() -> None:
    """Judge one large result."""
    check_stdin(
        lambda conditions, data: any(is_met(ErrorCondition.model_validate(one), "", data) for one in conditions)
    )


def is_met(condition: ErrorCondition, text: str, data: JsonObject | None) -> bool:
    """Whether a result with this text and structured content meets a condition."""
    if condition.text_contains is not None:
        return condition.text_contains in text
    value = _value_at(data, condition.pointer or "")
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
