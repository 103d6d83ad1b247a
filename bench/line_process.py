"""Processes that exchange lines: one prints its address, another answers requests."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

HERE = Path(__file__).parent
_STOP_SECONDS = 15


class ProcessEndedError(Exception):
    """A process of the bench has ended by itself; the message says which one, its own messages say why."""


def python(*arguments: str) -> list[str]:
    return [sys.executable, *arguments]


def inherited(more: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a measured process: this one's and `more`.

    Bytecode is kept, as an installed package has it.
    """
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | dict(more)


@asynccontextmanager
async def running(
    command: Sequence[str], environment: Mapping[str, str] | None = None
) -> AsyncGenerator[asyncio.subprocess.Process]:
    """Run a process for as long as the context lasts; it is told to stop, then killed. Its stderr is ours."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=HERE.parent,
        env=inherited(environment or {}),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=2**24,
    )
    try:
        yield process
    finally:
        await _stop(process)


async def line_of(process: asyncio.subprocess.Process) -> str:
    """Return the next line that the process prints. Raises ProcessEndedError where it ends instead."""
    assert process.stdout is not None
    if line := await process.stdout.readline():
        return line.decode().strip()
    raise ProcessEndedError(f"a process of the bench ended with {await process.wait()}; see its messages above")


async def ask(process: asyncio.subprocess.Process, line: str) -> str:
    """Send a line and return the answer."""
    assert process.stdin is not None
    process.stdin.write(f"{line}\n".encode())
    await process.stdin.drain()
    return await line_of(process)


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(_STOP_SECONDS):
            await process.communicate()
    except TimeoutError:
        process.kill()
        await process.communicate()
