"""Checks of large values against schemas, in a process of their own."""

import asyncio
import json
import resource
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from mcp_gateway.schemas.validation import faults
from starling.core.json_schemas.compiled import compiled

_SECONDS: Final = 10
_MEMORY: Final = 3 * 2**30  # bytes
_EVALUATIONS: Final = 10**9
_PROGRAM: Final = f"import sys; sys.path.insert(0, sys.argv[1]); from {__name__} import main; main(sys.argv[2])"
_SOURCE: Final = str(Path(__file__).parents[2])


async def large_value_faults(schema: Mapping[str, Any], value: bytes, root: str) -> list[str]:
    """Return what is wrong with a value in JSON text, as `validation.faults` does; also that it can't be checked."""
    command = (sys.executable, "-I", "-c", _PROGRAM, _SOURCE, root)
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env={})
    try:
        async with asyncio.timeout(_SECONDS):
            output, _ = await process.communicate(json.dumps(schema).encode() + b"\n" + value)
    except TimeoutError:
        output = b""
    finally:
        if process.returncode is None:
            process.kill()
    return json.loads(output) if output else [f"{root}: it takes too much time or memory to check against its schema"]


def main(root: str) -> None:
    """Check one value: read a line with the schema and the value from stdin, and write the faults, all as JSON."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
    schema = replace(compiled(json.loads(sys.stdin.buffer.readline())), most_evaluations=_EVALUATIONS)
    sys.stdout.write(json.dumps(faults(schema, json.loads(sys.stdin.buffer.read()), root)))
