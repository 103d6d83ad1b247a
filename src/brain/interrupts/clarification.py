"""Questions to the user: when they may be asked, and what becomes of their answers."""

from collections.abc import Sequence
from typing import Final, cast

from brain.context import RunContext
from brain.interrupts.requests import InterruptAnswer, InterruptRequest
from brain.planning.decision import Decision, OpenDecision
from brain.prompts import Xml, element, lines
from brain.state import ClarificationRecord, ConversationMessage, GraphState, Update
from starling.core.json import Json, JsonObject

_QUESTION_CHARS = 2_000
_OPTIONS = 5
_OPTION_CHARS = 200

MUST_ASSUME: Final = Xml("You can't ask the user: choose the most likely reading and say so here.")
MAY_ASK: Final = Xml(
    "Choose the most likely reading and say so here.\n"
    "- `question`: one short question to the user, only where no reading is likely enough and a wrong one would be "
    "useless or do harm; otherwise an empty string. Leave `plan`, `selected_agents` and `reply` empty then.\n"
    "- `options`: the likeliest answers to the question, at most five; otherwise an empty list."
)


def may_ask(context: RunContext, state: GraphState) -> bool:
    """Whether the next decision may be a question: not right after an answer, and not too often on one branch."""
    limits, own, routing = context.limits, context.run.config.limits, state["routing"]
    most = limits.max_clarifications
    most = most if own.max_clarifications is None else min(most, own.max_clarifications)
    answered = state.get("clarifications", [])
    just_answered = bool(answered) and answered[-1]["decision"] == routing["decisions"]
    last = routing["decisions"] + 1 >= context.allowance.supervisor_calls
    return context.run.clarifications < most and not just_answered and not last


def question_in(decision: Decision) -> str:
    """Return what a decision asks, empty where it does anything else."""
    if not isinstance(decision, OpenDecision) or decision.selected_agents or decision.reply.strip():
        return ""
    return decision.question.strip()[:_QUESTION_CHARS]


def ask(context: RunContext, decision: OpenDecision, path: str) -> InterruptAnswer:
    """Return what came of a question. Raises SuspendedError while nobody has answered it."""
    wish = InterruptRequest(
        kind="clarification",
        key=f"clarification/{path}",
        path=path,
        reason=decision.thought_process or "The request can be read in more than one way.",
        message=question_in(decision),
        response_schema=_schema(context.limits.input_chars, decision.options),
    )
    return context.interrupts.answer_to(wish)


def clarification_update(state: GraphState, decision: OpenDecision, answered: InterruptAnswer) -> Update:
    """Return the update that carries a question and its answer; without one, that something is assumed."""
    routing, question = state["routing"], question_in(decision)
    answer = str(answered.payload["answer"]).strip() if answered.state == "resolved" else ""
    clarified = ClarificationRecord(
        decision=routing["decisions"] + 1,
        question=question,
        answer=answer,
        state=answered.state,
        deadline=answered.expires_at.timestamp(),
    )
    said = (
        [ConversationMessage(role="assistant", content=question), ConversationMessage(role="user", content=answer)]
        if answer
        else []
    )
    assumed = [] if answer else [f"The question “{question}” wasn't answered: the most likely reading was chosen."]
    return {
        "clarifications": [clarified],
        "messages": said,
        "assumptions": list(dict.fromkeys([*state["assumptions"], *assumed])),
        "routing": {**routing, "decisions": routing["decisions"] + 1, "reason": decision.thought_process},
    }


def state_with_answer(state: GraphState, update: Update) -> GraphState:
    """Return the state as it is once `clarification_update`'s update is."""
    said = [*state["messages"], *update["messages"]]
    asked = [*state.get("clarifications", []), *update["clarifications"]]
    return cast("GraphState", {**state, **update, "messages": said, "clarifications": asked})


def elements(clarifications: Sequence[ClarificationRecord]) -> Xml:
    """Return questions and answers as a prompt shows them."""
    return lines(
        Xml(f"{element('question', item['question'])}{element('answer', item['answer'], state=item['state'])}")
        for item in clarifications
    )


def _schema(most: int, options: Sequence[str]) -> JsonObject:
    shown = [text for option in options if (text := option.strip()[:_OPTION_CHARS])][:_OPTIONS]
    answer: dict[str, Json] = {"type": "string", "minLength": 1, "maxLength": most}
    answer |= {"examples": shown} if shown else {}
    return {"type": "object", "properties": {"answer": answer}, "required": ["answer"], "additionalProperties": False}
