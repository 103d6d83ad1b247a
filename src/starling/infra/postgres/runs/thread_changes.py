"""Changes of threads: forks, checkouts, rewinds, imports, prunings and deletions, one of a thread at a time."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, Final

from psycopg import AsyncCursor
from sqlalchemy.ext.asyncio import AsyncConnection

from starling.core.conversation.states import Envelope
from starling.core.conversation.transitions import check
from starling.core.conversation.turn import PlacedState, pack, unpack
from starling.core.errors import ConflictError, InvalidRequestError
from starling.core.ids import new_id
from starling.infra.postgres.artifacts import FIRST_CONTENT, delete_unreferenced_contents
from starling.infra.postgres.audit import Actor, AuditedChange, record
from starling.infra.postgres.engine import Repository, driver
from starling.infra.postgres.runs.busy_thread_policy import take_turn
from starling.infra.postgres.runs.conversations import read_line, states_at
from starling.infra.postgres.runs.threads import Branch, Thread, read_thread

_OPEN: Final = """
WITH opened AS (INSERT INTO threads (tenant, id) VALUES (%(tenant)s, %(thread)s) ON CONFLICT DO NOTHING)
INSERT INTO branches (tenant, thread_id, id) VALUES (%(tenant)s, %(thread)s, 'main') ON CONFLICT DO NOTHING"""
_INSERT: Final = """
INSERT INTO states (tenant, thread_id, branch_id, position, run_id, v, t, ts, data, compressed, length)
VALUES (%(tenant)s, %(thread)s, %(branch)s, %(position)s, %(run)s, %(v)s, %(t)s, %(ts)s, %(data)s, %(compressed)s,
    %(length)s)"""
_MOVE_TIP: Final = """
UPDATE branches SET tip = %(position)s WHERE tenant = %(tenant)s AND thread_id = %(thread)s AND id = %(branch)s"""

# A branch that begins at the tip keeps the clarification count and the last agents of its source; else both are reset.
_BRANCH: Final = """
INSERT INTO branches (tenant, thread_id, id, parent, fork_position, tip, hidden, clarifications, last_agents)
SELECT tenant, thread_id, %(name)s, %(parent)s, %(fork_position)s, %(tip)s, %(hidden)s,
    CASE WHEN tip = %(tip)s THEN clarifications ELSE 0 END, CASE WHEN tip = %(tip)s THEN last_agents END
FROM branches WHERE tenant = %(tenant)s AND thread_id = %(thread)s AND id = %(branch)s"""
_CHECKOUT: Final = "UPDATE threads SET branch = %(branch)s WHERE tenant = %(tenant)s AND id = %(thread)s"

_ACROSS: Final = """
SELECT position, run_id::text, v, t, ts, data, compressed, length FROM states
WHERE tenant = %(tenant)s AND thread_id = %(thread)s AND branch_id = %(branch)s
    AND position <= %(position)s AND position + length - 1 > %(position)s"""
_MOVED: Final = (
    """
UPDATE states SET branch_id = %(hidden)s
WHERE tenant = %(tenant)s AND thread_id = %(thread)s AND branch_id = %(branch)s AND position > %(position)s""",
    """
UPDATE branches SET parent = %(hidden)s
WHERE tenant = %(tenant)s AND thread_id = %(thread)s AND parent = %(branch)s AND id <> %(hidden)s
    AND fork_position > %(position)s""",
    """
UPDATE runs SET branch_id = %(hidden)s
WHERE tenant = %(tenant)s AND thread_id = %(thread)s AND branch_id = %(branch)s AND NOT EXISTS (
    SELECT FROM states WHERE states.tenant = runs.tenant AND states.thread_id = runs.thread_id
    AND states.branch_id = runs.branch_id AND states.run_id = runs.id)""",
)
_REWOUND: Final = """
UPDATE branches SET parent = %(parent)s, fork_position = %(fork_position)s, tip = %(position)s, clarifications = 0,
    last_agent = NULL, last_agents = NULL
WHERE tenant = %(tenant)s AND thread_id = %(thread)s AND id = %(branch)s"""
_SHORTEN: Final = """
UPDATE states SET data = %(data)s, compressed = %(compressed)s, length = %(length)s, ts = %(ts)s
WHERE tenant = %(tenant)s AND thread_id = %(thread)s AND branch_id = %(branch)s AND position = %(position)s"""
_CUT: Final = """
DELETE FROM states WHERE tenant = %(tenant)s AND thread_id = %(thread)s AND branch_id = %(branch)s
    AND position > %(position)s"""

# Runs are locked before what belongs to them, as by the pruning of old rows.
_STRANDED: Final = """
SELECT id::text FROM runs WHERE tenant = %(tenant)s AND thread_id = %(thread)s AND branch_id = ANY(%(branches)s)
AND NOT EXISTS (SELECT FROM states WHERE states.tenant = runs.tenant AND states.thread_id = runs.thread_id
    AND states.run_id = runs.id AND NOT states.branch_id = ANY(%(gone)s)) ORDER BY id FOR UPDATE"""
_RUNS: Final = """
SELECT id::text FROM runs WHERE tenant = %(tenant)s AND thread_id = %(thread)s ORDER BY id FOR UPDATE"""
_USED: Final = """
SELECT FROM runs WHERE tenant = %(tenant)s AND thread_id = %(thread)s AND ended_at >= %(since)s
UNION ALL SELECT FROM states WHERE tenant = %(tenant)s AND thread_id = %(thread)s
    AND ts >= extract(epoch FROM %(since)s::timestamptz) LIMIT 1"""
_UNSETTLED: Final = """
SELECT run_id::text FROM ledger WHERE tenant = %(tenant)s AND run_id = ANY(%(runs)s::uuid[])
AND state = 'in_doubt' AND settled_at IS NULL LIMIT 1"""
_OF_RUNS: Final = (
    *("events", "steps", "journal", "ledger", "interrupts", "feedback", "unsent_status_scores", "idempotency_keys"),
    *("call_claims", "chat_answers"),
)
_DELETE_OF_RUNS: Final = "DELETE FROM {} WHERE tenant = %(tenant)s AND run_id = ANY(%(runs)s::uuid[])"
_DELETE_REFERENCES: Final = _DELETE_OF_RUNS.format("run_artifacts") + " RETURNING hash"
_DELETE_RUNS: Final = "DELETE FROM runs WHERE tenant = %(tenant)s AND id = ANY(%(runs)s::uuid[])"
_DELETE_BRANCHES: Final = """
DELETE FROM branches WHERE tenant = %(tenant)s AND thread_id = %(thread)s AND id = ANY(%(gone)s)"""
_DISCARD: Final = """
DELETE FROM branches WHERE tenant = %(tenant)s AND thread_id = %(thread)s AND id = %(branch)s AND arrivals = 0
AND tip = %(tip)s AND NOT EXISTS (
    SELECT FROM branches AS later WHERE later.tenant = %(tenant)s AND later.thread_id = %(thread)s
    AND later.parent = %(branch)s)"""
_DELETE_EMPTY: Final = """
DELETE FROM threads WHERE tenant = %(tenant)s AND id = %(thread)s AND NOT EXISTS (
    SELECT FROM branches WHERE tenant = %(tenant)s AND thread_id = %(thread)s)"""
_DELETE_THREAD: Final = "DELETE FROM threads WHERE tenant = %(tenant)s AND id = %(thread)s"
_LEARNED_ONLY_THERE: Final = """
DELETE FROM skills WHERE tenant = %(tenant)s AND source_run = ANY(%(runs)s::uuid[]) AND NOT EXISTS (
    SELECT FROM skills AS part WHERE part.tenant = skills.tenant AND part.merged_into = skills.id
    AND (part.source_run IS NULL OR part.source_run <> ALL(%(runs)s::uuid[])))"""


_ROWS_BEFORE: Final = 64  # in which the call of a result may be


@dataclass(frozen=True, slots=True)
class Rewound:
    """A branch after a rewind, and the hidden one that has what lay beyond; None where nothing did."""

    branch: Branch
    hidden: Branch | None


@dataclass(frozen=True, slots=True)
class Removed:
    """What was deleted of a thread."""

    branches: Sequence[str] = ()
    runs: int = 0
    skills: int = 0
    artifacts: int = 0


@dataclass(frozen=True, slots=True)
class _Change:
    """A change of one thread, under the lock that acceptances of runs on it take, too."""

    connection: AsyncConnection
    tenant: str
    thread: str

    async def execute(self, statement: str, **values: Any) -> AsyncCursor[Any]:
        place = {"tenant": self.tenant, "thread": self.thread}
        return await (await driver(self.connection)).execute(statement.encode(), place | values)

    async def rows(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        return await (await self.execute(statement, **values)).fetchall()

    async def found(self) -> Thread:
        """Return the thread as it is now. Raises NotFoundError."""
        return await read_thread(self.rows, self.thread)

    async def audit(self, actor: Actor, action: str, **detail: Any) -> None:
        await record(self.connection, actor, AuditedChange(action, self.thread, {"tenant": self.tenant, **detail}))


class ThreadChanges(Repository):
    """Changes threads. Raises DatabaseUnavailableError; NotFoundError, also for those of other tenants."""

    async def append(
        self, tenant: str, thread: str, branch: str | None, states: Sequence[PlacedState], *, only_empty: bool = False
    ) -> Branch:
        """Add states to the end of a branch; the thread begins with them if there is none.

        Raises InvalidRequestError for a state that can't follow the one before; ConflictError while a run goes on,
        with `only_empty` for a branch that has begun, too.
        """
        async with self._changing(tenant, thread) as change:
            await change.execute(_OPEN)
            target = (await change.found()).named(branch)
            if only_empty and (target.tip or target.runs):
                raise ConflictError(f"Thread {thread!r} has begun.", "Send only what is new.")
            _idle(target)
            rows = await read_line(change.rows, thread, target.id, limit=_ROWS_BEFORE)
            before = [one.state for _, stored in states_at(rows[::-1], states[0].ts) for one in stored]
            for one in states:
                check(before, one.state)
                before.append(one.state)
            row = asdict(pack(states))
            await change.execute(_INSERT, branch=target.id, position=target.tip + 1, run=None, **row)
            await change.execute(_MOVE_TIP, branch=target.id, position=target.tip + len(states))
            return (await change.found()).named(target.id)

    async def fork(
        self,
        tenant: str,
        thread: str,
        branch: str | None,
        position: int | None,
        name: str | None,
        states: Sequence[PlacedState] = (),
    ) -> Branch:
        """Begin a branch after a position of a line, its end without one, with these states of its own.

        Raises ConflictError if the name is taken.
        """
        async with self._changing(tenant, thread) as change:
            found = await change.found()
            source = found.named(branch)
            at = source.tip if position is None else position
            _check_position(source, at)
            made = name or f"fork-{new_id()[-8:]}"
            if any(one.id == made for one in found.branches):
                raise ConflictError(f"Thread {thread!r} has a branch {made!r} already.", "Choose another name.")
            begins = {"parent": found.owner(source, at).id, "fork_position": at, "tip": at}
            await change.execute(_BRANCH, branch=source.id, name=made, hidden=False, **begins)
            if states:
                await change.execute(_INSERT, branch=made, position=at + 1, run=None, **asdict(pack(states)))
                await change.execute(_MOVE_TIP, branch=made, position=at + len(states))
            return (await change.found()).named(made)

    async def discard(self, tenant: str, thread: str, branch: str, tip: int) -> None:
        """Delete a branch if it is as it was made, with this tip, and its thread where it was the only one.

        A branch that had a run, has further states, or on which another one begins, stays.
        """
        async with self._changing(tenant, thread) as change:
            await change.execute(_DISCARD, branch=branch, tip=tip)
            await change.execute(_DELETE_EMPTY)

    async def checkout(self, tenant: str, thread: str, branch: str) -> Thread:
        """Make a branch the one that runs go to where they name none."""
        async with self._changing(tenant, thread) as change:
            _visible((await change.found()).named(branch))
            await change.execute(_CHECKOUT, branch=branch)
            return await change.found()

    async def rewind(self, tenant: str, thread: str, branch: str | None, position: int, actor: Actor) -> Rewound:
        """Make a position the last one of a branch; what lay beyond moves to a hidden branch, and so do its forks.

        Raises ConflictError while a run of the branch goes on.
        """
        async with self._changing(tenant, thread) as change:
            found = await change.found()
            target = _idle(found.named(branch))
            _check_position(target, position)
            if position == target.tip:
                return Rewound(target, None)
            hidden = f"rewound-{new_id()[-8:]}"
            began = {"parent": target.parent, "fork_position": target.fork_position}
            owner = found.owner(target, position)
            if owner is target:
                begins, left = began, {"parent": target.id, "fork_position": position}
            else:  # all of its own states move, and it begins earlier on the line
                begins, left = {"parent": owner.id, "fork_position": position}, began
            await change.execute(_BRANCH, branch=target.id, name=hidden, hidden=True, tip=target.tip, **left)
            await _split(change, target.id, position, keep=hidden)
            for statement in _MOVED:
                await change.execute(statement, branch=target.id, hidden=hidden, position=position)
            await change.execute(_REWOUND, branch=target.id, position=position, **begins)
            await change.audit(actor, "thread.rewind", branch=target.id, position=position, hidden=hidden)
            now = await change.found()
            return Rewound(now.named(target.id), now.named(hidden))

    async def prune(self, tenant: str, thread: str, actor: Actor) -> Removed:
        """Delete what no visible branch reaches, with its runs and the skills that were learned only there.

        Raises ConflictError while it isn't known whether one of their calls was made.
        """
        async with self._changing(tenant, thread) as change:
            found = await change.found()
            needed: dict[str, int] = {}  # the last position that visible branches reach of each
            for branch in found.branches:
                for name, upto in found.line(branch).items() if not branch.hidden else ():
                    needed[name] = max(needed.get(name, 0), upto)
            gone = [branch.id for branch in found.branches if branch.id not in needed]
            cut = [one.id for one in found.branches if one.hidden and one.tip > needed.get(one.id, one.tip)]
            for name in cut:
                await _split(change, name, needed[name], keep=None)
                await change.execute(_CUT, branch=name, position=needed[name])
                await change.execute(_MOVE_TIP, branch=name, position=needed[name])
            runs = [row[0] for row in await change.rows(_STRANDED, branches=[*gone, *cut], gone=gone)]
            skills = (await change.execute(_LEARNED_ONLY_THERE, runs=runs)).rowcount
            artifacts = await _delete_runs(change, runs)
            await change.execute(_DELETE_BRANCHES, gone=gone)
            if gone or cut:
                await change.audit(actor, "thread.prune", branches=gone, cut=cut, runs=len(runs), skills=skills)
            return Removed(gone, len(runs), skills, artifacts)

    async def delete(self, tenant: str, thread: str, actor: Actor, *, since: datetime | None = None) -> Removed:
        """Delete a thread with its runs, their artifacts, and the skills that were learned only there.

        Raises ConflictError while a run goes on, or while it isn't known whether one of its calls was made; also where
        the thread was used `since` a moment.
        """
        async with self._changing(tenant, thread) as change:
            branches = (await change.found()).branches
            for branch in branches:
                _ended(branch)
            if since and await change.rows(_USED, since=since):
                raise ConflictError(f"Thread {thread!r} was used since {since}.", "Leave it.")
            runs = [row[0] for row in await change.rows(_RUNS)]
            skills = (await change.execute(_LEARNED_ONLY_THERE, runs=runs)).rowcount
            artifacts = await _delete_runs(change, runs)
            await change.execute(_DELETE_THREAD)
            await change.audit(actor, "thread.delete", runs=len(runs), skills=skills, artifacts=artifacts)
            return Removed([branch.id for branch in branches], len(runs), skills, artifacts)

    @asynccontextmanager
    async def _changing(self, tenant: str, thread: str) -> AsyncGenerator[_Change]:
        async with self.changing() as connection:
            await take_turn(await driver(connection), {"tenant": tenant, "thread_id": thread})
            yield _Change(connection, tenant, thread)


def _idle(branch: Branch) -> Branch:
    return _visible(_ended(branch))


def _ended(branch: Branch) -> Branch:
    if branch.live_run:
        raise ConflictError(
            f"Run {branch.live_run} of branch {branch.id!r} hasn't ended.", "Wait for it, or cancel it."
        )
    return branch


def _visible(branch: Branch) -> Branch:
    if branch.hidden:
        raise ConflictError(f"Branch {branch.id!r} was left behind by a rewind.", "Fork it to go on from there.")
    return branch


def _check_position(branch: Branch, position: int) -> None:
    if not 0 <= position <= branch.tip:
        raise InvalidRequestError(
            f"Branch {branch.id!r} has no position {position}.", f"Choose one from 0, its beginning, to {branch.tip}."
        )


async def _split(change: _Change, branch: str, position: int, *, keep: str | None) -> None:
    """End the row that spans a position there; what it has beyond becomes a row of the branch `keep`, if any."""
    for begin, run, *row in await change.rows(_ACROSS, branch=branch, position=position):
        states, length = unpack(Envelope(*row)), position - begin + 1
        await change.execute(_SHORTEN, branch=branch, position=begin, **asdict(pack(states[:length])))
        if keep:  # parents are counted from the first state of their row
            rest = [replace(one, parent=None if one.parent is None else one.parent - length) for one in states[length:]]
            await change.execute(_INSERT, branch=keep, position=position + 1, run=run, **asdict(pack(rest)))


async def _delete_runs(change: _Change, runs: Sequence[str]) -> int:
    """Delete runs that have ended; return how many contents of artifacts went with them. Raises ConflictError."""
    if unsettled := await change.rows(_UNSETTLED, runs=runs):
        text = f"It isn't known whether a call of run {unsettled[0][0]} was made."
        raise ConflictError(text, "Settle it first: `starling run approve --list` shows it.")
    hashes = {row[0] for row in await change.rows(_DELETE_REFERENCES, runs=runs)}
    for table in _OF_RUNS:
        await change.execute(_DELETE_OF_RUNS.format(table), runs=runs)
    await change.execute(_DELETE_RUNS, runs=runs)
    place = (change.connection, change.tenant, FIRST_CONTENT)
    return (await delete_unreferenced_contents(*place, len(hashes), hashes))[0]
