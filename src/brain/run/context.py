"""What belongs to one run and is handed to every node by the graph's runtime."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self

from langgraph.checkpoint.base import BaseCheckpointSaver

from brain.durability.journal import Journal
from brain.durability.ledger import Ledger
from brain.governance import Allowance
from brain.interrupts.budget import RunBudget
from brain.interrupts.requests import Interrupts
from brain.prompts import PROGRAM_PROMPTS, PromptSet
from brain.registry.availability import Availability
from brain.registry.cards import Roster
from brain.registry.manifest import specialist_name
from brain.retrieval.search import AgentSearch
from brain.run.journaled_model import JournaledModel
from brain.run.recorder import RunRecorder
from brain.skills.memory import RunSkills
from brain.state import ConversationMessage
from starling.core.conversation.turn import PlacedState
from starling.core.llm import ModelRole
from starling.core.runs import Run
from starling.core.tools import Trial
from starling.infra.postgres.runs.writer import JournalEntry


class Checkpoints(Protocol):
    """The checkpoints of a run's stars."""

    def saver(self, path: str = "") -> BaseCheckpointSaver[str]:
        """Return the saver of the star at a path; without one, of the main star."""
        ...


@dataclass(frozen=True, slots=True)
class RunContext:
    """One execution of a run. What is the same for all runs is a field of the node that needs it.

    `search` finds agents of `roster`; `recent_agents` are those of the thread's last turn, `last_plan` the
    tasks of its last turn that had any. `path` is where the star is
    that is executed: that of a team's task, empty for the main star. `teams` are the names of the teams that it is
    inside, the outermost first. In a `trial` of a team, calls that may change something are answered and not made.
    `switched_off` are the agents that kill switches stop; `availability` tells what can't be used at a later moment.
    `after_failure`: the team works on a task that was planned after another one had failed.
    `inherited` are the entries of a journal that a fork begins with.
    `turns` reads the states of the thread's last turns, at most so many, oldest first.
    `close_inside` gives a result to what an earlier execution left open inside the task of a path; None in the first.
    """

    run: Run
    allowance: Allowance
    roster: Roster
    search: AgentSearch
    recent_agents: Collection[str]
    history: tuple[ConversationMessage, ...]
    recorder: RunRecorder
    journal: Journal
    model: JournaledModel
    budget: RunBudget
    interrupts: Interrupts
    ledger: Ledger
    skills: RunSkills
    checkpoints: Checkpoints
    turns: Callable[[int], Awaitable[Sequence[PlacedState]]]
    prompts: PromptSet = PROGRAM_PROMPTS
    last_plan: Sequence[Mapping[str, str]] = ()
    path: str = ""
    teams: tuple[str, ...] = ()
    trial: Trial | None = None
    close_inside: Callable[[str], Awaitable[None]] | None = None
    switched_off: frozenset[str] = frozenset()
    availability: Availability | None = None
    after_failure: bool = False
    inherited: Sequence[JournalEntry] = ()

    @property
    def assigned_agent(self) -> str:
        """The agent that the whole request is sent to, empty where a supervisor plans: always inside a team."""
        if self.path:
            return ""
        call = self.run.call
        if call:
            return specialist_name(call.tool.partition(".")[0])
        return self.run.config.agent or self.allowance.direct_agent

    @property
    def has_small_model(self) -> bool:
        """Whether the role `router` has a model of its own, which may answer what is simple."""
        both, models = (ModelRole.ROUTER, ModelRole.REASONING), self.model.models
        are_allowed = all(self.allowance.role(role) is role for role in both)
        return are_allowed and len({models.describe(role) for role in both}) > 1

    @property
    def replans(self) -> bool:
        """Whether a supervisor is asked again after each round of results, as the caller wants it."""
        return self.run.config.replan == "always" and not self.assigned_agent

    @property
    def instructions(self) -> str:
        """What the client says of the conversation, empty inside a team."""
        return "" if self.path else self.run.config.instructions or ""

    def as_now(self) -> Self:
        """Return the context with the agents that can't work any more, for a decision later in the run."""
        if (available := self.availability) is None or (now := available.now(self.roster)) is self.roster:
            return self
        search, off = replace(self.search, candidates=now), self.switched_off | available.switched_off(now)
        return replace(self, roster=now, search=search, switched_off=off)

    def at(self, name: str) -> str:
        """Return the path of a task or node of the star."""
        return f"{self.path}/{name}" if self.path else name
