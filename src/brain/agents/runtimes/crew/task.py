"""What CrewAI is told of an agent and its task: where their texts go, never a text itself."""

import re
from dataclasses import dataclass
from typing import Final, Literal
from xml.sax.saxutils import escape

from brain.agents.turn.agent_runtime import TaskExecution

_PLACES: Final = re.compile("<<(role|goal|backstory|task)>>")
_GOAL: Final = "Do what your task says."


@dataclass(frozen=True, slots=True)
class CrewTask:
    """An agent and its task, as texts that have no tags but our own."""

    role: str
    goal: str
    backstory: str
    task: str
    iterations: int
    has_tools: bool

    def filled(self, message: str) -> str:
        """Return a message that CrewAI made of places, with the texts in them."""
        return _PLACES.sub(lambda place: getattr(self, place[1]), message)


def place(name: Literal["role", "goal", "backstory", "task"]) -> str:
    """Return what CrewAI gets for a text, in which it would fill in `{input}`, `{tools}` and others."""
    return f"<<{name}>>"


def crew_task(execution: TaskExecution) -> CrewTask:
    """Return the agent and the task, of the messages that the task has: the first one is about the agent."""
    card = execution.card
    return CrewTask(
        role=escape(card.persona.role if card.persona else card.name),
        goal=escape(card.persona.goal if card.persona else _GOAL),
        backstory=execution.messages[0].content,
        task=execution.messages[-1].content,
        iterations=execution.context.allowance.tool_iterations,
        has_tools=bool(card.tools),
    )
