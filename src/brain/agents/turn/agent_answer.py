"""The answer of an agent's model, which is told once in an attempt where it has no tool call, but words or nothing."""

from dataclasses import replace
from typing import Final

from brain.agents.turn.agent_runtime import TaskExecution
from brain.run.journaled_model import ModelAnswer
from brain.run.recorder import StreamBuffer
from brain.run.structured_output import NO_READABLE_ANSWER
from starling.core.errors import LLMInvalidResponse
from starling.core.llm import Message, ModelRequest
from starling.core.model_output.text_tool_calls import has_unread_call

_REMINDER: Final = 2  # index of the journal's entry, at the position of the answer that it is about
_CALL_NOW: Final = "No tool was called. Call the tool that serves the task now. If none does, say what is missing."
_UNREAD: Final = (
    "A tool call in your answer can't be read, so nothing was called. Where you have a tool for it, call that as a "
    "function. Else answer in words; a call that is only an example belongs in a code block."
)


async def ask_agent(execution: TaskExecution, request: ModelRequest, *, stream: bool = False) -> ModelAnswer:
    """Return the model's answer, the second one if it had to be told; the execution's position is the next one's.

    Raises LLMInvalidResponse if both have a tool call that can't be read, and what `JournaledModel.ask` raises.
    """
    answer = await ask_model(execution, (execution.path, execution.position), request, stream=stream)
    reminder = _reminder(execution, request, answer)
    execution.position += 1
    if not reminder:
        return answer
    execution.reminded = execution.attempt.number
    said = answer.reply.content if answer.reply.content.strip() else NO_READABLE_ANSWER
    execution.messages += [Message("assistant", said), Message("user", reminder)]
    told = replace(request, messages=tuple(execution.messages))
    again = await ask_model(execution, (execution.path, execution.position), told, stream=stream)
    execution.position += 1
    if has_unread_call(again.reply, request):
        raise LLMInvalidResponse(again.reply.model, "it wrote a tool call that can't be read, and again when told so.")
    return again


async def ask_model(
    execution: TaskExecution, place: tuple[str, int], request: ModelRequest, *, stream: bool
) -> ModelAnswer:
    """Return the answer at this path and position, shown to the user as it arrives if it is a `stream`."""
    context = execution.context
    if not stream:
        return await context.model.ask(*place, request)
    with StreamBuffer(context.recorder, f"{place[0]}.{place[1]}.{context.run.fence}") as buffer:
        async for item in context.model.ask_streaming(*place, request):
            if isinstance(item, ModelAnswer):
                return item
            buffer.write(item.text, restart=item.restart)
    raise AssertionError("a stream always ends with its answer")


def _reminder(execution: TaskExecution, request: ModelRequest, answer: ModelAnswer) -> str:
    """Return what the model is told about its answer, empty if nothing; in a resumed run what it was told."""
    journal, path, position = execution.context.journal, execution.path, execution.position
    if answer.replayed:  # without an entry, the attempt went on from this answer
        return (journal.find(path, "context", position, _REMINDER) or {}).get("reminder", "")
    if answer.reply.tool_calls or execution.reminded == execution.attempt.number:
        return ""
    narrates = request.tools and not execution.uses and not execution.done
    text = _UNREAD if has_unread_call(answer.reply, request) else _CALL_NOW if narrates else ""
    if text:
        journal.record(path, "context", {"reminder": text}, position, _REMINDER)
    return text
