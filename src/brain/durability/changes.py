"""What the calls of a run have changed, or may have, and what of it belongs to attempts that were rejected."""

from collections.abc import Collection
from typing import Final

from brain.durability.attempt_outcomes import AttemptOutcomes
from brain.state import UncertainCall
from starling.core.events.run_events import Change
from starling.core.json import canonical
from starling.core.task_paths import is_within, root_task
from starling.core.tool_calls import UNCERTAIN, CallState
from starling.core.tools import Attempt, DoneCall
from starling.infra.postgres.runs.ledger import LedgerRow

_ARGUMENT_CHARS = 300
_DONE_CHARS = 2_000
_TEXT_CHARS = 600
_MAY_BE_DONE: Final = frozenset({CallState.DISPATCHED, *UNCERTAIN})


def changes_of(rows: Collection[LedgerRow], attempts: AttemptOutcomes) -> list[Change]:
    """Return the calls of a run that changed something, or may have, in their order.

    One is approved if its task was, or that of a call that was given its result.
    """
    reused = _reused_and_approved(rows, attempts)
    return [
        Change(
            call_id=row.call_id,
            name=row.tool,
            args=dict(row.arguments),
            task_id=row.path.rpartition("/")[2].partition(".")[0],
            path=row.path,
            effect=row.effect,
            state=CallState.IN_DOUBT if row.state is CallState.DISPATCHED else row.state,
            declared=row.declared,
            approved=row.key in reused or attempts.is_approved(row.path),
        )
        for row in rows
        if not row.reads and (row.state is CallState.SUCCEEDED or _may_be_done(row, rows))
    ]


def uncertain_calls(rows: Collection[LedgerRow], path: str) -> list[UncertainCall]:
    """Return the calls of a task that may have been done and have no result to show for it.

    Those of a team are the calls of its members' tasks.
    """
    return [
        UncertainCall(
            call=f"{row.tool} {canonical(row.arguments)[:_ARGUMENT_CHARS]} (call {row.call_id})",
            reason=(row.text or "Its outcome is unknown.")[:_TEXT_CHARS],
        )
        for row in rows
        if is_within(row.path, path) and _may_be_done(row, rows)
    ]


def done_calls(
    rows: Collection[LedgerRow],
    attempts: AttemptOutcomes,
    path: str,
    attempt: Attempt,
    also: CallState = CallState.SUCCEEDED,
) -> list[DoneCall]:
    """Return the calls that succeeded in rejected or failed attempts which an attempt at the task of `path` repeats.

    They are those of the same task of the main star; after the failure of another task, of the whole run, but for
    those whose result was approved in a later attempt. Calls in the state `also` count as well. Results are cut to
    2,000 characters.
    """
    root, reused = root_task(path), _reused_and_approved(rows, attempts)
    return [
        DoneCall(row.call_id, row.tool, row.arguments, row.text[:_DONE_CHARS], attempts.reason(row.path, row.attempt))
        for row in rows
        if not row.reads
        and (is_success(row) or row.state is also)
        and attempts.status(row.path, row.attempt) == "rejected"
        and (root_task(row.path) == root or (attempt.after_failure and row.key not in reused))
    ]


def is_success(row: LedgerRow) -> bool:
    """Whether a call was done: by itself, or by an equal one of another run whose result it has."""
    return row.state is CallState.SUCCEEDED or (row.state is CallState.REUSED and row.reused_key is None)


def _may_be_done(row: LedgerRow, rows: Collection[LedgerRow]) -> bool:
    """Whether it is unknown if a call was done: no repeat of it under the same idempotency key succeeded."""
    if row.state not in _MAY_BE_DONE:
        return False
    return not any(other.state is CallState.SUCCEEDED and other.sent_key == row.sent_key for other in rows)


def _reused_and_approved(rows: Collection[LedgerRow], attempts: AttemptOutcomes) -> set[str]:
    """Return the keys of calls whose result a call of an approved task was given."""
    return {row.reused_key for row in rows if row.reused_key and attempts.is_approved(row.path)}
