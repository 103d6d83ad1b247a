"""A build's run in memory: answers of a designer that are written beforehand, and candidates that share words."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from architect.design.designer import Designed
from architect.team_world import TeamWorld
from starling.core.events.stream import AnyEvent
from starling.core.json import JsonObject
from starling.core.principal import Principal
from starling.core.teams.building import Approval, BuildOrigin, BuildRun, Candidate, Section
from starling.core.teams.proofs import TrialRecord
from starling.core.teams.spec import Example
from starling.core.teams.stars import StarSpec
from starling.core.tool_calls import Effect
from starling.core.tools import ToolDefinition

ORIGIN = BuildOrigin(Principal("t", "key_1", frozenset()), "run_1", 1, "t1", "trace_1", 1)


def tool(name: str, description: str, effect: Effect = Effect.READ, **properties: Any) -> ToolDefinition:
    """Return a tool by its full name; its arguments are all required."""
    server, _, own = name.partition(".")
    schema = {"type": "object", "properties": properties, "required": [*properties]}
    return ToolDefinition(server, own, description, schema, None, effect, "")


def is_sound(found: Designed) -> bool:
    """Return whether there is a team that nothing is wrong with."""
    return found.spec is not None and not found.findings


def world_of(*tools: ToolDefinition, **parts: Any) -> TeamWorld:
    """Return a world with the servers of these tools."""
    servers: dict[str, dict[str, Effect]] = {}
    for one in tools:
        servers.setdefault(one.server, {})[one.name] = one.effect
    return TeamWorld(servers, **parts)


@dataclass
class InMemoryBuild(BuildRun):
    """Keeps what is recorded and emitted. A `journal` of an earlier one makes it a resumed build."""

    definitions: Sequence[ToolDefinition]
    answers: list[Mapping[str, Any] | str] = field(default_factory=list[Mapping[str, Any] | str])
    may_be_asked: bool = True
    reply: str = ""
    exhausted: Exception | None = None
    journal: dict[str, Any] = field(default_factory=dict[str, Any])
    stars: Mapping[str, StarSpec] = field(default_factory=dict[str, StarSpec])
    events: list[AnyEvent] = field(default_factory=list[AnyEvent])
    asked: list[Sequence[Section]] = field(default_factory=list[Sequence[Section]])
    questions: list[tuple[str, Sequence[str]]] = field(default_factory=list[tuple[str, Sequence[str]]])
    searched: list[Sequence[str]] = field(default_factory=list[Sequence[str]])

    @property
    def origin(self) -> BuildOrigin:
        return ORIGIN

    @property
    def may_ask(self) -> bool:
        return self.may_be_asked

    async def ask[D: BaseModel](self, step: str, prompt: str, sections: Sequence[Section], document: type[D]) -> D:
        assert prompt == "designer"
        self.asked.append(sections)
        if step not in self.journal:
            self.journal[step] = self.answers.pop(0)
        return document.model_validate(self.journal[step])

    async def candidates(self, step: str, texts: Sequence[str], limit: int) -> Sequence[Sequence[Candidate]]:
        assert step not in self.journal or self.journal[step] == texts
        self.journal[step] = texts
        self.searched.append(texts)
        return [self._ranked(text)[:limit] for text in texts]

    def _ranked(self, text: str) -> list[Candidate]:
        by_server: dict[str, list[ToolDefinition]] = {}
        for one in self.definitions:
            by_server.setdefault(one.server, []).append(one)
        found = [self._candidate(text, name, tools) for name, tools in by_server.items()]
        found += [
            Candidate("", star.name, star.purpose, (), 6.0 * len(_words(text) & _words(star.purpose)))
            for star in self.stars.values()
        ]
        return sorted(found, key=lambda one: -one.score)

    def _candidate(self, text: str, server: str, tools: Sequence[ToolDefinition]) -> Candidate:
        shared = {one.name: len(_words(text) & _words(f"{one.name} {one.description}")) for one in tools}
        best = max(shared, key=lambda name: shared[name])
        return Candidate(server, "", f"Server {server}", tools, 6.0 * shared[best], best)

    def tools(self) -> Mapping[str, ToolDefinition]:
        return {one.full_name: one for one in self.definitions}

    def clarify(self, step: str, question: str, options: Sequence[str]) -> str:
        self.questions.append((question, options))
        return self.reply

    def approve_activation(self, team: str, version: int, details: JsonObject) -> Approval:
        raise NotImplementedError

    async def try_case(self, star: StarSpec, case: Example) -> TrialRecord:
        raise NotImplementedError

    def check_budget(self) -> None:
        if self.exhausted:
            raise self.exhausted

    def recorded(self, step: str) -> JsonObject | None:
        return self.journal.get(step)

    def record(self, step: str, result: JsonObject, *events: AnyEvent) -> None:
        self.journal[step] = result
        self.events += events

    async def flush(self) -> None:
        return


def _words(text: str) -> set[str]:
    return {word.casefold().rstrip("s") for word in re.findall(r"[^\W_]{3,}", text)} - {"the", "and", "for"}
