"""Checks of large values, in a process of their own: this module is its program."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from mcp_gateway.helper_process import helper_output
from mcp_gateway.schemas.validation import faults
from starling.core.json import canonical
from starling.core.json_schemas.compiled import compiled
from starling.core.json_schemas.subschemas import ABSENT, value_at

_SECONDS: Final = 10
_EVALUATIONS: Final = 10**9

type Expected = Sequence[tuple[str, Any]]
"""JSON pointers (RFC 6901), each with the value to find there."""


async def large_value_faults(schema: Mapping[str, Any], value: bytes, root: str) -> list[str]:
    """Return what is wrong with a value in JSON text, as `validation.faults` does; also that it can't be checked."""
    found = await _checked({"schema": schema, "root": root}, value)
    too_much = [f"{root}: it takes too much time or memory to check against its schema"]
    return too_much if found is None else found


async def large_value_has(expected: Expected, value: bytes) -> bool | None:
    """Return what `value_has` does for a value in JSON text; None if it takes too much time or memory."""
    return await _checked({"expected": expected}, value)


def value_has(expected: Expected, value: object) -> bool:
    """Whether a JSON value has one of the expected values at its pointer."""
    return any(
        (found := value_at(value, pointer.split("/")[1:])) is not ABSENT and canonical(found) == canonical(wanted)
        for pointer, wanted in expected
    )


async def _checked(request: Mapping[str, Any], value: bytes) -> Any:
    output = await helper_output(__name__, json.dumps(request).encode() + b"\n" + value, _SECONDS)
    return json.loads(output) if output else None


def main() -> None:
    """Read a line with a request and the value from stdin, both as JSON; write the result as JSON."""
    request, value = json.loads(sys.stdin.buffer.readline()), json.loads(sys.stdin.buffer.read())
    if "expected" in request:
        result: object = value_has(request["expected"], value)
    else:
        schema = replace(compiled(request["schema"]), most_evaluations=_EVALUATIONS)
        result = faults(schema, value, request["root"])
    sys.stdout.write(json.dumps(result))
