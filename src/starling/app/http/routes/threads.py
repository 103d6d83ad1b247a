"""Conversations: threads with their branches, and the states on them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field, model_validator

from starling.app.http.dependencies import Caller, ChangeActor, FromServices
from starling.app.http.problems import refusals
from starling.app.http.schemas import ClosedModel, Name, ThreadName
from starling.app.threads import BranchComparison, GivenState, Session, StatePage
from starling.core.conversation.openai_messages import ChatMessage
from starling.infra.postgres.runs.thread_changes import Removed, Rewound
from starling.infra.postgres.runs.threads import Branch, Thread

router = APIRouter(prefix="/v1/threads", tags=["threads"], responses=refusals(404, 422, 503))

_POSITION = "Positions count from 1; 0 is the beginning."
_CURRENT = "A branch; without it, the one that runs go to."


@dataclass(frozen=True, slots=True)
class ThreadPage:
    """Threads, the one that began last first. `next` is the value of `before` for the next page, null on the last."""

    threads: Sequence[Thread]
    next: str | None


class ThreadQuery(ClosedModel):
    """Which threads are listed."""

    before: Name | None = Field(None, description="Only those that began before this one.")
    limit: int = Field(20, ge=1, le=200)


class StateQuery(ClosedModel):
    """Which states of a line are listed."""

    branch: Name | None = Field(None, description=_CURRENT)
    after: int = Field(0, ge=0, le=2**53, description="Only those after this position.")
    agent: Name | None = Field(None, description="Only those of this agent: its own stack.")
    kind: Name | None = Field(None, description="Only those of this kind, such as `ToolCallState`.")
    limit: int = Field(50, ge=1, le=200)


class DiffQuery(ClosedModel):
    """The branches that are compared."""

    a: Name = Field("main", description="A branch.")
    b: Name | None = Field(None, description="Another branch; without it, the one that runs go to.")


class NewStates(ClosedModel):
    """What is added to a branch: either messages as OpenAI's chat API has them, or states."""

    branch: Annotated[Name | None, Field(description=_CURRENT)] = None
    messages: list[ChatMessage] = Field(default=[], max_length=1_000)
    states: list[GivenState] = Field(default=[], max_length=1_000)

    @model_validator(mode="after")
    def _one_of_both(self) -> "NewStates":
        if bool(self.messages) == bool(self.states):
            raise ValueError("send either `messages` or `states`")
        return self


class Fork(ClosedModel):
    """Where a branch begins."""

    branch: Annotated[Name | None, Field(description=_CURRENT)] = None
    position: Annotated[int | None, Field(ge=0, description=f"The last state that both have. {_POSITION}")] = None
    name: Annotated[Name | None, Field(description="The name of the new branch; one is made without it.")] = None


class Checkout(ClosedModel):
    """The branch that runs go to from now on where they name none."""

    branch: Name


class Rewind(ClosedModel):
    """Where a branch ends from now on."""

    branch: Annotated[Name | None, Field(description=_CURRENT)] = None
    position: Annotated[int, Field(ge=0, description=f"The last state that stays. {_POSITION}")]


@router.get("", summary="List threads")
async def latest(services: FromServices, caller: Caller, wanted: Annotated[ThreadQuery, Query()]) -> ThreadPage:
    """List the threads of your tenant, the one that began last first."""
    found = await services.threads.reader.latest(caller.tenant, limit=wanted.limit + 1, before=wanted.before)
    shown, more = found[: wanted.limit], len(found) > wanted.limit
    return ThreadPage(shown, next=shown[-1].id if more else None)


@router.get("/{thread_id:path}/states", summary="List the states of a branch")
async def states(
    thread_id: Name, services: FromServices, caller: Caller, wanted: Annotated[StateQuery, Query()]
) -> StatePage:
    """List the states on the line of a branch, oldest first, with those of the run that goes on.

    Scores of agents' results and rewards of tools' results come from verdicts; feedback on the run replaces them.
    """
    query = wanted.model_dump(exclude={"branch"})
    return await services.threads.states(caller.tenant, thread_id, wanted.branch, **query)


@router.post("/{thread_id:path}/states", status_code=201, summary="Add states to a branch", responses=refusals(409))
async def append(thread_id: ThreadName, body: NewStates, services: FromServices, caller: Caller) -> Branch:
    """Import messages or states at the end of a branch. The thread begins with them if there is none.

    409 while a run of the branch goes on; 422 for a state that can't follow the one before it.
    """
    return await services.threads.append(caller.tenant, thread_id, body.branch, body.messages, body.states)


@router.get("/{thread_id:path}/diff", summary="Compare two branches")
async def diff(
    thread_id: Name, services: FromServices, caller: Caller, wanted: Annotated[DiffQuery, Query()]
) -> BranchComparison:
    """Return the last position that two branches share, and the runs of each beyond it, with what they changed.

    The first 20 of them are compared, in pairs.
    """
    return await services.threads.compare(caller.tenant, thread_id, wanted.a, wanted.b)


@router.post("/{thread_id:path}/fork", status_code=201, summary="Fork a branch", responses=refusals(409))
async def fork(thread_id: Name, body: Fork, services: FromServices, caller: Caller) -> Branch:
    """Begin a branch at a stored state of another one, also while runs go on. Nothing is copied."""
    return await services.threads.changes.fork(caller.tenant, thread_id, body.branch, body.position, body.name)


@router.post("/{thread_id:path}/checkout", summary="Choose the current branch", responses=refusals(409))
async def checkout(thread_id: Name, body: Checkout, services: FromServices, caller: Caller) -> Thread:
    """Make a branch the one that runs go to where they name none."""
    return await services.threads.changes.checkout(caller.tenant, thread_id, body.branch)


@router.post("/{thread_id:path}/rewind", summary="Rewind a branch", responses=refusals(409))
async def rewind(thread_id: Name, body: Rewind, services: FromServices, caller: Caller, actor: ChangeActor) -> Rewound:
    """Move what lies beyond a position to a hidden branch; forks that begin there stay.

    What tools have changed stays changed. 409 while a run of the branch goes on.
    """
    return await services.threads.changes.rewind(caller.tenant, thread_id, body.branch, body.position, actor)


@router.post("/{thread_id:path}/prune", summary="Delete what rewinds left", responses=refusals(409))
async def prune(thread_id: Name, services: FromServices, caller: Caller, actor: ChangeActor) -> Removed:
    """Delete the states, with their runs, that no visible branch reaches.

    409 while it isn't known whether one of their calls was made.
    """
    return await services.threads.changes.prune(caller.tenant, thread_id, actor)


@router.get("/{thread_id:path}", summary="Show a thread")
@router.get("/{thread_id:path}/branches", summary="List the branches of a thread")  # first: the last is applied first
async def show(thread_id: Name, services: FromServices, caller: Caller) -> Session:
    """Show a thread with its branches, oldest first, also hidden ones, with its last plan and what it has used."""
    return await services.threads.show(caller.tenant, thread_id)


@router.delete("/{thread_id:path}", summary="Delete a thread", responses=refusals(409))
async def delete(thread_id: Name, services: FromServices, caller: Caller, actor: ChangeActor) -> Removed:
    """Delete a thread with its runs, their artifacts, and the skills that were learned only there.

    409 while one of its runs goes on, or while it isn't known whether one of its calls was made.
    """
    return await services.threads.changes.delete(caller.tenant, thread_id, actor)
