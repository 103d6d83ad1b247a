"""The port that every way of executing a task has: one attempt at a time, all of it journalled."""

from dataclasses import dataclass, field
from typing import Protocol

from brain.context import RunContext
from brain.registry.cards import AgentCard
from brain.state import Dispatch
from starling.core.json import JsonObject
from starling.core.llm import Message
from starling.core.tools import ToolOutcome


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A tool call that was made, and what it came to. `name` is the full name, or what the model invented."""

    name: str
    arguments: JsonObject
    outcome: ToolOutcome


@dataclass(frozen=True, slots=True)
class Produced:
    """What one attempt came to. `unable` means that the agent itself says that it can't."""

    output: str
    uses: tuple[ToolUse, ...] = ()
    unable: bool = False


@dataclass(slots=True)
class Work:
    """A task in the hands of an agent: grows by a turn with each answer, over all attempts.

    `refused` says of each call that wasn't approved why, once.
    """

    context: RunContext
    card: AgentCard
    dispatch: Dispatch
    path: str
    messages: list[Message] = field(default_factory=list[Message])
    position: int = 0
    refused: list[str] = field(default_factory=list[str])

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

    async def attempt(self, work: Work) -> Produced:
        """Make one attempt from `work.messages` on; what was said is added to them."""
        ...
