"""The run of a proof in memory: trials and answers of the judge are scripted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from starling.core.events.stream import AnyEvent
from starling.core.json import JsonObject
from starling.core.teams.building import Section
from starling.core.teams.proofs import TrialRecord
from starling.core.teams.spec import Example
from starling.core.teams.stars import StarSpec
from starling.core.tools import ToolDefinition
from tests.support.in_memory_build import InMemoryBuild


@dataclass
class Asked:
    """One question to the judge."""

    step: str
    prompt: str
    sections: Sequence[Section]


@dataclass
class ScriptedTrials(InMemoryBuild):
    """Gives each case the trial of its id, and each question the next of the verdicts; an exception is raised.

    `flushed` is what survives the process: `resumed` returns a run that has only this.
    """

    definitions: Sequence[ToolDefinition] = ()
    trials: Mapping[str, TrialRecord | Exception] = field(default_factory=dict[str, TrialRecord | Exception])
    verdicts: list[Mapping[str, Any] | Exception] = field(default_factory=list[Mapping[str, Any] | Exception])
    tried: list[Example] = field(default_factory=list[Example])
    judged: list[Asked] = field(default_factory=list[Asked])
    flushed: tuple[dict[str, Any], list[AnyEvent]] = field(default_factory=lambda: (dict[str, Any](), list[AnyEvent]()))

    async def ask[D: BaseModel](self, step: str, prompt: str, sections: Sequence[Section], document: type[D]) -> D:
        self.judged.append(Asked(step, prompt, sections))
        answer = self.verdicts.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return document.model_validate(answer)

    async def try_case(self, star: StarSpec, case: Example) -> TrialRecord:
        del star
        self.tried.append(case)
        trial = self.trials[case.id]
        if isinstance(trial, Exception):
            raise trial
        return trial

    def record(self, step: str, result: JsonObject, *events: AnyEvent) -> None:
        assert step not in self.journal
        super().record(step, result, *events)

    async def flush(self) -> None:
        self.flushed = (dict(self.journal), list(self.events))

    def resumed(self, trials: Mapping[str, TrialRecord | Exception]) -> "ScriptedTrials":
        journal, events = self.flushed
        return ScriptedTrials(self.definitions, trials=trials, journal=dict(journal), events=list(events))
