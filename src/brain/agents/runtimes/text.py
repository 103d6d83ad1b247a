"""The runtime of agents without tools: their text is their result."""

from dataclasses import dataclass

from brain.agents.turn.agent_runtime import AttemptOutput, TaskExecution
from brain.agents.turn.prompt_building import model_request
from brain.run.journaled_model import ModelAnswer
from brain.run.recorder import StreamBuffer
from starling.core.llm import Message, ModelRequest


@dataclass(frozen=True, slots=True)
class TextRuntime:
    """One answer in words, streamed to the user where the task is the whole plan."""

    async def attempt(self, execution: TaskExecution) -> AttemptOutput:
        """Make one attempt: ask the model once."""
        request, stream = model_request(execution), execution.dispatch["whole_plan"]
        model, place = execution.context.model, (execution.path, execution.position)
        answer = await (_stream(execution, request) if stream else model.ask(*place, request))
        execution.position += 1
        execution.messages.append(Message("assistant", answer.reply.content))
        return AttemptOutput(answer.reply.content.strip())


async def _stream(execution: TaskExecution, request: ModelRequest) -> ModelAnswer:
    context = execution.context
    with StreamBuffer(context.recorder, execution.message_id) as buffer:
        async for item in context.model.ask_streaming(execution.path, execution.position, request):
            if isinstance(item, ModelAnswer):
                return item
            buffer.write(item.text, restart=item.restart)
    raise AssertionError("a stream always ends with its answer")
