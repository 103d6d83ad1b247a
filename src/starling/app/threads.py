"""Conversations: the states of a line with those of the run that goes on, imports, and branches side by side."""

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field

from pydantic import TypeAdapter, ValidationError

from brain.explanation.comparison import Comparison, compare
from starling.core.clock import Clock
from starling.core.conversation.openai_messages import ChatMessage, states_of_messages
from starling.core.conversation.states import BaseState, fields_of, state_of
from starling.core.conversation.turn import SUPERVISOR, PlacedState, states_of
from starling.core.errors import InvalidRequestError
from starling.core.json import JsonObject
from starling.core.run_document.document import RunDocument
from starling.core.validation_errors import fault_list
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.documents import RunDocumentRepository
from starling.infra.postgres.runs.thread_changes import ThreadChanges
from starling.infra.postgres.runs.threads import Branch, StoredState, Thread, ThreadReader


@dataclass(frozen=True, slots=True)
class StateView:
    """A state on a line. `reference` is `thread/branch/run/position`; the branch is the one that it was made on.

    `parent` is the position of the state that it is a part of: of a tool's result the call, of a call the agent's.
    `live`: of a run that goes on, derived from its events, and stored once it ends. `ts` is in seconds since the epoch.
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


@dataclass(frozen=True, slots=True)
class GivenState:
    """A state that a caller adds, by kind, version and fields."""

    t: str
    v: int
    data: JsonObject
    agent: str | None = None

    def state(self) -> BaseState:
        """Return the state. Raises InvalidRequestError for an unknown kind, and for fields that don't suit it."""
        try:
            state = state_of(self.t, self.v, self.data)
            return TypeAdapter(type(state)).validate_python(fields_of(state))
        except ValidationError as error:
            text = fault_list(error.errors(include_url=False))
        except TypeError as error:
            text = str(error).partition(") ")[2]
        raise InvalidRequestError(f"A state isn't a {self.t}: {text}.", "Send the fields of its kind.")


@dataclass(frozen=True, slots=True)
class StatePage:
    """States, oldest first. `next` is the value of `after` for the next page, null on the last page."""

    states: Sequence[StateView]
    next: int | None


@dataclass(frozen=True, slots=True)
class BranchEffect:
    """A call that changed something, or may have: a rewind doesn't undo it."""

    run_id: str
    call: JsonObject


@dataclass(frozen=True, slots=True)
class ComparedBranch:
    """One of two branches: its runs beyond what both share, and what they changed."""

    branch: str
    runs: Sequence[str]
    effects: Sequence[BranchEffect]


@dataclass(frozen=True, slots=True)
class BranchComparison:
    """Two branches: the last position that they share, and their runs beyond it side by side, in pairs."""

    common: int
    a: ComparedBranch
    b: ComparedBranch
    runs: Sequence[Comparison] = field(default_factory=list[Comparison])


@dataclass(frozen=True, slots=True)
class ThreadService:
    """Reads and changes threads. Raises DatabaseUnavailableError; NotFoundError, also for those of other tenants."""

    reader: ThreadReader
    changes: ThreadChanges
    documents: RunDocumentRepository
    clock: Clock

    async def states(  # noqa: PLR0913 - its filters
        self,
        tenant: str,
        thread: str,
        branch: str | None,
        *,
        after: int,
        limit: int,
        agent: str | None,
        kind: str | None,
    ) -> StatePage:
        """Return the states of a branch's line after a position, with those of the run that goes on."""
        found = await self.reader.show(tenant, thread)
        views = list[StateView]()
        async for view in self._views(tenant, found, found.named(branch), after):
            if (agent is None or view.agent == agent) and (kind is None or view.t == kind):
                views.append(view)
                if len(views) > limit:
                    break
        more = len(views) > limit
        return StatePage(views[:limit], views[limit - 1].position if more else None)

    async def append(
        self,
        tenant: str,
        thread: str,
        branch: str | None,
        messages: Sequence[ChatMessage],
        states: Sequence[GivenState],
    ) -> Branch:
        """Add messages, or states, to a branch. Raises InvalidRequestError, ConflictError."""
        ts = self.clock.now().timestamp()
        placed = [PlacedState(state, ts) for state in states_of_messages(messages)]
        placed += [PlacedState(one.state(), ts, one.agent or SUPERVISOR) for one in states]
        return await self.changes.append(tenant, thread, branch, placed)

    async def compare(self, tenant: str, thread: str, first: str, second: str | None) -> BranchComparison:
        """Return two branches with their runs beyond what they share."""
        found = await self.reader.show(tenant, thread)
        a, b = found.named(first), found.named(second)
        common = _common(found, a, b)
        ours, theirs = [await self._runs(tenant, found, one, common) for one in (a, b)]
        pairs = [compare(one, other) for one, other in zip(ours, theirs, strict=False)]
        return BranchComparison(common, _side(a, ours), _side(b, theirs), pairs)

    async def _views(self, tenant: str, thread: Thread, branch: Branch, after: int) -> AsyncIterator[StateView]:
        async for one in self.reader.states(tenant, thread.id, branch, after=after):
            yield _view(thread.id, one)
        if branch.live_run:
            document = await self.documents.read(RunKey(tenant, branch.live_run), ("tasks",))
            for index, placed in enumerate(states_of(document)):
                position = branch.tip + 1 + index
                parent = None if placed.parent is None else branch.tip + 1 + placed.parent
                if position > after:
                    state = StoredState(branch.id, position, branch.live_run, parent, placed)
                    yield _view(thread.id, state, live=True)

    async def _runs(self, tenant: str, thread: Thread, branch: Branch, after: int) -> list[RunDocument]:
        """Return the runs whose states lie beyond a position, whole or in part, in their order."""
        names = dict.fromkeys([one.run_id async for one in self.reader.states(tenant, thread.id, branch, after=after)])
        return [await self.documents.read(RunKey(tenant, name)) for name in names if name]


def _view(thread: str, one: StoredState, *, live: bool = False) -> StateView:
    placed = one.placed
    reference = f"{thread}/{one.branch}/{one.run_id or '-'}/{one.position}"
    place = (one.position, one.branch, one.run_id, placed.agent, one.parent)
    state = placed.state
    return StateView(reference, *place, type(state).__name__, state.__version__, placed.ts, fields_of(state), live)


def _common(thread: Thread, a: Branch, b: Branch) -> int:
    """Return the last position that the lines of two branches share, 0 if none."""
    theirs = dict(thread.line(b))
    return max((min(upto, theirs[name]) for name, upto in thread.line(a) if name in theirs), default=0)


def _side(branch: Branch, runs: Sequence[RunDocument]) -> ComparedBranch:
    return ComparedBranch(branch.id, [run.run_id for run in runs], list(_effects(runs)))


def _effects(runs: Sequence[RunDocument]) -> Iterator[BranchEffect]:
    for run in runs:
        yield from (BranchEffect(run.run_id, change) for change in (run.result or {}).get("effects") or ())
