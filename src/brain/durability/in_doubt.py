"""The question whether a call was done."""

from datetime import UTC, datetime, timedelta
from typing import Final

from brain.interrupts.requests import InterruptRequest, exact_call
from starling.core.json import JsonObject
from starling.core.tools import ToolCall, ToolOutcome
from starling.infra.postgres.runs.interrupts import NOT_DONE_FROM
from starling.infra.postgres.runs.ledger import LedgerRow

LEASE_LOST: Final = "lease_lost"
RESOLUTION: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "resolution": {"enum": ["done", "not_done", "give_up"]},
        "result": {"type": "string", "maxLength": 20_000},
    },
    "required": ["resolution"],
    "additionalProperties": False,
}


def question_about(call: ToolCall, row: LedgerRow, outcome: ToolOutcome, now: datetime) -> InterruptRequest:
    """Return the question about a call in doubt, which its `outcome` describes.

    While it may still be going on, `not_done` is accepted only later: `now` is the time by the database's clock.
    """
    name, sent = call.tool.full_name, row.dispatched_at and row.dispatched_at.astimezone(UTC)
    schema, since = RESOLUTION, ""
    if sent and row.seconds and outcome.code == LEASE_LOST:
        end = sent + timedelta(seconds=row.seconds)
        if end > now:
            schema, since = {**RESOLUTION, NOT_DONE_FROM: end.isoformat()}, f" from {end:%Y-%m-%d %H:%M:%S} UTC on"
    when = f"at {sent:%Y-%m-%d %H:%M:%S} UTC " if sent else ""
    message = (
        f"{name} was called {when}by process {row.fence} of the run, with the key {row.sent_key}. {outcome.text} Say"
        f" `done`, with its result if you know it; `not_done`{since}, and it is called with the same key; or `give_up`,"
        " and the task fails."
    )
    key = f"in_doubt/{row.key}/{row.fence}"  # a new one for each time that the call left
    reason = f"It is unknown whether {name} was done."
    return InterruptRequest("in_doubt", key, call.path, reason, message, schema, exact_call(call))
