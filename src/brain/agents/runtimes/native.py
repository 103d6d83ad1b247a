"""The native runtimes, replayed from the journal: a loop of model answers and tool calls, or one answer in words."""

from collections.abc import Sequence
from dataclasses import dataclass

from brain.agents.tools.note_tool import extra_tools
from brain.agents.tools.tool_calling import ToolAccess, ToolCallBatch
from brain.agents.tools.tool_finder import offered
from brain.agents.tools.toolbox import Toolbox
from brain.agents.turn.agent_answer import ask_agent, ask_model
from brain.agents.turn.agent_runtime import AttemptOutput, FinishedCall, TaskExecution, joined_results
from brain.agents.turn.prompt_building import model_request
from brain.lifecycle.final_text import CUT_OFF, asked_again
from starling.core.errors import LLMInvalidResponse
from starling.core.llm import Message, ModelRole, ModelToolCall
from starling.core.tools import CONTINUE, FIND_TOOLS


@dataclass(frozen=True, slots=True)
class NativeRuntime:
    """Function calling: the calls of one answer run in parallel, and their results are the attempt's output."""

    access: ToolAccess

    async def attempt(self, execution: TaskExecution) -> AttemptOutput:
        """Make one attempt, of as many turns as the limit of iterations.

        Another turn follows where the model calls `continue` or `find_tools`, or nothing but `note`, or where calls
        were left out because of a limit. What `find_tools` and `note` return is not a result. An agent that answers in
        words without any result is unable.
        """
        if self.access.tool_finder is not None:
            await self.access.tool_finder.choose(execution)
        toolbox = Toolbox.of(execution.card.tools, reserved=() if execution.shown is None else (FIND_TOOLS,))
        role = execution.card.role if execution.card.kind == "member" else ModelRole.ROUTER
        uses: list[FinishedCall] = []
        for _ in range(execution.context.allowance.tool_iterations):
            tools = (*offered(toolbox, execution), *extra_tools(execution, toolbox))
            request = model_request(execution, tools, role=role, tool_names=toolbox.other_names)
            answer = await ask_agent(execution, request)
            calls = answer.reply.tool_calls
            returned = answer.reply.returned_reasoning
            execution.messages.append(Message("assistant", answer.reply.content, calls, reasoning=returned))
            wanted = [call for call in calls if call.name != CONTINUE]
            if not wanted:
                execution.messages += _tool_messages(calls, [])
                if uses:
                    break
                if not (text := answer.reply.content.strip()):
                    raise LLMInvalidResponse(answer.reply.model, "it answered with neither a tool call nor a word")
                earlier = tuple(use for use in execution.uses if use.outcome.status == "succeeded")
                return AttemptOutput(text, unable=not earlier and not execution.own_done, earlier=earlier)
            batch = await ToolCallBatch.announced(
                self.access, execution, toolbox, execution.position - 1, wanted, replayed=answer.replayed
            )
            answered = await batch.use_all()
            made = batch.results(answered)
            uses += made
            execution.keep(made)
            execution.messages += _tool_messages(calls, answered)
            if uses and len(wanted) == len(calls) and not batch.is_cut and not batch.looked_for_tools:
                break
        return AttemptOutput(joined_results(uses), tuple(uses))


def _tool_messages(calls: Sequence[ModelToolCall], made: Sequence[FinishedCall]) -> list[Message]:
    """Return a message for each call, in order, `continue` included: ids are not unique with every endpoint."""
    texts = iter([use.outcome.text for use in made])
    return [Message("tool", "Go on." if call.name == CONTINUE else next(texts), tool_call_id=call.id) for call in calls]


@dataclass(frozen=True, slots=True)
class TextRuntime:
    """One answer in words, streamed to the user where the task is the whole plan."""

    async def attempt(self, execution: TaskExecution) -> AttemptOutput:
        """Make one attempt: ask the model for its answer, and once more where its text is cut off."""
        request, again = model_request(execution), execution.place("again")  # the next position is the next attempt's
        stream, position = execution.dispatch["whole_plan"], execution.position
        answer = await ask_agent(execution, request, stream=stream)
        was_asked = execution.context.journal.knows(again, "answer", position)
        if answer.reply.finish_reason == "length" and (was_asked or not answer.replayed):
            request = asked_again(request, answer.reply.content, CUT_OFF)
            answer = await ask_model(execution, (again, position), request, stream=stream)
            if answer.reply.finish_reason == "length":
                text = f"The text of {execution.card.name} {CUT_OFF}, also when it was asked for again."
                execution.context.recorder.warn("llm_invalid_response", text, execution.task_id)
        execution.messages.append(Message("assistant", answer.reply.content))
        return AttemptOutput(answer.reply.content.strip())
