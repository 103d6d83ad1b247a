"""The pipeline of a task with either runtime, for tests that both have to pass."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from brain.agents.runtimes.crew.executor import CrewAIRuntime
from brain.agents.runtimes.native import NativeRuntime, TextRuntime
from brain.agents.tools.reading_tools import ArtifactTool
from brain.agents.tools.tool_calling import ToolAccess
from brain.agents.turn.pipeline import Pipeline
from brain.agents.turn.reflection import Reviewer
from brain.registry.cards import AgentCard
from brain.state import GraphTask, TaskDispatch, TaskOutcome
from starling.core.agents import Persona, RuntimeName
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
        access = ToolAccess(self.gateway, ArtifactTool(DISABLED_ARTIFACT_STORE, self.limits, self.tracer), self.limits)
        return Pipeline(
            tool_runtime=NativeRuntime(access),
            text_runtime=TextRuntime(),
            reviewer=Reviewer(self.tracer),
            tracer=self.tracer,
            history_messages=5,
            crewai_runtime=CrewAIRuntime.with_threads(access, self.crews),
        )

    async def run(self, begun: Execution, task: str = "order tea") -> TaskOutcome:
        return await self.pipeline().run(begun.context, dispatch(task))


def dispatch(task: str = "order tea") -> TaskDispatch:
    return TaskDispatch(
        input_request="Order tea.",
        path="t1",
        messages=[],
        task=GraphTask(id="t1", agent="buyer", task=task, depends_on=[], status="running"),
        whole_plan=False,
        needed=[],
        global_state={},
    )


def _continued(turn: ModelReply) -> ModelReply:
    calls = [(call.name, call.arguments or {}) for call in turn.tool_calls]
    return tool_calls(*calls, ("continue", {}))
