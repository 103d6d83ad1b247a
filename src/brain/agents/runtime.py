"""The port that every way of executing a task has: one attempt at a time, all of it journalled."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from brain.context import RunContext
from brain.registry.cards import AgentCard
from brain.state import ArtifactRecord, Dispatch
from starling.core.json import JsonObject
from starling.core.llm import Message
from starling.core.tools import ToolOutcome


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A tool call that was made, and what it came to. `name` is the full name, or what the model invented."""

    name: str
    arguments: JsonObject
    outcome: ToolOutcome

    @property
    def artifacts(self) -> list[ArtifactRecord]:
        """The whole of the result where that was too long, else nothing."""
        key, characters = self.outcome.artifact, self.outcome.characters
        return [ArtifactRecord(id=key, name=self.name, characters=characters)] if key else []


@dataclass(frozen=True, slots=True)
class AttemptOutput:
    """What one attempt came to. `unable` means that the agent itself says that it can't."""

    output: str
    uses: tuple[ToolUse, ...] = ()
    unable: bool = False


@dataclass(slots=True)
class TaskExecution:
    """A task in the hands of an agent: grows by a turn with each answer, over all attempts.

    `refused` says of each call that wasn't approved why, once; `kept` are the wholes of results that were too
    long, by id.
    """

    context: RunContext
    card: AgentCard
    dispatch: Dispatch
    path: str
    messages: list[Message] = field(default_factory=list[Message])
    position: int = 0
    refused: list[str] = field(default_factory=list[str])
    kept: dict[str, ArtifactRecord] = field(default_factory=dict[str, ArtifactRecord])

    @property
    def artifacts(self) -> Mapping[str, ArtifactRecord]:
        """What the task may read on in: of results that it builds on, and of its own."""
        needed = (record for result in self.dispatch["needed"] for record in result.get("artifacts", ()))
        return {record["id"]: record for record in needed} | self.kept

    def keep(self, made: Iterable[ToolUse]) -> None:
        """Remember what is kept of the results of calls, in their order."""
        self.kept |= {record["id"]: record for use in made for record in use.artifacts}

    @property
    def task_id(self) -> str:
        return self.dispatch["task"]["id"]

    @property
    def task(self) -> str:
        return self.dispatch["task"]["task"]


class AgentRuntime(Protocol):
    """Executes attempts.

    Raises ModelError, JournalDivergedError, OutcomeUnknownError, DeadlineExceededError, BudgetExhaustedError, and
    SuspendedError where somebody has to answer first.
    """

    async def attempt(self, work: TaskExecution) -> AttemptOutput:
        """Make one attempt from `work.messages` on; what was said is added to them."""
        ...
