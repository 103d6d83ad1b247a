"""Checks of large values, in a process of their own."""

import asyncio
import json
import resource
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from mcp_gateway.schemas.validation import faults
from starling.core.json_schemas.compiled import compiled

_SECONDS: Final = 10
_MEMORY: Final = 3 * 2**30  # bytes
_EVALUATIONS: Final = 10**9
_PROGRAM: Final = "import sys; sys.path.insert(0, sys.argv[1]); from {} import main; main(*sys.argv[2:])"
_SOURCE: Final = str(Path(__file__).parents[2])


async def large_value_faults(schema: Mapping[str, Any], value: bytes, root: str) -> list[str]:
    """Return what is wrong with a value in JSON text, as `validation.faults` does; also that it can't be checked."""
    found = await checked_elsewhere(__name__, schema, value, root)
    too_much = [f"{root}: it takes too much time or memory to check against its schema"]
    return too_much if found is None else found


async def checked_elsewhere(module: str, request: object, value: bytes, *arguments: str) -> Any:
    """Return what a check of a value in JSON text writes to stdout as JSON; None if it takes too much time or memory.

    In a process of its own, `main` of the module is called with the arguments; `check_stdin` reads what it is given.
    """
    command = (sys.executable, "-I", "-c", _PROGRAM.format(module), _SOURCE, *arguments)
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env={})
    try:
        async with asyncio.timeout(_SECONDS):
            output, _ = await process.communicate(json.dumps(request).encode() + b"\n" + value)
    except TimeoutError:
        output = b""
    finally:
        if process.returncode is None:
            process.kill()
    return json.loads(output) if output else None


def check_stdin(check: Callable[[Any, Any], object]) -> None:
    """Read a line with the request and the value from stdin, both as JSON, and write the result of the check."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
    request = json.loads(sys.stdin.buffer.readline())
    sys.stdout.write(json.dumps(check(request, json.loads(sys.stdin.buffer.read()))))


def main(root: str) -> None:
    """Check one value against a schema."""
    check_stdin(lambda schema, value: faults(replace(compiled(schema), most_evaluations=_EVALUATIONS), value, root))
