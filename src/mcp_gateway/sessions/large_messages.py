"""Large messages: each is read by a helper process, so that the event loop is never blocked by one."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Final

import orjson

from mcp_gateway.helper_process import helper_output
from mcp_gateway.sessions import large_message_parser
from mcp_gateway.sessions.messages import UnreadableError
from starling.core.artifacts import Binary
from starling.core.json import JsonObject

LOOP_BYTES: Final = 2**18  # of a message that is read in the event loop: about 5 ms
_AT_ONCE: Final = 2  # of one session
_SECONDS: Final = 25


@dataclass(frozen=True, slots=True)
class LargeResult:
    """The result of a tool, or a resource, as text that can be stored; `data` is structured content as JSON, or empty.

    The text says all of `data` too, and names the `binaries`.
    """

    text: str
    data: bytes
    is_error: bool
    binaries: tuple[Binary, ...] = ()

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
        """Return the answer in a message. Raises UnreadableError, also for what is not an answer."""
        async with self._slots:
            try:
                output = await helper_output(large_message_parser.__name__, raw, _SECONDS, "-S")
            except OSError as error:  # too many processes or open files
                raise UnreadableError(f"it is large, and can't be handed to a process: {error.strerror}") from None
        if not output:
            raise UnreadableError("it takes too much memory or time to read")
        end = output.index(b"\n") + 1
        head: dict[str, Any] = json.loads(output[:end])
        if "unreadable" in head:
            raise UnreadableError(head["unreadable"])
        if head["text"] < 0:
            return LargeAnswer(head["id"], orjson.loads(output[end:]))
        sizes = (head["text"], head["data"], *(size for *_, size in head["binaries"]))
        text, data, *contents = (output[begin:to] for begin, to in pairwise(accumulate(sizes, initial=end)))
        binaries = (
            Binary(key, kind, content) for (key, kind, _), content in zip(head["binaries"], contents, strict=True)
        )
        return LargeAnswer(head["id"], LargeResult(text.decode(), data, head["isError"], tuple(binaries)))
