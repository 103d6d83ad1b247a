"""What CrewAI is told of an agent and its task, as text."""

import re
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

from brain.agents.runtime import TaskExecution

_PLACEHOLDERS: Final = re.compile(r"\{(goal|role|backstory|input|tools|tool_names)\}")
_GOAL: Final = "Do what your task says."


@dataclass(frozen=True, slots=True)
class CrewTask:
    """An agent and its task. All of it is plain text: it has no tags but our own, and nothing that CrewAI fills in."""

    role: str
    goal: str
    backstory: str
    task: str
    iterations: int
    has_tools: bool


def crew_task(execution: TaskExecution) -> CrewTask:
    """Return the agent and the task, of the messages that the task has: the first one is about the agent."""
    card = execution.card
    return CrewTask(
        role=_unfilled(escape(card.persona.role if card.persona else card.name)),
        goal=_unfilled(escape(card.persona.goal if card.persona else _GOAL)),
        backstory=_unfilled(execution.messages[0].content),
        task=_unfilled(execution.messages[-1].content),
        iterations=execution.context.allowance.tool_iterations,
        has_tools=bool(card.tools),
    )


def _unfilled(text: str) -> str:
    """Return a text in which CrewAI finds nothing to fill in: `{tools}` becomes `{ tools }`."""
    return _PLACEHOLDERS.sub(r"{ \1 }", text)
