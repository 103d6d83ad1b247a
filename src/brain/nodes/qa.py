"""The QA node: the final answer, with sources, assumptions and the parts that could not be answered."""

from collections.abc import Sequence
from dataclasses import dataclass

from langgraph.runtime import Runtime

from brain.conversation.rendering import history_lines
from brain.interrupts.requests import interrupt_on_suspension
from brain.journaled_model import ModelAnswer
from brain.lifecycle.fallback_answer import citations_of, degraded_lines, plain_answer
from brain.prompts import Prompt, Xml, element, lines
from brain.run_context import RunContext
from brain.state import GraphState, TaskOutcome, Update, approved
from brain.stream_buffer import StreamBuffer
from starling.core.errors import BudgetExhaustedError, DeadlineExceededError, JournalDivergedError, ModelError
from starling.core.llm import ModelRequest, ModelRole

_PATH = "qa/1"
_RESULT_CHARS = 8_000


@dataclass(frozen=True, slots=True)
class Qa:
    """Streams the final answer. Asks no model where the answer is complete without one."""

    prompt: Prompt

    async def __call__(self, state: GraphState, runtime: Runtime[RunContext]) -> Update:
        """Return the update that carries the reply and its citations."""
        context = runtime.context
        outcomes = list(approved(state).values())
        if reply := _text_without_results(state, outcomes):
            _emit_text(context, reply, _message_id(context))
        elif _is_one_text(state, outcomes):
            reply = outcomes[0]["output"]  # was streamed as it was written
        else:
            with interrupt_on_suspension():
                reply = await self._write(context, state, outcomes)
        return {"reply": reply, "citations": citations_of(outcomes)}

    async def _write(self, context: RunContext, state: GraphState, outcomes: Sequence[TaskOutcome]) -> str:
        """Return the model's answer, or the results as they are where it gives none."""
        try:
            reply = await _stream(context, self._request(context, state, outcomes))
            if reply:
                return reply
            context.recorder.warn("llm_invalid_response", "The final answer came back empty.")
        except (ModelError, JournalDivergedError, DeadlineExceededError, BudgetExhaustedError) as error:
            context.recorder.warn(error.code, str(error))
        reply = plain_answer(outcomes, state["degraded"])
        _emit_text(context, reply, f"{_message_id(context)}.plain")  # replaces the text streamed before the failure
        return reply

    def _request(self, context: RunContext, state: GraphState, outcomes: Sequence[TaskOutcome]) -> ModelRequest:
        allowance = context.allowance
        messages = self.prompt.fill(
            user_request=state["input_request"],
            session_history=history_lines(state["messages"]),
            results=lines(_result_element(number, outcome) for number, outcome in enumerate(outcomes, start=1)),
            degraded=lines(element("part", part["part"], reason=part["reason"]) for part in state["degraded"]),
            assumptions=lines(element("assumption", text) for text in state["assumptions"]),
        )
        return ModelRequest(
            role=allowance.role(ModelRole.REASONING),
            messages=messages,
            max_tokens=allowance.max_tokens,
            prompt=self.prompt.used,
        )


def _is_one_text(state: GraphState, outcomes: Sequence[TaskOutcome]) -> bool:
    """Whether the only task of the plan wrote the whole answer."""
    alone = len(outcomes) == len(state["tasks"]) == 1
    return alone and not outcomes[0]["tools"] and not state["degraded"]


def _text_without_results(state: GraphState, outcomes: Sequence[TaskOutcome]) -> str:
    """Return the supervisor's own reply, or why planning failed, with the parts that could not be answered."""
    text = state["reply"] or state["failure"]
    return "\n\n".join([text, *degraded_lines(state["degraded"])]) if text and not outcomes else ""


def _emit_text(context: RunContext, text: str, message_id: str) -> None:
    with StreamBuffer(context.recorder, message_id) as buffer:
        buffer.write(text)


async def _stream(context: RunContext, request: ModelRequest) -> str:
    with StreamBuffer(context.recorder, _message_id(context)) as buffer:
        async for item in context.model.ask_streaming(_PATH, 0, request):
            if isinstance(item, ModelAnswer):
                return item.reply.content.strip()
            buffer.write(item.text, restart=item.restart)
    return ""


def _result_element(number: int, outcome: TaskOutcome) -> Xml:
    return element(
        "result",
        outcome["output"][:_RESULT_CHARS],
        task_id=outcome["task_id"],
        agent=outcome["agent"],
        status=outcome["status"],
        citation=str(number),
    )


def _message_id(context: RunContext) -> str:
    return f"{_PATH}.{context.run.fence}"
