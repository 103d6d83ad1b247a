"""Tables of errors, and the platform and model with which each row of them is a run."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, Self

from starling.core.agents import LLMAgentConfig, Persona, RuntimeName
from starling.core.llm import ModelRole
from starling.core.principal import Principal, Scope
from starling.core.teams.stars import Member, StarSpec
from starling.infra.postgres.audit import Actor
from tests.support.model_script import Answer, Body, Rule, Script, When
from tests.support.model_server import ModelServer
from tests.support.platform import Platform, Workbench, calls, decision, open_platform, task, verdict

LARGE, TINY, CODE, OWN = "large", "tiny", "code", "own"
ROLES = {
    f"model_{role}": [f"scripted:{name}"] for role, name in [("router", TINY), ("reasoning", LARGE), ("coding", CODE)]
}
CALL_SECONDS = 2.0
ACTOR = Actor.local("test")
_NUMBERS = count(1)


@dataclass(frozen=True, slots=True)
class Row:
    cells: Mapping[str, str]

    @classmethod
    def all(cls, table: str) -> Sequence[Self]:
        names, *rows = ([cell.strip() for cell in line.split("|")] for line in table.strip().splitlines())
        return [cls(dict(zip(names, row, strict=True))) for row in rows]

    def __getitem__(self, name: str) -> str:
        return self.cells[name]

    def __str__(self) -> str:
        return " ".join([*self.cells.values()][:3])

    @property
    def codes(self) -> set[str]:
        return set(self["codes"].split())


DECISION = When(schema="supervisor_decision")
FIXED = "The disk is full."
IN_TEAM = When(contains="You supervise the team in <team>")


@dataclass(frozen=True, slots=True)
class Node:
    """Which requests are those of a node, after the first `spared`, and the decisions by which the run comes to it.

    `in_team` are those of a team's supervisor; `agent` gets the whole `request`.
    """

    whens: Sequence[When]
    plan: Sequence[Answer]
    spared: int = 0
    agent: str | None = None
    in_team: Sequence[Answer] = (decision(task("t1", "looker")),)
    request: str = "How is it?"


@dataclass(slots=True)
class FailingModel:
    """Answers as a sound model does, but for the requests of one node.

    Tasks `t0` are never done, and results of tasks `f1` are only right once they are `FIXED`.
    """

    rules: Script = field(default_factory=Script)
    node: Node | None = None
    error: Answer | None = None
    lasts: str = ""
    asked: str = ""
    _seen: int = 0

    def begin(self, node: Node, error: Answer | None = None, lasts: str = "", *rules: Rule) -> None:
        self.node, self.error, self.lasts, self.asked, self._seen = node, error, lasts, "", 0
        self.rules = Script(
            *rules,
            *[Rule(answer, replace(IN_TEAM, nth=1)) for answer in node.in_team],
            *[Rule(answer, replace(DECISION, nth=1)) for answer in node.plan],
            Rule(decision(), DECISION),
            Rule(verdict("REJECTED", "It is not done."), When(schema="verdict", contains='<task id="t0"')),
            Rule(verdict("FIXED", refined=FIXED), When(schema="verdict", contains='<task id="f1"', nth=1)),
            Rule(verdict("APPROVED"), When(schema="verdict")),
            Rule(Answer("I can't."), When(contains='<task id="t0"')),
            Rule(Answer("All is well [1]."), When(contains="You write the final answer")),
            Rule(Answer("It is fine."), When(contains="Current Task", last_contains="the disk is fine")),
            Rule(calls(("look", {"thing": "disk"})), When(tool="look")),
            Rule(Answer("In short: yes."), When(contains='<task id="t1"')),
        )

    async def __call__(self, body: Body) -> Answer:
        if self.node is None or self.error is None or not any(when.fits(body) for when in self.node.whens):
            return await self.rules(body)
        self._seen += 1
        if self._seen <= self.node.spared:
            return await self.rules(body)
        self.asked += body["model"][0].upper()
        fails = {"once": len(self.asked) == 1, "first": body["model"] != TINY, "always": True}[self.lasts]
        return self.error if fails else await self.rules(body)


def team(name: str, server: str, tools: Sequence[str], runtime: RuntimeName, **fields: Any) -> StarSpec:
    """Return a team with one member, `looker`, that calls tools of a server."""
    persona = Persona(role="watcher", goal="look at machines")
    member = Member(name="looker", persona=persona, server=server, tools=tuple(tools), runtime=runtime, **fields)
    return StarSpec(name=name, purpose="Looks after machines.", members=(member,))


TEAMS = {
    "machines": team("machines", "bench", ["bench.look"], "native"),
    "crew": team("crew", "bench", ["bench.look"], "crewai"),
    "coders": team("coders", "bench", ["bench.look"], "native", role=ModelRole.CODING),
}
CUSTOM = {
    "poet": LLMAgentConfig(id="poet", behavior_template="You write.", llm_model=f"scripted:{OWN}"),
    "watcher": LLMAgentConfig(id="watcher", behavior_template="You watch.", tools=("bench.*",)),
    "writer": LLMAgentConfig(id="writer", behavior_template="You write.", reflection_agent_id="poet"),
}


async def make(platform: Platform, agent: str) -> None:
    """Make a team or custom agent, if that is what the name means; its reviewer first."""
    if agent in TEAMS:
        await platform.activate(TEAMS[agent])
    if agent in CUSTOM:
        await make(platform, CUSTOM[agent].reflection_agent_id or "")
        await platform.services.agents.create(platform.caller, CUSTOM[agent], ACTOR)


@asynccontextmanager
async def failing_platform(
    url: str, failing: FailingModel, workbench: Workbench, folder: Path, servers: Mapping[str, Any] | None = None
) -> AsyncGenerator[Platform]:
    """Open the platform that all rows of a table share; its model waits for nothing."""
    known = {"bench": workbench.as_server("read"), **(servers or {})}
    async with (
        ModelServer(failing) as model,
        open_platform(url, model, known, folder, roles=ROLES, model_call_seconds=CALL_SECONDS) as platform,
    ):
        yield platform


def degraded_models(platform: Platform) -> dict[str, Any]:
    """Return the models that are skipped for a while."""
    models: Any = platform.brain._parts.models  # pyright: ignore[reportPrivateUsage]
    return models.inner._memory.degraded


def for_new_tenant(platform: Platform) -> Platform:
    """Return the platform for a tenant of a row, whose models have not failed yet."""
    platform.model.forget()
    degraded_models(platform).clear()
    return replace(platform, caller=Principal(f"tenant-{next(_NUMBERS)}", "", frozenset(Scope)))
