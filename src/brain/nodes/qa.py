"""Consolidates the final answer: sources, assumptions and what couldn't be done are named."""

from collections.abc import Sequence
from dataclasses import dataclass

from langgraph.runtime import Runtime

from brain.context import Answer, RunContext
from brain.interrupts.requests import interrupt_on_suspension
from brain.lifecycle.fallback_answer import citations_of, degraded_lines, plain_answer
from brain.prompts import Xml, element, lines, prompt
from brain.state import ConversationMessage, GraphState, TaskOutcome, Update, approved
from brain.stream_buffer import StreamBuffer
from starling.core.errors import BudgetExhaustedError, DeadlineExceededError, JournalDivergedError, ModelError
from starling.core.llm import Message, ModelRequest, ModelRole

_PATH = "qa/1"
_RESULT_CHARS = 8_000


@dataclass(frozen=True, slots=True)
class Qa:
    """Writes the answer, streaming. Asks no model where the answer stands already."""

    async def __call__(self, state: GraphState, runtime: Runtime[RunContext]) -> Update:
        """Return the update that carries the reply and its citations."""
        context = runtime.context
        outcomes = list(approved(state).values())
        citations = citations_of(outcomes)
        reply = _standing_answer(context, state, outcomes)
        if reply is None:
            with interrupt_on_suspension():
                reply = await _written(context, state, outcomes)
        return {"reply": reply, "citations": citations}


def _standing_answer(context: RunContext, state: GraphState, outcomes: Sequence[TaskOutcome]) -> str | None:
    """Return the answer where it needs no words of QA: a direct reply, a failed plan, or one finished text."""
    if not outcomes and (said := state["reply"] or state["failure"]):
        text = "\n\n".join([said, *degraded_lines(state["degraded"])])
        _type_out(context, text, _message_id(context))
        return text
    tasks = state["tasks"]
    if len(outcomes) == len(tasks) == 1 and not outcomes[0]["tools"] and not state["degraded"]:
        return outcomes[0]["output"]  # was typed out as it was written
    return None


def _type_out(context: RunContext, text: str, message_id: str) -> None:
    with StreamBuffer(context, message_id) as buffer:
        buffer.write(text)


async def _written(context: RunContext, state: GraphState, outcomes: Sequence[TaskOutcome]) -> str:
    try:
        reply = await _streamed(context, _request(context, state, outcomes))
        if reply:
            return reply
        context.warn("llm_invalid_response", "The final answer came back empty.")
    except (ModelError, JournalDivergedError, DeadlineExceededError, BudgetExhaustedError) as error:
        context.warn(error.code, str(error))
    reply = plain_answer(outcomes, state["degraded"])
    _type_out(context, reply, f"{_message_id(context)}.plain")  # replaces what was typed before the failure
    return reply


async def _streamed(context: RunContext, request: ModelRequest) -> str:
    with StreamBuffer(context, _message_id(context)) as buffer:
        async for item in context.ask_streaming(_PATH, 0, request):
            if isinstance(item, Answer):
                return item.reply.content.strip()
            buffer.write(item.text, restart=item.restart)
    return ""


def _request(context: RunContext, state: GraphState, outcomes: Sequence[TaskOutcome]) -> ModelRequest:
    allowance = context.allowance
    return ModelRequest(
        role=allowance.role(ModelRole.REASONING),
        messages=_messages(state, outcomes),
        max_tokens=allowance.max_tokens,
        prompt=prompt("qa").used,
    )


def _messages(state: GraphState, outcomes: Sequence[TaskOutcome]) -> tuple[Message, Message]:
    return prompt("qa").fill(
        user_request=state["input_request"],
        session_history=_history(state["messages"]),
        results=lines(_result(number, outcome) for number, outcome in enumerate(outcomes, start=1)),
        degraded=lines(element("part", part["part"], reason=part["reason"]) for part in state["degraded"]),
        assumptions=lines(element("assumption", text) for text in state["assumptions"]),
    )


def _history(messages: Sequence[ConversationMessage]) -> Xml:
    return lines(element("message", said["content"], role=said["role"]) for said in messages)


def _result(number: int, outcome: TaskOutcome) -> Xml:
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
