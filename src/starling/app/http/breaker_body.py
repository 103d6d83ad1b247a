"""A breaker as routes show it: few models, because `/ready` needs them before other routes are imported."""

from datetime import datetime
from typing import Any, Final

from pydantic import BaseModel

BREAKER: Final[dict[str, Any]] = {
    "process": "worker-1:4711:9f3c2a",
    "failures": 5,
    "reason": "it ended with exit code 3.",
    "since": "2026-11-20T11:12:01.250000Z",
    "retry_at": "2026-11-20T11:12:04.500000Z",
}


class ServerBreaker(BaseModel):
    """A process whose calls of a server fail at once since `since`; one of them tries it at `retry_at` or later.

    `failures` is how often the server failed there in a row, `reason` why it did last.
    """

    process: str
    failures: int
    reason: str
    since: datetime
    retry_at: datetime
