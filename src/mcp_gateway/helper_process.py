"""Helper processes: what is large or costly is handled outside of the platform's process, one process for each."""

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path
from typing import Final
from weakref import WeakKeyDictionary

_AT_ONCE: Final = 4
_MEMORY: Final = 3 * 2**30  # bytes: Python's objects take up to 60 times as much as the JSON that they are read from
_PROGRAM: Final = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, ({memory}, {memory}))
resource.setrlimit(resource.RLIMIT_CPU, ({seconds}, {seconds}))
sys.path.insert(0, {source!r})
from {module} import main
main()
"""
_slots: Final = WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]()  # of the process, which has one loop


async def helper_output(module: str, given: bytes, seconds: int, *options: str) -> bytes:
    """Return what `main` of a module writes to stdout, in a process of its own that reads `given` from stdin.

    The output is empty if it fails or takes too much time or memory; a cancellation kills it. At most four run at
    once. `options` are Python's. Raises OSError if no process can be started.
    """
    source = str(Path(__file__).parents[1])
    program = _PROGRAM.format(memory=_MEMORY, seconds=seconds, source=source, module=module)
    command = (sys.executable, "-I", *options, "-c", program)
    async with _slots.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(_AT_ONCE)):
        process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env={})
        try:
            async with asyncio.timeout(seconds):
                output, _ = await process.communicate(given)
        except TimeoutError:
            return b""
        finally:
            if process.returncode is None:
                process.kill()
    return b"" if process.returncode else output
