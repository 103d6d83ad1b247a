"""The native runtime: an async loop of model answers and tool calls, replayed from the journal after a crash."""

from collections.abc import Sequence
from dataclasses import dataclass

from brain.agents.artifact_tool import READ_ARTIFACT_SPEC
from brain.agents.prompt_building import prompt_of
from brain.agents.runtime import AttemptOutput, TaskExecution, ToolUse
from brain.agents.tool_calling import Calling, stop_if_unknown
from brain.agents.toolbox import CONTINUE, Toolbox
from brain.context import Answer
from starling.core.errors import LLMInvalidResponse
from starling.core.llm import Message, ModelRequest, ModelRole, ModelToolCall


@dataclass(frozen=True, slots=True)
class NativeRuntime:
    """Function calling: calls of one answer run in parallel, their results are the attempt's output."""

    async def attempt(self, work: TaskExecution) -> AttemptOutput:
        """Make one attempt: turns go on while the model asks to `continue`, up to the limit of iterations."""
        toolbox = Toolbox.of(work.card.tools)
        uses: list[ToolUse] = []
        for _ in range(work.context.allowance.tool_iterations):
            position = work.position
            answer = await work.context.ask(work.path, position, _request(work, toolbox))
            work.position += 1
            calls = answer.reply.tool_calls
            work.messages.append(Message("assistant", answer.reply.content, calls))
            wanted = [call for call in calls if call.name != CONTINUE]
            if not wanted:
                work.messages += _results(calls, [])
                return _spoken(answer, uses)
            calling = await Calling.announced(work, toolbox, position, wanted, replayed=answer.replayed)
            made = await calling.use_all()
            uses += made
            work.keep(made)
            stop_if_unknown(made)
            work.messages += _results(calls, made)
            if len(wanted) == len(calls):
                break
        return AttemptOutput(_output(uses), tuple(uses))


def _request(work: TaskExecution, toolbox: Toolbox) -> ModelRequest:
    """Return the next request; whoever has something to read on in is offered to do so."""
    allowance = work.context.allowance
    return ModelRequest(
        role=allowance.role(ModelRole.ROUTER),
        messages=tuple(work.messages),
        tools=(*toolbox.specs, READ_ARTIFACT_SPEC) if work.artifacts else toolbox.specs,
        max_tokens=allowance.max_tokens,
        prompt=prompt_of(work.card).used,
        model=work.card.model,
    )


def _spoken(answer: Answer, uses: Sequence[ToolUse]) -> AttemptOutput:
    """An answer without calls: after some, they are the result; before any, the agent says that it can't."""
    if uses:
        return AttemptOutput(_output(uses), tuple(uses))
    text = answer.reply.content.strip()
    if not text:
        raise LLMInvalidResponse(answer.reply.model, "it answered with neither a tool call nor a word")
    return AttemptOutput(text, unable=True)


def _results(calls: Sequence[ModelToolCall], made: Sequence[ToolUse]) -> list[Message]:
    """Answer every call, as the protocol asks: `continue` too. Ids don't tell calls apart with every endpoint."""
    texts = iter([use.outcome.text for use in made])
    return [Message("tool", "Go on." if call.name == CONTINUE else next(texts), tool_call_id=call.id) for call in calls]


def _output(uses: Sequence[ToolUse]) -> str:
    """The results, as they are: one alone, several each under the call that it comes from."""
    if len(uses) == 1:
        return uses[0].outcome.text
    return "\n\n".join(f"{use.name} {dict(use.arguments)}:\n{use.outcome.text}" for use in uses)
