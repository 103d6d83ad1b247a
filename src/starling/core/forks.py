"""Forks of runs: a new run that begins with what another one had decided, before a decision or at a task."""

import re
from typing import Annotated, Final

from pydantic import Field

from starling.core.closed_document import ClosedDocument
from starling.core.errors import ConflictError, InvalidRequestError
from starling.core.llm import ModelRole

START: Final = "start"
_DECISION: Final = re.compile(r"d([1-9][0-9]{0,3})")
_TASK: Final = re.compile(r"[A-Za-z0-9_-]+")


class NotForkableError(ConflictError):
    """A run that can't be forked there: it has not ended, or what it decided is not kept."""

    code = "not_forkable"


class ForkChanges(ClosedDocument):
    """What is different in a fork, from the place on at which it begins.

    `model` has the model of each role that gets another one, `prompts` hashes of stored texts by name, `teams` versions
    by name.
    """

    model: dict[ModelRole, str] = Field(default={})
    prompts: dict[str, str] = Field(default={})
    epoch: Annotated[int, Field(ge=1)] | None = None
    teams: dict[str, Annotated[int, Field(ge=1)]] = Field(default={})
    input: Annotated[str, Field(min_length=1)] | None = None


class ForkOrigin(ClosedDocument):
    """Where a fork began: the run, the place in it, and what is different. `stars` has the hashes of changed teams."""

    run: str
    at: str
    changes: ForkChanges
    live: bool
    stars: dict[str, str] = Field(default={})


def decision_number(at: str) -> int:
    """Return the number of the decision that a fork begins before, 0 where it begins at a task.

    `start` is before the first one. Raises InvalidRequestError for what is no place of the main star.
    """
    if at == START:
        return 1
    if decision := _DECISION.fullmatch(at):
        return int(decision[1])
    if not _TASK.fullmatch(at):
        raise InvalidRequestError(
            f"A run can't be forked at {at!r}.",
            "Name `start`, a decision (`d2`) or a task of the main plan (`t3`), no attempt and no member of a team.",
        )
    return 0
