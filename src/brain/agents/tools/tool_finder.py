"""The built-in tool `find_tools`: an agent with many tools is shown those that fit its task, and looks for others.

Which tools are shown is recorded, so that a resumed run asks the model the same. An agent may call each of its tools,
shown or not: only the length of prompts is limited here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import Field, ValidationError

from brain.agents.tools.toolbox import Toolbox, not_made
from brain.agents.turn.agent_runtime import TaskExecution
from brain.registry.card_text import shortened
from brain.retrieval.agent_finder import AgentFinder
from starling.core.closed_document import ClosedDocument
from starling.core.json import JsonObject
from starling.core.llm import ToolSpec
from starling.core.tool_calls import Observation
from starling.core.tools import FIND_TOOLS, ToolOutcome
from starling.core.tracing import SpanKind, Tracer

FIND_TOOLS_SPEC: Final = ToolSpec(
    FIND_TOOLS,
    "Only some of your tools are shown. Find others by what they do; you can call them in your next answer.",
    {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
)
_FOUND: Final = 10  # by one call
_DESCRIPTION_CHARS: Final = 100


class _FindRequest(ClosedDocument):
    query: str = Field(min_length=1, max_length=1_000)


@dataclass(frozen=True, slots=True)
class ToolFinder:
    """Chooses the tools that an agent with more than `most` of them is shown, and finds others for it."""

    ranker: AgentFinder
    tracer: Tracer
    most: int = 20

    async def choose(self, execution: TaskExecution) -> None:
        """Set the tools that are shown for a task: all those of an agent with few tools, or that an answer had."""
        journal, path = execution.context.journal, _path(execution)
        if len(execution.card.tools) <= self.most or execution.shown is not None:
            return
        if (recorded := journal.find(path, "context")) is not None:
            execution.shown = list(recorded["tools"])
        else:
            known = {call.tool for skill in execution.skills for call in skill.calls}
            of_skills = [tool.name for tool in execution.card.tools if {tool.name, tool.full_name} & known]
            fitting = await self._ranked(execution, execution.task, self.most)
            execution.shown = [*dict.fromkeys([*of_skills, *fitting])][: self.most]
            journal.record(path, "context", {"tools": execution.shown})

    async def call(
        self, execution: TaskExecution, toolbox: Toolbox, place: tuple[int, int], arguments: JsonObject | None
    ) -> ToolOutcome:
        """Return the tools that fit a query; they are shown from the next answer on. Failures are outcomes.

        `place` is the position of the answer that asks for it, and the index of the call in it.
        """
        try:
            request = _FindRequest.model_validate(arguments)
        except ValidationError:
            return not_made(f"{FIND_TOOLS} takes a `query`: a text that says what the tool should do.")
        name = f"execute_tool {FIND_TOOLS}"
        with self.tracer.span(name, SpanKind.RETRIEVER, lambda: {"input": request.query}) as span:
            found = await self._ranked(execution, request.query, _FOUND)
            span.set(lambda: {"output": found})
        execution.context.journal.record(_path(execution), "tool", {"tools": found}, *place)
        self._show(execution, found)
        named = [(name, tool) for name, tool in toolbox.tools.items() if tool.name in found]
        by_rank = sorted(named, key=lambda pair: found.index(pair[1].name))
        text = "\n".join(f"{name}: {shortened(tool.description, _DESCRIPTION_CHARS)}" for name, tool in by_rank)
        return ToolOutcome(Observation.COMPLETED, text or "No tool fits.")

    def replay(self, execution: TaskExecution, place: tuple[int, int]) -> None:
        """Show what a call found that an earlier process made."""
        if recorded := execution.context.journal.find(_path(execution), "tool", *place):
            self._show(execution, recorded["tools"])

    async def _ranked(self, execution: TaskExecution, text: str, limit: int) -> list[str]:
        return await self.ranker.rank_tools(execution.context.search, execution.card, text, limit)

    def _show(self, execution: TaskExecution, found: Sequence[str]) -> None:
        execution.shown = [*dict.fromkeys([*(execution.shown or ()), *found])]


def offered(toolbox: Toolbox, execution: TaskExecution) -> tuple[ToolSpec, ...]:
    """Return the tools that a request names: all, or those that are shown with `find_tools`."""
    return toolbox.specs if execution.shown is None else (*toolbox.specs_of(execution.shown), FIND_TOOLS_SPEC)


def _path(execution: TaskExecution) -> str:
    return f"{execution.path}/tools"
