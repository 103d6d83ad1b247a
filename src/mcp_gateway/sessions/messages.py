"""Messages of servers: read strictly; what can't be read is an error of the request that it answers."""

import re
from collections import deque
from typing import Final

import orjson
from mcp.types import ErrorData, JSONRPCError, JSONRPCMessage, JSONRPCRequest, JSONRPCResponse
from pydantic import ValidationError

MESSAGE_BYTES: Final = 16 * 2**20  # of one message, decoded; for all transports
UNREADABLE: Final = -32_097  # code of our own errors in place of answers that can't be read
IN_DOUBT: Final = -32_096  # that a service behind a local transport answered that it doesn't know the outcome
LOST: Final = -32_095  # that such a service got a request and didn't answer it
UNREACHED: Final = -32_094  # that such a service didn't get a request
IDEMPOTENCY_KEY: Final = "starling/idempotency-key"  # in `_meta` of a request
FENCE: Final = "starling/fence"  # likewise
_HEAD_BYTES: Final = 4_096  # in which the id of an unreadable message is looked for, and
_TAIL_BYTES: Final = 128
_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[{}\]]')
_ID: Final = re.compile(rb'"id"\s*:\s*(?:(\d{1,9})|"(\d{1,9})")(?![\d"])')
_LAST_ID: Final = re.compile(rb'[,{]\s*"id"\s*:\s*"?(\d{1,9})"?\s*}\s*$')
_PENDING: Final = 1_000  # requests that are remembered: of most that are never answered nothing will come


class UnreadableError(ValueError):
    """What a server sent isn't a JSON-RPC message. The first argument says why, as the end of a sentence."""

    def __str__(self) -> str:
        return str(self.args[0])


def read_message(raw: bytes) -> JSONRPCMessage:
    """Return the message in JSON text. Raises UnreadableError.

    Unlike Python's and pydantic's readers it takes only JSON: no NaN, no half of a surrogate pair, no 200 levels.
    """
    try:
        if b"NaN" in raw or b"Infinity" in raw:
            orjson.loads(raw)
        return JSONRPCMessage.model_validate_json(raw, strict=True)
    except orjson.JSONDecodeError as error:
        raise UnreadableError(f"it is not JSON: {error}") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        if first["type"] != "json_invalid":
            raise UnreadableError("it is not a JSON-RPC message") from None
        detail = first["msg"].removeprefix("Invalid JSON: ")
        raise UnreadableError(f"it is not JSON that can be read: {detail}") from None


def unreadable(request: int | str, reason: str) -> JSONRPCMessage:
    """Return the error that stands in for an answer that can't be read."""
    return JSONRPCMessage(JSONRPCError(jsonrpc="2.0", id=request, error=ErrorData(code=UNREADABLE, message=reason)))


def looks_like_message(raw: bytes) -> bool:
    """Whether a text is meant as a message, rather than as a line of a log."""
    return raw.lstrip()[:1] in (b"{", b"[") and b'"jsonrpc"' in raw[:_HEAD_BYTES] + raw[-_TAIL_BYTES:]


class PendingRequests:
    """The ids of requests without an answer."""

    def __init__(self) -> None:
        self._ids: deque[int | str] = deque(maxlen=_PENDING)

    def sent(self, message: JSONRPCMessage) -> None:
        """Take note of a message that was sent, perhaps again after a redirect."""
        if isinstance(message.root, JSONRPCRequest) and message.root.id not in self._ids:
            self._ids.append(message.root.id)

    def answered(self, message: JSONRPCMessage) -> None:
        """Take note of a message that came."""
        if not isinstance(message.root, JSONRPCResponse | JSONRPCError):
            return
        number = message.root.id
        if isinstance(number, str) and number.isdecimal() and len(number) < 10:  # the SDK matches it as the number
            number = int(number)
        if number in self._ids:
            self._ids.remove(number)

    def has(self, request: int | str) -> bool:
        """Whether a request has no answer yet."""
        return request in self._ids

    def answered_by(self, raw: bytes) -> int | str | None:
        """Return which request an unreadable message answers: the one that it names, else the only one."""
        named = _named_id(raw)
        if named in self._ids:
            return named
        return self._ids[0] if len(self._ids) == 1 and named is None else None


def _named_id(raw: bytes) -> int | None:
    """Return the id at the top level of a message, or of the first in a list, as far as it can be told."""
    head, depth = raw[:_HEAD_BYTES], 0
    top = 2 if head.lstrip().startswith(b"[") else 1
    for token in _TOKEN.finditer(head):
        text = token.group()
        depth += {b"{": 1, b"[": 1, b"}": -1, b"]": -1}.get(text, 0)
        if text == b'"id"' and depth == top and (found := _ID.match(head, token.start())):
            return int(found[1] or found[2])
    found = _LAST_ID.search(raw[-_TAIL_BYTES:])
    return int(found[1]) if found else None
