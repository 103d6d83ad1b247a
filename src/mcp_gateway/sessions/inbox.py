"""What one server sends, on its way to the session: bounded, read, and told apart."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from mcp.types import JSONRPCError, JSONRPCMessage, JSONRPCNotification, JSONRPCResponse

from mcp_gateway.sessions.large_messages import LOOP_BYTES, LargeMessageReader, LargeResult
from mcp_gateway.sessions.messages import (
    MESSAGE_BYTES,
    PendingRequests,
    UnreadableError,
    looks_like_message,
    read_message,
    unreadable,
)
from starling.core.ids import new_id
from starling.core.rate_limit import TokenBucket

TOO_LONG: Final = f"it is a message longer than {MESSAGE_BYTES // 2**20} MiB"
_LARGE: Final = "starling/large"  # in `_meta` of a result: the key of one that was read elsewhere
_HEAD_BYTES: Final = 256
LIST_CHANGED: Final = "notifications/tools/list_changed"
_NOTICES: Final = frozenset({"notifications/progress", "notifications/message"})
_MOST_LARGE: Final = 4
_PER_SECOND: Final = 50.0  # of notifications of one server
_BURST: Final = 100.0

type Notify = Callable[[str, Mapping[str, Any]], None]
"""Called with the method and the parameters of each notification on progress, log message and change of the tools."""


class Inbox:
    """Turns what a server sends into messages for the SDK's session.

    Progress, log messages and changes of the tools go to `notify` instead. `take` drops notifications beyond 50 a
    second, but never that the tools have changed.
    """

    def __init__(self, notify: Notify) -> None:
        self.pending = PendingRequests()
        self.dropped = 0  # notifications
        self.heard_at = 0.0  # when a message came last, by the loop's clock
        self._notify = notify
        self._reader = LargeMessageReader()
        self._large: OrderedDict[str, LargeResult | Mapping[str, Any]] = OrderedDict()
        self._notifications = TokenBucket(_BURST, _PER_SECOND, 0.0)

    async def take(self, raw: bytes, request: int | str | None = None) -> JSONRPCMessage | None:
        """Return the message in JSON text, None where there is nothing to hand on.

        `request` is what the text is known to answer. An answer that can't be read becomes an error. Raises
        UnreadableError for what isn't a message and answers no known request.
        """
        self.heard_at = asyncio.get_running_loop().time()
        try:
            message = await self._read(raw)
            root, wanted = message.root, str(request)
            if request is not None and isinstance(root, JSONRPCResponse | JSONRPCError) and str(root.id) != wanted:
                raise UnreadableError("it answers another request")
        except UnreadableError as error:
            if b'"method"' in raw[:_HEAD_BYTES] and b'"result"' not in raw[:_HEAD_BYTES]:
                raise  # a notification or a request: it answers nothing
            message = self.refused(raw, str(error), request)
        if isinstance(message.root, JSONRPCNotification) and not self._is_passed_on(message.root):
            return None
        self.pending.answered(message)
        return message

    def refused(self, raw: bytes, reason: str, request: int | str | None = None) -> JSONRPCMessage:
        """Return the error of the request that a text answers. Raises UnreadableError if none is known."""
        if request is None and looks_like_message(raw):
            request = self.pending.answered_by(raw)
        if request is None:
            raise UnreadableError(reason)
        message = unreadable(request, reason)
        self.pending.answered(message)
        return message

    def whole(self, result: Mapping[str, Any]) -> LargeResult | Mapping[str, Any]:
        """Return a result, or the large one that it stands for."""
        meta: object = result.get("_meta")
        key = cast("Mapping[str, object]", meta).get(_LARGE) if isinstance(meta, dict) else None
        return self._large.pop(key, result) if isinstance(key, str) else result

    async def _read(self, raw: bytes) -> JSONRPCMessage:
        if len(raw) > MESSAGE_BYTES:
            raise UnreadableError(TOO_LONG)
        if len(raw) <= LOOP_BYTES:
            return read_message(raw)
        answer = await self._reader.read(raw)
        key = new_id()
        self._large[key] = answer.result
        if len(self._large) > _MOST_LARGE:  # answers whose requests were given up
            self._large.popitem(last=False)
        return JSONRPCMessage(JSONRPCResponse(jsonrpc="2.0", id=answer.id, result={"_meta": {_LARGE: key}}))

    def _is_passed_on(self, notification: JSONRPCNotification) -> bool:
        if notification.method == LIST_CHANGED:
            self._notify(LIST_CHANGED, {})
            return False
        if not self._notifications.take(asyncio.get_running_loop().time()):
            self.dropped += 1
            return False
        if notification.method not in _NOTICES:
            return True
        self._notify(notification.method, notification.params or {})
        return False
