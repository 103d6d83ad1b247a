"""Threads, their branches, and the states on the line of a branch."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol, cast

from starling.core.conversation.turn import PlacedState, scored
from starling.core.errors import NotFoundError
from starling.infra.postgres.engine import Engine, fetch_autocommit
from starling.infra.postgres.runs.conversations import ConversationRepository

_REMEDY: Final = "`starling conversation show THREAD` shows its branches."
_ROWS: Final = 50

_THREADS: Final = """
SELECT threads.id, threads.branch, threads.created_at,
    (SELECT count(*) FROM branches WHERE branches.tenant = threads.tenant AND branches.thread_id = threads.id
        AND NOT hidden),
    count(runs.id), max(runs.created_at)
FROM threads LEFT JOIN runs ON runs.tenant = threads.tenant AND runs.thread_id = threads.id
WHERE threads.tenant = %(tenant)s AND (%(before)s::text IS NULL OR (threads.created_at, threads.id) < (
    SELECT created_at, id FROM threads WHERE tenant = %(tenant)s AND id = %(before)s))
GROUP BY threads.tenant, threads.id, threads.branch, threads.created_at
ORDER BY threads.created_at DESC, threads.id DESC LIMIT %(limit)s"""
_THREAD: Final = """
SELECT threads.branch, threads.created_at, branches.id, parent, fork_position, tip, hidden, branches.created_at,
    count(runs.id),
    (array_agg(runs.id::text ORDER BY arrival) FILTER (WHERE runs.id IS NOT NULL AND ended_at IS NULL))[1]
FROM threads JOIN branches ON branches.tenant = threads.tenant AND branches.thread_id = threads.id
LEFT JOIN runs ON runs.tenant = threads.tenant AND runs.thread_id = threads.id AND runs.branch_id = branches.id
WHERE threads.tenant = %(tenant)s AND threads.id = %(thread)s
GROUP BY threads.tenant, threads.id, branches.tenant, branches.thread_id, branches.id
ORDER BY branches.created_at, branches.id"""

_FEEDBACK: Final = """
SELECT run_id::text, avg(score) FROM feedback WHERE tenant = %(tenant)s AND run_id = ANY(%(runs)s::uuid[])
GROUP BY run_id"""


@dataclass(frozen=True, slots=True)
class Branch:
    """A line of states: those of `parent` up to `fork_position`, then its own up to `tip`; positions count from 1.

    `hidden` is what a rewind left behind. `live_run` is the oldest run of the branch that hasn't ended.
    """

    id: str
    parent: str | None
    fork_position: int | None
    tip: int
    hidden: bool
    created_at: datetime
    runs: int
    live_run: str | None


@dataclass(frozen=True, slots=True)
class Thread:
    """A conversation. `branch` is the one that runs go to where they name none."""

    id: str
    branch: str
    created_at: datetime
    branches: Sequence[Branch] = ()

    def named(self, name: str | None) -> Branch:
        """Return a branch, the current one without a name. Raises NotFoundError."""
        wanted = name or self.branch
        found = next((branch for branch in self.branches if branch.id == wanted), None)
        if found is None:
            raise NotFoundError("branch", wanted, _REMEDY)
        return found

    def owner(self, branch: Branch, position: int) -> Branch:
        """Return the branch whose own states a position of a line belongs to."""
        while branch.parent is not None and position <= (branch.fork_position or 0):
            branch = self.named(branch.parent)
        return branch

    def line(self, branch: Branch) -> list[tuple[str, int]]:
        """Return the branches of a line, itself first, each with the last position that the line has of it."""
        found, upto = [(branch.id, branch.tip)], branch.tip
        while branch.parent is not None:
            upto = min(upto, branch.fork_position or 0)
            branch = self.named(branch.parent)
            found.append((branch.id, upto))
        return found


@dataclass(frozen=True, slots=True)
class ThreadSummary:
    """A thread in a list. `last_at` is when its last run was accepted."""

    id: str
    branch: str
    created_at: datetime
    branches: int
    runs: int
    last_at: datetime | None


@dataclass(frozen=True, slots=True)
class StoredState:
    """A state with its place: the branch where it is stored, and its position on every line that it is on.

    `parent` is the position of the state that it is a part of; `run_id` is None for imported ones.
    """

    branch: str
    position: int
    run_id: str | None
    parent: int | None
    placed: PlacedState


class Rows(Protocol):
    """Executes a statement and returns its rows, on its own or in a transaction."""

    async def __call__(self, statement: str, **values: Any) -> list[tuple[Any, ...]]: ...


async def read_thread(rows: Rows, thread: str) -> Thread:
    """Return a thread with its branches, also hidden ones. Raises NotFoundError."""
    found = await rows(_THREAD, thread=thread)
    if not found:
        raise NotFoundError("thread", thread, "`starling conversation list` shows the threads.")
    branch, created_at, *_ = found[0]
    return Thread(thread, branch, created_at, [Branch(*row[2:]) for row in found])


class ThreadReader:
    """Reads threads. Raises DatabaseUnavailableError; NotFoundError, also for those of other tenants."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._conversations = ConversationRepository(engine)

    async def latest(self, tenant: str, *, limit: int, before: str | None = None) -> Sequence[ThreadSummary]:
        """Return threads, the one that began last first; those that began before the thread `before`."""
        rows = await fetch_autocommit(self._engine, _THREADS, {"tenant": tenant, "limit": limit, "before": before})
        return [ThreadSummary(*row) for row in rows]

    async def show(self, tenant: str, thread: str) -> Thread:
        """Return a thread with its branches, also hidden ones."""

        async def rows(statement: str, **values: Any) -> list[tuple[Any, ...]]:
            return await fetch_autocommit(self._engine, statement, {"tenant": tenant, **values})

        return await read_thread(rows, thread)

    async def states(self, tenant: str, thread: str, branch: Branch, *, after: int = 0) -> AsyncGenerator[StoredState]:
        """Yield the stored states of a branch's line after a position, oldest first."""
        while page := await self._conversations.line(tenant, thread, branch.id, after=after, limit=_ROWS):
            runs = [row.run_id for row in page if row.run_id]
            scores = await fetch_autocommit(self._engine, _FEEDBACK, {"tenant": tenant, "runs": runs})
            feedback = dict(cast("list[tuple[str, float]]", scores))
            for row in page:
                for position, one in enumerate(row.states(), row.position):
                    if position > after:
                        parent = None if one.parent is None else row.position + one.parent
                        placed = scored(one, feedback.get(row.run_id or ""))
                        yield StoredState(row.branch, position, row.run_id, parent, placed)
                        after = position
