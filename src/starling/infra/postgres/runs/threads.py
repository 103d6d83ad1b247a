"""Threads, their branches, and the states on the line of a branch."""

from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby, islice
from typing import Any, Final

from starling.core.conversation.states import fields_of
from starling.core.conversation.turn import PlacedState, scored
from starling.core.errors import NotFoundError
from starling.core.json import JsonObject
from starling.infra.postgres.engine import Repository
from starling.infra.postgres.runs.conversations import Rows, read_line, reader_of, states_at

_ROWS: Final = 20

_THREADS: Final = """
SELECT threads.id, threads.branch, threads.created_at,
    branches.id, parent, fork_position, tip, hidden, branches.created_at, its.*
FROM (SELECT * FROM threads WHERE tenant = %(tenant)s AND {which}) AS threads
JOIN branches ON branches.tenant = threads.tenant AND branches.thread_id = threads.id
CROSS JOIN LATERAL (
    SELECT count(*), max(created_at), (array_agg(id::text ORDER BY arrival) FILTER (WHERE ended_at IS NULL))[1]
    FROM runs WHERE tenant = branches.tenant AND thread_id = branches.thread_id AND branch_id = branches.id) AS its
ORDER BY threads.created_at DESC, threads.id DESC, branches.created_at, branches.id"""
_ONE: Final = _THREADS.format(which="id = %(thread)s")
_LATEST: Final = _THREADS.format(
    which="""NOT EXISTS (
        SELECT FROM runs WHERE runs.tenant = threads.tenant AND runs.thread_id = threads.id AND direct_call IS NOT NULL)
    AND (%(before)s::text IS NULL OR (created_at, id) < (
        SELECT created_at, id FROM threads WHERE tenant = %(tenant)s AND id = %(before)s))
    ORDER BY created_at DESC, id DESC LIMIT %(limit)s"""
)

_SESSION: Final = """
SELECT count(*), coalesce(sum((result #>> '{usage,model_calls}')::bigint), 0)::bigint,
    coalesce(sum((result #>> '{usage,tool_calls}')::bigint), 0)::bigint,
    coalesce(sum((result #>> '{usage,tokens}')::bigint), 0)::bigint,
    (SELECT count(*) FROM steps JOIN runs AS its ON its.tenant = steps.tenant AND its.id = steps.run_id
        WHERE its.tenant = %(tenant)s AND its.thread_id = %(thread)s
            AND type IN ('llm_call', 'tool_call') AND metadata -> 'is_error' = 'true'),
    (array_agg(id::text ORDER BY arrival DESC) FILTER (WHERE branch_id = %(branch)s))[1]
FROM runs WHERE tenant = %(tenant)s AND thread_id = %(thread)s"""

_FEEDBACK: Final = """
SELECT run_id::text, avg(score) FROM feedback WHERE tenant = %(tenant)s AND run_id = ANY(%(runs)s::uuid[])
GROUP BY run_id"""
_RUNS_BEYOND: Final = """
SELECT id::text, coalesce(result -> 'effects', '[]') FROM runs JOIN (
    SELECT run_id, min(position) AS begin
    FROM states JOIN unnest(%(branches)s::text[], %(ends)s::bigint[]) AS line (branch_id, upto) USING (branch_id)
    WHERE tenant = %(tenant)s AND thread_id = %(thread)s
        AND position <= upto AND least(position + length - 1, upto) > %(after)s
    GROUP BY run_id) AS placed ON runs.tenant = %(tenant)s AND runs.id = placed.run_id
ORDER BY begin"""


@dataclass(frozen=True, slots=True)
class Branch:
    """A line of states: those of `parent` up to `fork_position`, then its own up to `tip`; positions count from 1.

    `hidden` is what a rewind left behind. `last_at` is when its last run was accepted, `live_run` its oldest one that
    hasn't ended.
    """

    id: str
    parent: str | None
    fork_position: int | None
    tip: int
    hidden: bool
    created_at: datetime
    runs: int
    last_at: datetime | None
    live_run: str | None


@dataclass(frozen=True, slots=True)
class Thread:
    """A conversation with its branches, oldest first, also hidden ones. `branch` is where runs go that name none."""

    id: str
    branch: str
    created_at: datetime
    branches: Sequence[Branch]

    def named(self, name: str | None) -> Branch:
        """Return a branch, the current one without a name. Raises NotFoundError."""
        wanted = name or self.branch
        found = next((branch for branch in self.branches if branch.id == wanted), None)
        if found is None:
            raise NotFoundError("branch", wanted, "`starling conversation show THREAD` shows its branches.")
        return found

    def owner(self, branch: Branch, position: int) -> Branch:
        """Return the branch whose own states a position of a line belongs to."""
        while branch.parent is not None and position <= (branch.fork_position or 0):
            branch = self.named(branch.parent)
        return branch

    def line(self, branch: Branch) -> dict[str, int]:
        """Return the branches of a line, itself first, each with the last position that the line has of it."""
        found = {branch.id: (upto := branch.tip)}
        while branch.parent is not None:
            found[branch.parent] = upto = min(upto, branch.fork_position or 0)
            branch = self.named(branch.parent)
        return found


@dataclass(frozen=True, slots=True)
class SessionMetrics:
    """What the runs of a thread have used so far; those that go on count once they end.

    `errors` is the number of model and tool calls that failed, as far as steps are kept.
    """

    runs: int
    model_calls: int
    tool_calls: int
    tokens: int
    errors: int


@dataclass(frozen=True, slots=True)
class StateView:
    """A state on a line. `reference` is `thread/branch/run/position`; the branch is the one where it is stored.

    `parent` is the position of the state that it is a part of: the call of the agent or team inside which it is.
    `run_id` is null for imported ones. `live`: of a run that goes on, derived from its events, and stored once it ends.
    `ts` is in seconds since the epoch.
    """

    reference: str
    position: int
    branch: str
    run_id: str | None
    agent: str
    parent: int | None
    t: str
    v: int
    ts: float
    data: JsonObject
    live: bool = False


async def read_thread(rows: Rows, thread: str) -> Thread:
    """Return a thread. Raises NotFoundError."""
    found = _threads(await rows(_ONE, thread=thread))
    if not found:
        raise NotFoundError("thread", thread, "`starling conversation list` shows the threads.")
    return found[0]


def views_of(
    thread: str, branch: str, run: str | None, begin: int, states: Sequence[PlacedState], *, live: bool = False
) -> Iterator[StateView]:
    """Yield the states of a run, the first one at the position `begin`."""
    for position, one in enumerate(states, begin):
        parent, kind = None if one.parent is None else begin + one.parent, type(one.state)
        place = (f"{thread}/{branch}/{run or '-'}/{position}", position, branch, run, one.agent, parent)
        yield StateView(*place, kind.__name__, kind.__version__, one.ts, fields_of(one.state), live)


class ThreadReader(Repository):
    """Reads threads. Raises DatabaseUnavailableError; NotFoundError, also for those of other tenants."""

    async def latest(self, tenant: str, *, limit: int, before: str | None = None) -> Sequence[Thread]:
        """Return threads, the one that began last first; those that began before the thread `before`."""
        return _threads(await reader_of(self._engine, tenant)(_LATEST, limit=limit, before=before))

    async def show(self, tenant: str, thread: str) -> Thread:
        """Return a thread."""
        return await read_thread(reader_of(self._engine, tenant), thread)

    async def session(self, tenant: str, thread: Thread) -> tuple[SessionMetrics, str | None]:
        """Return what a thread has used, and the last run of its current branch."""
        values = {"thread": thread.id, "branch": thread.branch}
        *counts, last = (await reader_of(self._engine, tenant)(_SESSION, **values))[0]
        return SessionMetrics(*counts), last

    async def states(
        self, tenant: str, thread: Thread, branch: Branch, *, after: int, now: float
    ) -> AsyncGenerator[StateView]:
        """Yield the stored states of a branch's line after a position, up to its tip as it was read, oldest first.

        A wait past its deadline is shown as the result that it became; one at the tip as it is at the time `now`.
        """
        rows, most = reader_of(self._engine, tenant), _ROWS + 1  # the last one says when the one before it ended
        while after < branch.tip and (page := await read_line(rows, thread.id, branch.id, after=after, limit=most)):
            feedback = dict(await rows(_FEEDBACK, runs=[row.run_id for row in page if row.run_id]))
            for row, states in islice(states_at(page, now), _ROWS):
                rated = [scored(one, feedback.get(row.run_id)) for one in states]
                for view in views_of(thread.id, row.branch, row.run_id, row.position, rated):
                    if after < view.position <= branch.tip:
                        yield view
                after = row.position + row.length - 1

    async def runs_beyond(
        self, tenant: str, thread: Thread, branch: Branch, after: int
    ) -> Sequence[tuple[str, Sequence[JsonObject]]]:
        """Return the runs with stored states after a position of a line, in order, each with what it changed."""
        line = thread.line(branch)
        values = {"thread": thread.id, "branches": list(line), "ends": list(line.values()), "after": after}
        found: Sequence[Any] = await reader_of(self._engine, tenant)(_RUNS_BEYOND, **values)
        return found


def _threads(rows: Sequence[tuple[Any, ...]]) -> list[Thread]:
    return [
        Thread(*key, branches=[Branch(*row[3:]) for row in of]) for key, of in groupby(rows, key=lambda row: row[:3])
    ]
