"""A task as CrewAI is told of it, and the agent's conversation with its model: our messages, journal and tool calls."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal
from xml.sax.saxutils import escape

from brain.agents.tools.note_tool import extra_tools
from brain.agents.tools.tool_calling import ToolAccess, ToolCallBatch
from brain.agents.tools.tool_finder import offered
from brain.agents.tools.toolbox import Toolbox
from brain.agents.turn.agent_answer import ask_agent
from brain.agents.turn.agent_runtime import AttemptOutput, FinishedCall, TaskExecution, joined_results
from brain.agents.turn.prompt_building import model_request
from starling.core.errors import LLMInvalidResponse
from starling.core.llm import Message, ModelReply, ToolSpec
from starling.core.tools import CONTINUE

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


_FIRST_MESSAGES = 1  # index of the journal's entry beside the context that they were made from
_LAST_REQUEST = Message("user", "You can call no more tools. Write out the result now, from what you have found.")


@dataclass(frozen=True, slots=True)
class CallHandle:
    """A call that an answer asks for, by its place `position.index`; `id` is the one that the model gave it."""

    id: str
    place: str


@dataclass(frozen=True, slots=True)
class CallRequest:
    """An answer that asks for calls, which were announced."""

    batch: ToolCallBatch
    reply: ModelReply

    @property
    def handles(self) -> Sequence[CallHandle]:
        """The calls in the order of the answer."""
        places = (f"{self.batch.position}.{index}" for index in range(len(self.reply.tool_calls)))
        return [CallHandle(call.id, place) for call, place in zip(self.reply.tool_calls, places, strict=True)]


@dataclass(slots=True)
class CrewConversation:
    """One attempt at a task. Everything that the model is shown, and everything it answers, is in the journal."""

    access: ToolAccess
    execution: TaskExecution
    toolbox: Toolbox
    task: CrewTask
    text: str = ""  # the answer in words, which is the attempt's output
    uses: list[FinishedCall] = field(default_factory=list[FinishedCall])

    async def ask(self, shown: Sequence[Message], *, with_tools: bool) -> CallRequest | None:
        """Ask the model, or read its recorded answer; announce the calls that it asks for. None if it is in words.

        CrewAI's last request, at its limit of iterations, has no tools and one more message: ours, since CrewAI's own
        tells the model to ignore all instructions before it.
        """
        execution = self.execution
        if not any(message.role == "assistant" for message in execution.messages):
            self._take_first_messages(shown)
        elif self.toolbox.specs and not with_tools:
            execution.messages.append(_LAST_REQUEST)
        tools = self._offered() if with_tools else ()
        request = model_request(execution, tools, tool_names=self.toolbox.other_names if tools else {})
        answer = await ask_agent(execution, request)
        reply = answer.reply
        calls = reply.tool_calls if with_tools else ()
        execution.messages.append(Message("assistant", reply.content, calls, reasoning=reply.returned_reasoning))
        if not calls:
            self.text = reply.content.strip() or joined_results(self.uses)
            if not self.text:
                raise LLMInvalidResponse(reply.model, "it answered with neither a tool call nor a word")
            return None
        batch = await ToolCallBatch.announced(
            self.access, execution, self.toolbox, execution.position - 1, calls, replayed=answer.replayed
        )
        return CallRequest(batch, reply)

    async def use(self, asked: CallRequest) -> None:
        """Make the calls of an answer; the model's next request has their results. Raises what `use_all` raises."""
        answered = await asked.batch.use_all()
        made = asked.batch.results(answered)
        self.uses += made
        self.execution.keep(made)
        self.execution.messages += [
            Message("tool", use.outcome.text, tool_call_id=call.id)
            for call, use in zip(asked.reply.tool_calls, answered, strict=True)
        ]

    @property
    def output(self) -> AttemptOutput:
        """What the attempt made; an agent with tools that called none, and has no earlier result, is unable."""
        earlier = any(use.outcome.status == "succeeded" for use in self.execution.uses) or self.execution.own_done
        unable = bool(self.execution.card.tools) and not self.uses and not earlier
        return AttemptOutput(self.text, tuple(self.uses), unable=unable)

    def _take_first_messages(self, shown: Sequence[Message]) -> None:
        """Begin with the messages that CrewAI made of the agent and its task, or with those that it once made."""
        journal, path = self.execution.context.journal, self.execution.path
        recorded = journal.find(path, "context", 0, _FIRST_MESSAGES)
        if recorded is None:
            self.execution.messages = [Message(one.role, self.task.filled(one.content)) for one in shown]
            messages = [{"role": message.role, "content": message.content} for message in self.execution.messages]
            journal.record(path, "context", {"messages": messages}, 0, _FIRST_MESSAGES)
        else:
            self.execution.messages = [Message(**message) for message in recorded["messages"]]

    def _offered(self) -> tuple[ToolSpec, ...]:
        """Return the tools of a request. `continue` is not needed: CrewAI always shows results to the model."""
        tools = tuple(spec for spec in offered(self.toolbox, self.execution) if spec.name != CONTINUE)
        return (*tools, *extra_tools(self.execution, self.toolbox)) if tools else tools
