"""Large messages: read in a process of their own, so that the event loop is never blocked by one."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import Any, Final

import orjson

from mcp_gateway.sessions import large_message_parser
from mcp_gateway.sessions.messages import UnreadableError
from starling.core.json import JsonObject

LOOP_BYTES: Final = 2**18  # of a message that is read in the event loop: about 5 ms
_AT_ONCE: Final = 2  # of one session
_THREADS: Final = ThreadPoolExecutor(4, "large-message")  # of the process; address look-ups use asyncio's own threads
_SECONDS: Final = 25.0


@dataclass(frozen=True, slots=True)
class LargeResult:
    """The result of a tool as text that can be stored; `data` is its structured content as JSON, empty without any.

    The text says all of `data` too.
    """

    text: str
    data: bytes
    is_error: bool

    @property
    def small_data(self) -> JsonObject | None:
        """The structured content where it is small enough to be handled as such."""
        return orjson.loads(self.data) if 0 < len(self.data) <= LOOP_BYTES else None


@dataclass(frozen=True, slots=True)
class LargeAnswer:
    """The answer to the request `id`."""

    id: int | str
    result: LargeResult | Mapping[str, Any]


class LargeMessageReader:
    """Reads large messages, few at once."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def read(self, raw: bytes) -> LargeAnswer:
        """Return the answer in a message. Raises UnreadableError, also for what is no answer."""
        async with self._slots:
            return await asyncio.get_running_loop().run_in_executor(_THREADS, _read, raw)


def _read(raw: bytes) -> LargeAnswer:
    """Have a process read a message; for a thread. Files carry it: they are written and read without the loop."""
    command = (sys.executable, "-I", "-S", large_message_parser.__file__)
    try:
        with TemporaryFile() as source, TemporaryFile() as target:
            source.write(raw)
            source.seek(0)
            done = subprocess.run(
                command, stdin=source, stdout=target, stderr=subprocess.DEVNULL, env={}, timeout=_SECONDS, check=False
            )
            target.seek(0)
            output = target.read()
    except subprocess.TimeoutExpired:
        raise UnreadableError("it takes too long to read") from None
    except OSError as error:  # a full disk, or too many processes
        raise UnreadableError(f"it is large, and can't be handed to a process: {error.strerror}") from None
    if done.returncode or not output:
        raise UnreadableError("it takes too much memory or time to read")
    return _answer(output)


def _answer(output: bytes) -> LargeAnswer:
    end = output.index(b"\n") + 1
    head: dict[str, Any] = json.loads(output[:end])
    if "unreadable" in head:
        raise UnreadableError(head["unreadable"])
    if head["text"] < 0:
        return LargeAnswer(head["id"], orjson.loads(output[end:]))
    middle = end + head["text"]
    text = str(memoryview(output)[end:middle], "utf-8")
    return LargeAnswer(head["id"], LargeResult(text, output[middle:], head["isError"]))
