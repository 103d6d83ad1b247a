"""Conversations: the states of a line with those of the run that goes on, imports, and branches side by side."""

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import islice
from statistics import mean
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError

from brain.explanation.comparison import Comparison, compare
from starling.core.clock import Clock
from starling.core.conversation.openai_messages import ChatMessage, states_of_messages
from starling.core.conversation.states import BaseState, fields_of, state_of
from starling.core.conversation.turn import SUPERVISOR, PlacedState, scored, states_of
from starling.core.errors import ConflictError, InvalidRequestError
from starling.core.json import JsonObject
from starling.core.secrets.look_alikes import mask_keys_in
from starling.core.validation_errors import PRINTABLE_NAME, fault_list
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.documents import RunDocumentRepository
from starling.infra.postgres.runs.thread_changes import ThreadChanges
from starling.infra.postgres.runs.threads import Branch, SessionMetrics, StateView, Thread, ThreadReader, views_of

_PAGE_CHARS: Final = 2**22  # of states that were read, after which a page ends
_PAIRS: Final = 20
"""How many pairs of runs are compared; what the others changed is listed."""

_ROUTES_OF_THREADS: Final = ("states", "branches", "diff", "fork", "checkout", "rewind", "prune")

type Name = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=PRINTABLE_NAME)]


def _addressable(name: str) -> str:
    """Return the name of a thread. Raises ValueError for one that stands for another address in a path."""
    *before, last = name.split("/")
    if {".", ".."} & {*before, last} or (before and last in _ROUTES_OF_THREADS):
        raise ValueError(f"a part must not be `.` or `..`, nor the last one {', '.join(_ROUTES_OF_THREADS)}")
    return name


type ThreadName = Annotated[Name, AfterValidator(_addressable)]


class GivenState(BaseModel):
    """A state that a caller adds, as its envelope has it."""

    model_config = ConfigDict(extra="forbid")

    t: Annotated[str, Field(description="The kind, such as `UserMessageState`.")]
    data: dict[str, Any]
    v: int = 1
    agent: Annotated[
        str | None,
        Field(min_length=1, max_length=200, pattern=PRINTABLE_NAME, description="The agent that it belongs to."),
    ] = None

    def state(self) -> BaseState:
        """Return the state. Raises InvalidRequestError for an unknown kind, and for fields that don't suit it."""
        try:
            return _checked(state_of(self.t, self.v, self.data))
        except ValidationError as error:
            text = fault_list(error.errors(include_url=False))
        except TypeError as error:
            text = str(error).partition(") ")[2]
        raise InvalidRequestError(f"A state isn't a {self.t}: {text}.", "Send the fields of its kind.")


def _checked(state: BaseState) -> BaseState:
    """Return a state with fields of the right types, and `***` in place of keys. Raises ValidationError."""
    return _adapter(type(state)).validate_python(mask_keys_in(fields_of(state)))


@cache
def _adapter(kind: type[BaseState]) -> TypeAdapter[BaseState]:
    return TypeAdapter(kind)


@dataclass(frozen=True, slots=True)
class LastPlan:
    """The plan of a run as it stands. `tasks` have `id, agent, task, depends_on, status`."""

    run_id: str
    plan: Sequence[str]
    tasks: Sequence[JsonObject]


@dataclass(frozen=True, slots=True)
class Session(Thread):
    """A thread with the plan of the last run on its current branch, null where it had none, and what it has used."""

    last_plan: LastPlan | None
    session_metrics: SessionMetrics


@dataclass(frozen=True, slots=True)
class StatePage:
    """States, oldest first. `next` is the value of `after` for the next page, null on the last page."""

    states: Sequence[StateView]
    next: int | None


@dataclass(frozen=True, slots=True)
class RunEffects:
    """A run, and its calls that changed something, or may have: a rewind doesn't undo them."""

    run_id: str
    effects: Sequence[JsonObject]


@dataclass(frozen=True, slots=True)
class ComparedBranch:
    """One of two branches, with its runs beyond what both share."""

    branch: str
    runs: Sequence[RunEffects]


@dataclass(frozen=True, slots=True)
class BranchComparison:
    """Two branches: the last position that they share, and their first runs beyond it side by side, in pairs."""

    common: int
    a: ComparedBranch
    b: ComparedBranch
    pairs: Sequence[Comparison]


@dataclass(frozen=True, slots=True)
class ThreadService:
    """Reads and changes threads. Raises DatabaseUnavailableError; NotFoundError, also for those of other tenants."""

    reader: ThreadReader
    changes: ThreadChanges
    documents: RunDocumentRepository
    clock: Clock

    async def show(self, tenant: str, thread: str) -> Session:
        """Return a thread with its last plan and what it has used."""
        found = await self.reader.show(tenant, thread)
        metrics, last = await self.reader.session(tenant, found)
        plans = (await self.documents.read(RunKey(tenant, last), ("tasks",))).plans if last else ()
        own = [plan for plan in plans if not plan.star]
        last_plan = LastPlan(last, own[-1].plan, own[-1].tasks) if last and own else None
        parts = {name: getattr(found, name) for name in found.__match_args__}
        return Session(**parts, last_plan=last_plan, session_metrics=metrics)

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
        views, chars = list[StateView](), 0
        async for view in self._views(tenant, found, found.named(branch), after):
            if len(views) == limit or chars > _PAGE_CHARS:
                return StatePage(views, after)
            if agent in (None, view.agent) and kind in (None, view.t):
                views.append(view)
            chars += len(str(view.data))
            after = view.position
        return StatePage(views, None)

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
        placed = [PlacedState(_checked(state), ts) for state in states_of_messages(messages)]
        placed += [PlacedState(one.state(), ts, one.agent or SUPERVISOR) for one in states]
        return await self.changes.append(tenant, thread, branch, placed)

    async def begin(self, tenant: str, thread: str, messages: Sequence[ChatMessage]) -> Branch | None:
        """Begin a thread with messages; one that has begun is left as it is, and None returned.

        Raises InvalidRequestError.
        """
        ts = self.clock.now().timestamp()
        placed = [PlacedState(_checked(state), ts) for state in states_of_messages(messages)]
        with suppress(ConflictError):
            return await self.changes.append(tenant, thread, None, placed, only_empty=True)
        return None

    async def compare(self, tenant: str, thread: str, first: str, second: str | None) -> BranchComparison:
        """Return two branches with their runs beyond what they share."""
        found = await self.reader.show(tenant, thread)
        a, b = found.named(first), found.named(second)
        theirs = found.line(b)
        common = max((min(upto, theirs[name]) for name, upto in found.line(a).items() if name in theirs), default=0)
        one, other = [await self._beyond(tenant, found, branch, common) for branch in (a, b)]
        pairs = [
            compare(*[await self.documents.read(RunKey(tenant, run.run_id)) for run in pair])
            for pair in islice(zip(one.runs, other.runs, strict=False), _PAIRS)
        ]
        return BranchComparison(common, one, other, pairs)

    async def _views(self, tenant: str, thread: Thread, branch: Branch, after: int) -> AsyncIterator[StateView]:
        now = self.clock.now().timestamp()
        async for view in self.reader.states(tenant, thread, branch, after=after, now=now):
            yield view
        if branch.live_run:
            document = await self.documents.read(RunKey(tenant, branch.live_run), ("tasks", "feedback"))
            rating = mean(one.score for one in document.feedback) if document.feedback else None
            begin, states = branch.tip + 1, [scored(one, rating) for one in states_of(document)]
            for view in views_of(thread.id, branch.id, branch.live_run, begin, states, live=True):
                if view.position > after:
                    yield view

    async def _beyond(self, tenant: str, thread: Thread, branch: Branch, after: int) -> ComparedBranch:
        runs = await self.reader.runs_beyond(tenant, thread, branch, after)
        return ComparedBranch(branch.id, [RunEffects(*run) for run in runs])
