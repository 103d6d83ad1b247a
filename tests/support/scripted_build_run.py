"""The run of a build in memory: trials and answers are scripted, what is recorded is kept for a resumed build."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from starling.core.events import AnyEvent
from starling.core.json import JsonObject
from starling.core.principal import Principal, Scope
from starling.core.stars import StarSpec
from starling.core.team_building import Approval, BuildOrigin, BuildRun, Candidate, Section
from starling.core.team_proofs import TrialRecord
from starling.core.teams import Example
from starling.core.tools import ToolDefinition

CALLER = Principal("default", "k1", frozenset(Scope))


@dataclass(slots=True)
class Asked:
    """One question to a model."""

    step: str
    prompt: str
    sections: Sequence[Section]


@dataclass(slots=True)
class ScriptedBuildRun(BuildRun):
    """Gives each case the trial of its id, and each question the next of the answers; an exception is raised.

    `flushed` is what survives the process: `resumed` returns a run that has only this.
    """

    trials: Mapping[str, TrialRecord | Exception] = field(default_factory=dict[str, TrialRecord | Exception])
    answers: list[Mapping[str, Any] | Exception] = field(default_factory=list[Mapping[str, Any] | Exception])
    definitions: Mapping[str, ToolDefinition] = field(default_factory=dict[str, ToolDefinition])
    journal: dict[str, JsonObject] = field(default_factory=dict[str, JsonObject])
    events: list[AnyEvent] = field(default_factory=list[AnyEvent])
    flushed: tuple[dict[str, JsonObject], list[AnyEvent]] = field(
        default_factory=lambda: (dict[str, JsonObject](), list[AnyEvent]())
    )
    tried: list[Example] = field(default_factory=list[Example])
    asked: list[Asked] = field(default_factory=list[Asked])

    @property
    def origin(self) -> BuildOrigin:
        return BuildOrigin(CALLER, "run1", 1, "t1", "trace1", 1)

    @property
    def may_ask(self) -> bool:
        return False

    async def ask[D: BaseModel](self, step: str, prompt: str, sections: Sequence[Section], document: type[D]) -> D:
        self.asked.append(Asked(step, prompt, sections))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return document.model_validate(answer)

    async def candidates(self, step: str, texts: Sequence[str], limit: int) -> Sequence[Sequence[Candidate]]:
        del step, limit
        return [[] for _ in texts]

    def tools(self) -> Mapping[str, ToolDefinition]:
        return self.definitions

    def clarify(self, step: str, question: str, options: Sequence[str]) -> str:
        del step, question, options
        return ""

    def approve_activation(self, team: str, version: int, details: JsonObject) -> Approval:
        del team, version, details
        return Approval(approved=False, by="")

    async def try_case(self, star: StarSpec, case: Example) -> TrialRecord:
        del star
        self.tried.append(case)
        trial = self.trials[case.id]
        if isinstance(trial, Exception):
            raise trial
        return trial

    def recorded(self, step: str) -> JsonObject | None:
        return self.journal.get(step)

    def record(self, step: str, result: JsonObject, *events: AnyEvent) -> None:
        assert step not in self.journal
        self.journal[step] = result
        self.events.extend(events)

    async def flush(self) -> None:
        self.flushed = (dict(self.journal), list(self.events))

    def resumed(self, trials: Mapping[str, TrialRecord | Exception]) -> "ScriptedBuildRun":
        journal, events = self.flushed
        return ScriptedBuildRun(trials, definitions=self.definitions, journal=dict(journal), events=list(events))


def section(sections: Sequence[Section], name: str) -> Section:
    """Return the only section of a name."""
    (found,) = [one for one in sections if one.name == name]
    return found
