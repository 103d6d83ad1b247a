"""Conversations: the states of a run are stored with its end, and read along the line of a branch."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from sqlalchemy.ext.asyncio import AsyncEngine

from starling.core.conversation.states import (
    AgentCallState,
    AgentResultState,
    AssistantMessageState,
    BaseState,
    Envelope,
    UserMessageState,
    UserResponseState,
)
from starling.core.conversation.transitions import timed_out
from starling.core.conversation.turn import TURN, PlacedState, pack, unpack
from starling.core.runs import Run
from starling.infra.postgres.engine import Repository, fetch_autocommit
from starling.infra.postgres.runs.writer import Clause

_PUSH: Final = """
moved AS (
    UPDATE branches SET tip = tip + %(turn_length)s, last_agent = coalesce(%(last_agent)s, last_agent),
        last_agents = coalesce(%(last_agents)s::text[], last_agents),
        clarifications = CASE WHEN %(unasked)s AND NOT EXISTS (
            SELECT FROM interrupts
            WHERE interrupts.tenant = fenced.tenant AND interrupts.run_id = fenced.id AND kind = 'clarification')
            THEN 0 ELSE clarifications END
    FROM fenced
    WHERE branches.tenant = fenced.tenant AND branches.thread_id = %(thread_id)s AND branches.id = %(branch_id)s
    RETURNING branches.tenant, branches.thread_id, branches.id, tip - %(turn_length)s + 1 AS first),
pushed AS (
    INSERT INTO states (tenant, thread_id, branch_id, position, run_id, v, t, ts, data, compressed, length)
    SELECT moved.tenant, moved.thread_id, moved.id, moved.first, %(id)s, %(turn_v)s, %(turn_t)s, %(turn_ts)s,
        %(turn_data)s, %(turn_compressed)s, %(turn_length)s
    FROM moved)"""

# The states of a branch's parent count up to where it was forked. Of each branch only as many rows are read as are
# asked for; the first one may begin before the position `after`, and the last one end beyond the fork.
_LINE: Final = """
WITH RECURSIVE line AS (
    SELECT id, parent, fork_position, 9223372036854775807 AS until FROM branches
    WHERE tenant = %(tenant)s AND thread_id = %(thread)s AND id = %(branch)s
    UNION ALL
    SELECT above.id, above.parent, above.fork_position, least(line.until, line.fork_position)
    FROM line JOIN branches AS above
        ON above.tenant = %(tenant)s AND above.thread_id = %(thread)s AND above.id = line.parent)
SELECT line.id, line.until, part.* FROM line CROSS JOIN LATERAL (
    SELECT position, run_id::text, v, t, ts, data, compressed, length FROM states
    WHERE tenant = %(tenant)s AND thread_id = %(thread)s AND branch_id = line.id
        AND position <= line.until AND position >= coalesce((
            SELECT max(position) FROM states WHERE tenant = %(tenant)s AND thread_id = %(thread)s
                AND branch_id = line.id AND position <= %(after)s + 1), 0)
        AND least(position + length - 1, line.until) > %(after)s
        AND (%(kinds)s::text[] IS NULL OR t = ANY(%(kinds)s))
    ORDER BY position {order} LIMIT %(limit)s) AS part
ORDER BY position {order} LIMIT %(limit)s"""
_OLDEST, _NEWEST = _LINE.format(order="ASC"), _LINE.format(order="DESC")

_LAST_AGENTS: Final = """
SELECT coalesce(last_agents, array_remove(ARRAY[last_agent], NULL)) FROM branches
WHERE tenant = %(tenant)s AND thread_id = %(thread_id)s AND id = %(branch_id)s"""

_MOST_ROWS: Final = 500
_TASK_CHARS: Final = 200
_SAID: Final = (UserMessageState, UserResponseState, AssistantMessageState)


def push_turn(run: Run, states: Sequence[PlacedState], *, agents: Sequence[str] = (), unasked: bool = False) -> Clause:
    """Return what appends the states of a run to its branch, as a part of a flush.

    Where `unasked`, and no team of the run asked anything either, questions count anew.

    `agents` are those of the run's tasks, in order; without any, the branch keeps those of its turn before.
    """
    turn = pack(states)
    values = {f"turn_{name}": getattr(turn, name) for name in turn.__match_args__}
    values |= {"thread_id": run.thread_id, "branch_id": run.branch_id, "unasked": unasked}
    values |= {"last_agent": agents[-1] if agents else None, "last_agents": list(dict.fromkeys(agents)) or None}
    return Clause(_PUSH, values)


class Rows(Protocol):
    """Executes a statement for a tenant and returns its rows, on its own or in a transaction."""

    async def __call__(self, statement: str, **values: Any) -> list[tuple[Any, ...]]: ...


def reader_of(engine: AsyncEngine, tenant: str) -> Rows:
    """Return what executes each statement on its own."""

    async def rows(statement: str, **values: Any) -> list[tuple[Any, ...]]:
        return await fetch_autocommit(engine, statement, {"tenant": tenant, **values})

    return rows


@dataclass(frozen=True, slots=True)
class StoredStates:
    """A row of states: where it is stored, the position of its first state, and how many of them are on the line."""

    branch: str
    position: int
    run_id: str | None
    row: Envelope
    length: int

    def states(self) -> list[PlacedState]:
        """Return its states on the line, the first one at `position`. Raises as `decode`."""
        return unpack(self.row)[: self.length]


async def read_line(
    rows: Rows,
    thread: str,
    branch: str,
    *,
    limit: int,
    after: int | None = None,
    kinds: Sequence[str] | None = None,
) -> list[StoredStates]:
    """Return rows with states of a branch and of those that it was forked from, maybe only of some kinds.

    Newest first; with `after`, oldest first from the row on that has the state after that position. None where there
    is no such branch.
    """
    statement = _NEWEST if after is None else _OLDEST
    values = {"thread": thread, "branch": branch, "limit": limit, "kinds": kinds}
    found = await rows(statement, **values, after=-1 if after is None else after)
    return [
        StoredStates(name, position, run, Envelope(*row), min(row[-1], until - position + 1))
        for name, until, position, run, *row in found
    ]


def states_at(rows: Sequence[StoredStates], now: float) -> Iterator[tuple[StoredStates, list[PlacedState]]]:
    """Yield rows that follow one another, oldest first, each with its states.

    A wait at the end of one is as it was when the next one was stored, at the end of the last one as it is `now`.
    """
    ends = [*(row.row.ts for row in rows[1:]), now]
    for row, end in zip(rows, ends, strict=False):
        *states, last = row.states()
        yield row, [*states, replace(last, state=timed_out(last.state, end))]


@dataclass(frozen=True, slots=True)
class RecentTurns:
    """What was said, oldest first, and the tasks of the last turn that had any: `{agent, task, status}`."""

    said: Sequence[BaseState]
    last_plan: Sequence[Mapping[str, str]]


class ConversationRepository(Repository):
    """Reads branches."""

    async def recent(self, run: Run, count: int) -> RecentTurns:
        """Return what the branch has before a run, with the last messages, questions and answers.

        Those inside teams, and those that only ask for calls, are left out.
        """
        kinds = [TURN, *(kind.__name__ for kind in _SAID)]  # in rows of their own in earlier versions
        limit = count
        while True:
            rows = await self._last(run, limit, kinds)
            states = (one.state for row in rows for one in reversed(row.states()) if one.parent is None)
            found: list[BaseState] = [state for state in states if isinstance(state, _SAID) and _text(state)]
            if len(found) >= count or len(rows) < limit or limit > _MOST_ROWS:
                plans = (_tasks_of(row.states()) for row in rows if row.row.t == TURN)
                return RecentTurns(found[:count][::-1], next(filter(None, plans), ()))
            limit *= 8  # rows of imports may have one state each, and nothing that was said

    async def turns(self, run: Run, count: int) -> list[PlacedState]:
        """Return the states of the last turns before a run, oldest first."""
        rows = await self._last(run, count) if run.has_history else []
        return [state for row in reversed(rows) for state in row.states()]

    async def _last(self, run: Run, count: int, kinds: Sequence[str] | None = None) -> list[StoredStates]:
        rows = reader_of(self._engine, run.tenant)
        return await read_line(rows, run.thread_id, run.branch_id, limit=count, kinds=kinds)

    async def last_agents(self, run: Run) -> list[str]:
        """Return the agents of the last turn with tasks on the run's branch."""
        values = {"tenant": run.tenant, "thread_id": run.thread_id, "branch_id": run.branch_id}
        rows = await fetch_autocommit(self._engine, _LAST_AGENTS, values)
        return list(rows[0][0]) if rows else []


def _tasks_of(states: Sequence[PlacedState]) -> list[Mapping[str, str]]:
    """Return the tasks of a turn's own plan, in order, those inside teams left out."""
    own = [one.state for one in states if one.parent is None]
    ended = {state.correlation_id: state.result for state in own if isinstance(state, AgentResultState)}
    return [
        {
            "agent": state.agent_id,
            "task": state.message[:_TASK_CHARS],
            "status": str(ended.get(state.correlation_id or "", {}).get("status", "unfinished")),
        }
        for state in own
        if isinstance(state, AgentCallState)
    ]


def _text(state: UserMessageState | UserResponseState | AssistantMessageState) -> str:
    return state.content if isinstance(state, AssistantMessageState) else state.text
