"""Changes of threads: forks, checkouts, rewinds, imports, prunings and deletions, one of a thread at a time."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, cast

from sqlalchemy.ext.asyncio import AsyncConnection

from starling.core.conversation.states import BaseState, Envelope
from starling.core.conversation.transitions import check
from starling.core.conversation.turn import PlacedState, pack, unpack
from starling.core.errors import ConflictError, InvalidRequestError
from starling.core.ids import new_id
from starling.infra.postgres.artifacts import FIRST_CONTENT, ContentKey, delete_unreferenced_contents
from starling.infra.postgres.audit import Actor, AuditedChange, record
from starling.infra.postgres.engine import Engine, changing, driver
from starling.infra.postgres.runs.busy_thread_policy import TAKE_TURN
from starling.infra.postgres.runs.threads import Branch, Thread, read_thread

_CONTENTS_AT_ONCE: Final = 1_000

_OPEN_THREAD: Final = """
INSERT INTO threads (tenant, id) VALUES (%(tenant)s, %(thread)s) ON CONFLICT DO NOTHING"""
_OPEN_MAIN: Final = """
INSERT INTO branches (tenant, thread_id, id) VALUES (%(tenant)s, %(thread)s, 'main') ON CONFLICT DO NOTHING"""
_INSERT: Final = """
INSERT INTO states (tenant, thread_id, branch_id, position, run_id, v, t, ts, data, compressed, length)
VALUES (%(tenant)s, %(thread)s, %(branch)s, %(position)s, %(run)s, %(v)s, %(t)s, %(ts)s, %(data)s, %(compressed)s,
    %(length)s)"""
_MOVE_TIP: Final = """
UPDATE branches SET tip = %(position)s WHERE tenant = %(tenant)s AND thread_id = %(thread)s AND id = %(branch)s"""
_LAST_ROW: Final = """
SELECT position, v, t, ts, data, compressed, length FROM states
WHERE tenant = %(tenant)s AND thread_id = %(thread)s AND branch_id = %(branch)s AND position <= %(position)s
ORDER BY position DESC LIMIT 1"""

# A fork at the tip goes on asking and looking where its parent would; elsewhere it counts anew.
_FORK: Final = """
INSERT INTO branches (tenant, thread_id, id, parent, fork_position, tip, clarifications, last_agents)
SELECT tenant, thread_id, %(name)s, %(parent)s, %(position)s, %(position)s,
    CASE WHEN tip = %(position)s THEN clarifications ELSE 0 END, CASE WHEN tip = %(position)s THEN last_agents END
FROM branches WHERE tenant = %(tenant)s AND thread_id = %(thread)s AND id = %(parent)s"""
_CHECKOUT: Final = "UPDATE threads SET branch = %(branch)s WHERE tenant = %(tenant)s AND id = %(thread)s"

_HIDE: Final = """
INSERT INTO branches (tenant, thread_id, id, parent, fork_position, tip, arrivals, hidden)
SELECT tenant, thread_id, %(hidden)s, %(parent)s, %(fork_position)s, tip, arrivals, true
FROM branches WHERE tenant = %(tenant)s AND thread_id = %(thread)s AND id = %(branch)s"""
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
_STRANDED: Final = """
SELECT id::text FROM runs WHERE tenant = %(tenant)s AND thread_id = %(thread)s AND branch_id = ANY(%(branches)s)
AND NOT EXISTS (SELECT FROM states WHERE states.tenant = runs.tenant AND states.thread_id = runs.thread_id
    AND states.run_id = runs.id AND NOT states.branch_id = ANY(%(deleted)s))"""

_RUNS: Final = "SELECT id::text, ended_at IS NULL FROM runs WHERE tenant = %(tenant)s AND thread_id = %(thread)s"
_UNSETTLED: Final = """
SELECT run_id::text FROM ledger WHERE tenant = %(tenant)s AND run_id = ANY(%(runs)s::uuid[])
AND state = 'in_doubt' AND settled_at IS NULL LIMIT 1"""
_OF_RUNS: Final = (
    *("events", "steps", "journal", "ledger", "interrupts", "feedback", "unsent_status_scores", "run_artifacts"),
    *("idempotency_keys", "call_claims"),
)
_DELETE_OF_RUNS: Final = "DELETE FROM {} WHERE tenant = %(tenant)s AND run_id = ANY(%(runs)s::uuid[])"
_DELETE_RUNS: Final = "DELETE FROM runs WHERE tenant = %(tenant)s AND id = ANY(%(runs)s::uuid[])"
_DELETE_BRANCHES: Final = """
DELETE FROM branches WHERE tenant = %(tenant)s AND thread_id = %(thread)s AND id = ANY(%(gone)s)"""
_DELETE_THREAD: Final = "DELETE FROM threads WHERE tenant = %(tenant)s AND id = %(thread)s"
_LEARNED_ONLY_THERE: Final = """
DELETE FROM skills WHERE tenant = %(tenant)s AND source_run = ANY(%(runs)s::uuid[]) AND NOT EXISTS (
    SELECT FROM skills AS part WHERE part.tenant = skills.tenant AND part.merged_into = skills.id
    AND (part.source_run IS NULL OR part.source_run <> ALL(%(runs)s::uuid[])))"""


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


@dataclass(slots=True)
class _Change:
    """A change of one thread, which no other change of it and no acceptance of a run meets."""

    connection: AsyncConnection
    tenant: str
    thread: str
    place: Mapping[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.place = {"tenant": self.tenant, "thread": self.thread, "thread_id": self.thread}

    async def execute(self, statement: str, **values: Any) -> int:
        """Execute a statement; return how many rows it changed."""
        cursor = await (await driver(self.connection)).execute(statement.encode(), {**self.place, **values})
        return cursor.rowcount

    async def rows(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        cursor = await (await driver(self.connection)).execute(statement.encode(), {**self.place, **values})
        return await cursor.fetchall()

    async def found(self) -> Thread:
        """Return the thread as it is now. Raises NotFoundError."""
        return await read_thread(self.rows, self.thread)

    async def audit(self, actor: Actor, action: str, **detail: Any) -> None:
        await record(self.connection, actor, AuditedChange(action, self.thread, {"tenant": self.tenant, **detail}))


class ThreadChanges:
    """Changes threads. Raises DatabaseUnavailableError; NotFoundError, also for those of other tenants."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def append(self, tenant: str, thread: str, branch: str | None, states: Sequence[PlacedState]) -> Branch:
        """Add states to the end of a branch; the thread begins with them if there is none.

        Raises InvalidRequestError for a state that can't follow the one before; ConflictError while a run goes on.
        """
        async with self._changing(tenant, thread) as change:
            await change.execute(_OPEN_THREAD)
            await change.execute(_OPEN_MAIN)
            found = await change.found()
            target = _idle(found.named(branch))
            before = await _states_before(change, found, target)
            for one in states:
                check(before, one.state)
                before.append(one.state)
            row = asdict(pack(states))
            await change.execute(_INSERT, branch=target.id, position=target.tip + 1, run=None, **row)
            await change.execute(_MOVE_TIP, branch=target.id, position=target.tip + len(states))
            return (await change.found()).named(target.id)

    async def fork(
        self, tenant: str, thread: str, branch: str | None, position: int | None, name: str | None
    ) -> Branch:
        """Begin a branch after a position of a line, its end without one. Raises ConflictError if the name is taken."""
        async with self._changing(tenant, thread) as change:
            found = await change.found()
            source = found.named(branch)
            at = source.tip if position is None else position
            _check_position(source, at)
            made = name or f"fork-{new_id()[-8:]}"
            if any(one.id == made for one in found.branches):
                raise ConflictError(f"Thread {thread!r} has a branch {made!r} already.", "Choose another name.")
            await change.execute(_FORK, name=made, parent=found.owner(source, at).id, position=at)
            return (await change.found()).named(made)

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
            target = _idle(_visible(found.named(branch)))
            _check_position(target, position)
            if position == target.tip:
                return Rewound(target, None)
            hidden = f"rewound-{new_id()[-8:]}"
            own = max(position, target.fork_position or 0)  # beyond it, states are its own and move
            inside = target.parent is None or position > (target.fork_position or 0)
            beyond = (target.id, own) if inside else (target.parent, target.fork_position)
            await change.execute(_HIDE, branch=target.id, hidden=hidden, parent=beyond[0], fork_position=beyond[1])
            await _split(change, target.id, own, keep=hidden)
            for statement in _MOVED:
                await change.execute(statement, branch=target.id, hidden=hidden, position=own)
            begins = (target.parent, target.fork_position) if inside else (found.owner(target, position).id, position)
            await change.execute(
                _REWOUND, branch=target.id, parent=begins[0], fork_position=begins[1], position=position
            )
            await change.audit(actor, "thread.rewind", branch=target.id, position=position, hidden=hidden)
            now = await change.found()
            return Rewound(now.named(target.id), now.named(hidden))

    async def prune(self, tenant: str, thread: str, actor: Actor) -> Removed:
        """Delete what no visible branch reaches, with its runs."""
        async with self._changing(tenant, thread) as change:
            found = await change.found()
            needed = _needed(found)
            gone = [branch.id for branch in found.branches if branch.id not in needed]
            cut = {
                one.id: needed[one.id] for one in found.branches if one.hidden and one.tip > needed.get(one.id, one.tip)
            }
            for name, upto in cut.items():
                await _split(change, name, upto, keep=None)
                await change.execute(_CUT, branch=name, position=upto)
                await change.execute(_MOVE_TIP, branch=name, position=upto)
            runs = [row[0] for row in await change.rows(_STRANDED, branches=[*gone, *cut], deleted=gone)]
            removed = Removed(gone, len(runs), 0, await _delete_runs(change, runs))
            await change.execute(_DELETE_RUNS, runs=runs)
            await change.execute(_DELETE_BRANCHES, gone=gone)
            if gone or cut:
                await change.audit(actor, "thread.prune", branches=gone, cut=list(cut), runs=len(runs))
            return removed

    async def delete(self, tenant: str, thread: str, actor: Actor) -> Removed:
        """Delete a thread with its runs, their artifacts, and the skills that were learned only there.

        Raises ConflictError while a run goes on, or while it isn't known whether one of its calls was made.
        """
        async with self._changing(tenant, thread) as change:
            found = await change.found()
            runs = await change.rows(_RUNS)
            if live := [name for name, is_live in runs if is_live]:
                raise ConflictError(
                    f"Run {live[0]} of thread {thread!r} hasn't ended.", "Cancel it, or wait for its end."
                )
            ids = [name for name, _ in runs]
            if unsettled := await change.rows(_UNSETTLED, runs=ids):
                text = f"It isn't known whether a call of run {unsettled[0][0]} was made."
                raise ConflictError(text, "Settle it first: `starling run approve --list` shows it.")
            skills = await change.execute(_LEARNED_ONLY_THERE, runs=ids)
            contents = await _delete_runs(change, ids)
            await change.execute(_DELETE_THREAD)
            await change.audit(actor, "thread.delete", runs=len(ids), skills=skills, artifacts=contents)
            return Removed([branch.id for branch in found.branches], len(ids), skills, contents)

    @asynccontextmanager
    async def _changing(self, tenant: str, thread: str) -> AsyncGenerator[_Change]:
        async with changing(self._engine) as connection:
            change = _Change(connection, tenant, thread)
            await change.execute(f"SELECT {TAKE_TURN}")
            yield change


def _idle(branch: Branch) -> Branch:
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


def _needed(thread: Thread) -> Mapping[str, int]:
    """Return the branches that visible ones reach, each with the last position that they reach of it."""
    needed: dict[str, int] = {}
    for branch in thread.branches:
        for name, upto in thread.line(branch) if not branch.hidden else ():
            needed[name] = max(needed.get(name, 0), upto)
    return needed


async def _states_before(change: _Change, thread: Thread, branch: Branch) -> list[BaseState]:
    """Return the states of the last row of a line, which those that follow are checked against."""
    for name, upto in thread.line(branch):
        rows = await change.rows(_LAST_ROW, branch=name, position=upto)
        if rows:
            position, *row = rows[0]
            return [one.state for one in unpack(Envelope(*row))][: upto - position + 1]
    return []


async def _split(change: _Change, branch: str, position: int, *, keep: str | None) -> None:
    """End the row that spans a position there; what it has beyond becomes a row of the branch `keep`, if any."""
    for begin, run, *row in await change.rows(_ACROSS, branch=branch, position=position):
        states, length = unpack(Envelope(*row)), position - begin + 1
        await change.execute(_SHORTEN, branch=branch, position=begin, **asdict(pack(states[:length])))
        if keep:  # parents are counted from the first state of their row
            rest = [replace(one, parent=None if one.parent is None else one.parent - length) for one in states[length:]]
            await change.execute(_INSERT, branch=keep, position=position + 1, run=run, **asdict(pack(rest)))


async def _delete_runs(change: _Change, runs: Sequence[str]) -> int:
    """Delete what belongs to runs beside their rows; return how many contents of artifacts went with it."""
    for table in _OF_RUNS:
        await change.execute(_DELETE_OF_RUNS.format(table), runs=runs)
    count, last = 0, cast("ContentKey | None", FIRST_CONTENT)
    while last is not None:
        gone, last = await delete_unreferenced_contents(change.connection, change.tenant, last, _CONTENTS_AT_ONCE)
        count += gone
    return count
