"""The runtime of agents without tools: what they write is their result."""

from dataclasses import dataclass

from brain.agents.prompt_building import prompt_of
from brain.agents.runtime import AttemptOutput, TaskExecution
from brain.context import Answer
from brain.stream_buffer import StreamBuffer
from starling.core.llm import Message, ModelRequest


@dataclass(frozen=True, slots=True)
class TextRuntime:
    """One answer in words. Typed out to the user where the task is the whole plan."""

    async def attempt(self, work: TaskExecution) -> AttemptOutput:
        """Make one attempt: ask once, streaming or whole."""
        allowance = work.context.allowance
        request = ModelRequest(
            role=allowance.role(work.card.role),
            messages=tuple(work.messages),
            max_tokens=allowance.max_tokens,
            prompt=prompt_of(work.card).used,
            model=work.card.model,
        )
        answer = await (_typed(work, request) if work.dispatch["whole_plan"] else _asked(work, request))
        work.position += 1
        work.messages.append(Message("assistant", answer.reply.content))
        return AttemptOutput(answer.reply.content.strip())


async def _asked(work: TaskExecution, request: ModelRequest) -> Answer:
    return await work.context.ask(work.path, work.position, request)


async def _typed(work: TaskExecution, request: ModelRequest) -> Answer:
    message_id = f"{work.path}.{work.position}.{work.context.run.fence}"
    with StreamBuffer(work.context, message_id) as buffer:
        async for item in work.context.ask_streaming(work.path, work.position, request):
            if isinstance(item, Answer):
                return item
            buffer.write(item.text, restart=item.restart)
    raise AssertionError("a stream always ends with its answer")
