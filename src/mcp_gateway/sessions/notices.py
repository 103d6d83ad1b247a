"""What a server says while it answers a call: progress and log messages, for the run that makes the call."""

import math
from collections.abc import Callable, Mapping
from itertools import count
from time import monotonic
from typing import Any, Final

from starling.core.json import canonical, storable, storable_text
from starling.core.rate_limit import TokenBucket
from starling.core.tools import ToolCall, ToolNotice

_MESSAGE_CHARS: Final = 500
_MOST: Final = 100  # of one call
_BURST: Final = 5.0
_LARGEST: Final = 2**53
_PER_SECOND: Final = 1.0


class CallNotices:
    """Hands on the notices of one call: at first five at once, then one a second, a hundred in all."""

    def __init__(self, call: ToolCall, mask: Callable[[str], str]) -> None:
        self.run = call.tenant, call.run_id
        self._hand_on = call.on_notice
        self._mask = mask
        self._left = _MOST
        self._bucket = TokenBucket(_BURST, _PER_SECOND, monotonic())

    @property
    def wanted(self) -> bool:
        """Whether the call has a receiver of notices."""
        return self._hand_on is not None

    def add(self, notice: ToolNotice) -> None:
        """Hand a notice on, or drop it."""
        if self._hand_on is not None and self._left > 0 and self._bucket.take(monotonic()):
            self._left -= 1
            self._hand_on(notice)

    def text(self, value: object) -> str:
        """Return a part of a notice as it may be shown."""
        text = value if isinstance(value, str) else "" if value is None else canonical(storable(value))
        return storable_text(self._mask(text[: 2 * _MESSAGE_CHARS]))[:_MESSAGE_CHARS]


class SessionNotices:
    """Tells which call of a session a notice belongs to.

    Progress has the token of its call. A log message has nothing: it belongs to the only run whose calls are open, if
    the session has only ever served that run's tenant; else it is dropped.
    """

    def __init__(self) -> None:
        self._open: dict[int, CallNotices] = {}
        self._tokens = count(1)
        self._tenants: set[str] = set()

    def begin(self, call: CallNotices) -> int:
        """Begin to take notices of a call; return its progress token."""
        token = next(self._tokens)
        self._open[token] = call
        self._tenants.add(call.run[0])
        return token

    def end(self, token: int) -> None:
        """Drop what comes from now on."""
        self._open.pop(token, None)

    def take(self, method: str, params: Mapping[str, Any]) -> None:
        """Hand on the parameters of a notification to the call that it belongs to."""
        if method == "notifications/progress":
            token = params.get("progressToken")
            call = self._open.get(token) if isinstance(token, int) else None
            progress = _number(params.get("progress"))
            if call is not None and progress is not None:
                total, message = _number(params.get("total")), call.text(params.get("message"))
                call.add(ToolNotice(message, progress=progress, total=total))
        elif len(self._tenants) == 1 and len({call.run for call in self._open.values()}) == 1:
            call = next(reversed(self._open.values()))
            level, logger = call.text(params.get("level"))[:20], call.text(params.get("logger"))[:100]
            call.add(ToolNotice(call.text(params.get("data")), level=level or "info", logger=logger))


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < _LARGEST and math.isfinite(value) else None
