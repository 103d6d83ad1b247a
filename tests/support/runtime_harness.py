"""The pipeline of a task with either runtime, for tests that both have to pass."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from brain.agents.runtimes.crew.executor import CrewAIRuntime
from brain.agents.runtimes.native import NativeRuntime, TextRuntime
from brain.agents.runtimes.team import TeamRuntime
from brain.agents.tools.reading_tools import ArtifactTool
from brain.agents.tools.tool_calling import ToolAccess
from brain.agents.tools.tool_finder import ToolFinder
from brain.agents.turn.pipeline import Pipeline
from brain.agents.turn.reflection import Reviewer
from brain.execution.graph import StarRunner
from brain.nodes.qa import Qa
from brain.nodes.supervisor import SupervisorNode
from brain.planning.shortlist import Shortlister
from brain.registry.cards import AgentCard
from brain.retrieval.agent_finder import AgentFinder
from brain.state import GraphTask, TaskDispatch, TaskOutcome
from starling.core.agents import Persona, RuntimeName
from starling.core.clock import SystemClock
from starling.core.llm import ModelReply
from starling.core.settings.schema import Limits
from starling.core.tool_calls import Effect
from starling.core.tools import ToolGateway
from starling.core.tracing import NOOP_TRACER, Tracer
from tests.support.absent_services import DISABLED_ARTIFACT_STORE
from tests.support.in_memory_run import Execution, ScriptedAnswer, make_execution, tool_calls
from tests.support.scripted_gateway import ScriptedGateway, tool

TOOLS = (tool("look"), tool("order", Effect.UNSAFE), tool("put", Effect.IDEMPOTENT))
PERSONA = Persona(role="Buyer", goal="Buy what is needed.", backstory="Ten years of tea.")
END = "All of it is done."

type Call = tuple[str, Mapping[str, Any]]


@dataclass(frozen=True)
class RuntimeHarness:
    """One agent, executed by `runtime`. `answers` gives both runtimes scripts of the same meaning."""

    runtime: RuntimeName
    gateway: ToolGateway = field(default_factory=ScriptedGateway)
    limits: Limits = field(default_factory=Limits)
    tracer: Tracer = NOOP_TRACER
    tools: tuple[Any, ...] = TOOLS
    crews: int = 32

    def answers(self, *turns: ModelReply) -> list[ScriptedAnswer]:
        """Return the answers of one attempt that asks for the calls of one turn after another.

        With `native`, results of a turn are shown again after `continue` only, and the last turn ends the attempt. With
        CrewAI results are always shown again, and the agent ends in words.
        """
        if self.runtime == "crewai":
            return [*turns, END]
        return [*map(_continued, turns[:-1]), turns[-1]]

    def begin(self, *answers: ScriptedAnswer, **fields: Any) -> Execution:
        return make_execution(*answers, agents=[self.card], limits=self.limits, **fields)

    @property
    def card(self) -> AgentCard:
        return AgentCard("buyer", "custom", "Buys.", tools=self.tools, runtime=self.runtime, persona=PERSONA)

    def pipeline(self) -> Pipeline:
        access = tool_access(self.gateway, self.limits, tracer=self.tracer)
        return pipeline_of(access, self.tracer, crewai_runtime=CrewAIRuntime.with_threads(access, self.crews))

    async def run(self, begun: Execution, task: str = "order tea") -> TaskOutcome:
        return await self.pipeline().run(begun.context, dispatch(task))


def tool_access(
    gateway: ToolGateway, limits: Limits | None = None, finder: ToolFinder | None = None, tracer: Tracer = NOOP_TRACER
) -> ToolAccess:
    """Return what agents reach tools by, without artifacts."""
    given = limits or Limits()
    return ToolAccess(gateway, ArtifactTool(DISABLED_ARTIFACT_STORE, given, tracer), given, finder)


def pipeline_of(access: ToolAccess, tracer: Tracer = NOOP_TRACER, **runtimes: Any) -> Pipeline:
    """Return a pipeline of the native runtime, and of others by the name of the pipeline's field."""
    return Pipeline(NativeRuntime(access), TextRuntime(), Reviewer(tracer), tracer, history_messages=5, **runtimes)


def star_runner(gateway: ScriptedGateway, clock: SystemClock | None = None, **fields: Any) -> StarRunner:
    """Return what executes stars, whose members may be teams; `fields` are further ones of their pipelines."""
    limits = Limits()
    shortlister = Shortlister(AgentFinder(None, SystemClock()), limits.shortlist, NOOP_TRACER)

    def pipeline(stars: StarRunner) -> Pipeline:
        runtime = TeamRuntime(stars, clock or SystemClock())
        return pipeline_of(tool_access(gateway), team_runtime=runtime, **fields)

    return StarRunner(SupervisorNode(limits, shortlister, gateway, NOOP_TRACER), Qa(), pipeline)


def dispatch(
    task: str = "order tea", agent: str = "buyer", *, path: str = "t1", request: str = "Order tea.", **fields: Any
) -> TaskDispatch:
    """Return what an agent gets of a task that depends on none; `fields` replaces parts of it."""
    sent: Any = {
        "input_request": request,
        "path": path,
        "messages": [],
        "task": GraphTask(id=path, agent=agent, task=task, depends_on=[], status="running"),
        "whole_plan": False,
        "needed": [],
        "global_state": {},
    }
    return sent | fields


def _continued(turn: ModelReply) -> ModelReply:
    calls = [(call.name, call.arguments or {}) for call in turn.tool_calls]
    return tool_calls(*calls, ("continue", {}))
