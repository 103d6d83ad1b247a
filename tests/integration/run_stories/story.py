"""The form of a run story: what servers, model and people do in one run, and the cause that a witness would name.

A category of a cause is written in plain words; `test_run_stories.CODES` says which codes of the product mean it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from starling.core.principal import Grant
from tests.integration.run_stories.scripted_servers import Step
from tests.support.model_script import Answer
from tests.support.platform import ScriptedModel, calls, decision, task, verdict

DESK, TILL, VAULT, BANK = "mcp_agent_desk", "mcp_agent_till", "mcp_agent_vault", "mcp_agent_bank"
APPROVED = verdict("APPROVED")
NOTHING_MORE = decision()  # the supervisor leaves a failed plan as it is
NEVER = Answer("late", hold="never")
SERVER_ERROR = Answer(status=500, body='{"error": {"message": "overloaded"}}')
GARBAGE = Answer("Certainly! I will get right to it.")


def use(tool: str, what: Any = "it", *, then_continue: bool = False) -> Answer:
    """Return an agent's answer that calls one tool; the `ref` of the story is added when it is sent."""
    also: list[tuple[str, dict[str, Any] | str]] = [("continue", {})] if then_continue else []
    return calls((tool, {"what": what}), *also)


LOOK = (use("look"),)
LOOK_PLAN = decision(task("t1", DESK, "look it up"))


def mark_of(name: str) -> str:
    """Return what the request of a story ends with, and the tasks of teams in it."""
    return f"[{crc32(name.encode()):08x}]"


@dataclass(frozen=True, slots=True)
class Act:
    """What a person does at the first event of type `at` that no earlier act answered.

    `payload` resolves the interrupt of that event, None withdraws it. With `expires` nobody answers in time; with
    `cancels` the caller cancels the run.
    """

    at: str
    payload: Mapping[str, Any] | None = None
    expires: bool = False
    cancels: bool = False


@dataclass(frozen=True, slots=True)
class Cause:
    """The one true cause: the task that it belongs to, or None for the run as a whole, and acceptable categories.

    Several `tasks` mean that each of them is a right place. `never` are tasks and categories that a witness would call
    wrong although something about them looks suspicious.
    """

    tasks: Sequence[str | None]
    categories: Sequence[str]
    never: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Story:
    """One run. Each sequence of answers is given in order, its last item again and again.

    `cause` is None where everything was answered. `made` says how often tools were really called.
    """

    name: str
    request: str
    plans: Sequence[Answer] = (LOOK_PLAN, NOTHING_MORE)
    agents: Mapping[str, Sequence[Answer]] = field(default_factory=lambda: {"t1": LOOK})
    verdicts: Sequence[Answer] = (APPROVED,)
    answers: Sequence[Answer] = (Answer("Here is what was found [1]."),)
    servers: Mapping[str, Sequence[Step]] = field(default_factory=dict[str, Sequence[Step]])
    people: Sequence[Act] = ()
    limits: Mapping[str, float] = field(default_factory=dict[str, float])
    grant: Grant | None = None
    ends: str = ""  # the run's status where it is neither `succeeded` without a cause nor `failed` with one
    made: Mapping[str, int] = field(default_factory=dict[str, int])
    cause: Cause | None = None
    also: Sequence[Cause] = ()  # of further parts that failed for reasons of their own

    @property
    def ref(self) -> str:
        """What tells the story in calls of tools; it says nothing about what happens."""
        return mark_of(self.name)[1:-1]

    @property
    def mark(self) -> str:
        """What the request ends with, by which the model server finds the story."""
        return mark_of(self.name)

    @property
    def status(self) -> str:
        return self.ends or ("failed" if self.cause else "succeeded")

    def model(self) -> ScriptedModel:
        """Return the answers of the model by role."""
        script = ScriptedModel()
        script.supervisor(*self.plans)
        for task_id, answers in self.agents.items():
            script.agent(task_id, *answers)
        script.reviewer(*self.verdicts)
        script.qa(*self.answers)
        return script


def cause(place: str | None, *categories: str, never: Sequence[str] = (), or_at: Sequence[str | None] = ()) -> Cause:
    """Return the cause at a task, or at the run as a whole, by its acceptable categories."""
    return Cause((place, *or_at), categories, never)
