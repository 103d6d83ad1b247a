"""Questions to the user: when one may be asked, and what its answer changes."""

from collections.abc import Sequence

from brain.interrupts.requests import InterruptOutcome, InterruptRequest
from brain.planning.decision import Decision, OpenDecision
from brain.state import ClarificationRecord, ConversationMessage, GraphState, Update
from starling.core.json import Json, JsonObject
from starling.core.runs import Run

_QUESTION_CHARS = 2_000
_OPTIONS = 5
_OPTION_CHARS = 200


def may_ask(run: Run, state: GraphState, *, limit: int, decisions: int) -> bool:
    """Whether the next decision may be a question.

    It may not right after an answer, nor as the last of `decisions`, nor after `limit` questions on the run's branch.
    """
    own_limit = run.config.limits.max_clarifications
    limit = limit if own_limit is None else min(limit, own_limit)
    answered, made = state.get("clarifications", []), state["routing"]["decisions"]
    just_answered = bool(answered) and answered[-1]["decision"] == made
    return run.clarifications < limit and not just_answered and made + 1 < decisions


def question_in(decision: Decision) -> str:
    """Return the question that a decision consists of, empty if it does anything else."""
    if not isinstance(decision, OpenDecision) or decision.selected_agents or decision.reply.strip():
        return ""
    return decision.question.strip()[:_QUESTION_CHARS]


def misplaced_question(state: GraphState, decision: Decision, *, may_ask: bool) -> list[str]:
    """Return what is wrong with a decision that asks the user although it may not, nothing if it doesn't."""
    if may_ask or not (question := question_in(decision)):
        return []
    why = "right after the answer to another one" if state.get("clarifications") else "although none may be asked"
    return [f"it asked the user a question {why}, in place of choosing the most likely reading: “{question}”."]


def question_request(path: str, question: str, reason: str, response_schema: JsonObject) -> InterruptRequest:
    """Return the interrupt that asks the user a question at a path, once."""
    return InterruptRequest(
        kind="clarification",
        key=f"clarification/{path}",
        path=path,
        reason=reason,
        message=question[:_QUESTION_CHARS],
        response_schema=response_schema,
    )


def clarification_update(state: GraphState, decision: OpenDecision, answer: InterruptOutcome) -> Update:
    """Return the update that carries a question and its answer, or an assumption if it expired."""
    routing, question = state["routing"], question_in(decision)
    text = str(answer.payload["answer"]).strip() if answer.state == "resolved" else ""
    record = ClarificationRecord(
        decision=routing["decisions"] + 1,
        question=question,
        answer=text,
        state=answer.state,
        deadline=answer.expires_at.timestamp(),
    )
    messages = [ConversationMessage(role="assistant", content=question), ConversationMessage(role="user", content=text)]
    assumed = [] if text else [f"The question “{question}” wasn't answered: the most likely reading was chosen."]
    return {
        "clarifications": [record],
        "messages": messages if text else [],
        "assumptions": list(dict.fromkeys([*state["assumptions"], *assumed])),
        "routing": {**routing, "decisions": routing["decisions"] + 1, "reason": decision.thought_process},
    }


def answer_schema(answer_chars: int, options: Sequence[str]) -> JsonObject:
    """Return what an answer to a question has to be; `options` are offered."""
    examples = [text for option in options if (text := option.strip()[:_OPTION_CHARS])][:_OPTIONS]
    answer: dict[str, Json] = {"type": "string", "minLength": 1, "maxLength": answer_chars}
    answer |= {"examples": examples} if examples else {}
    return {"type": "object", "properties": {"answer": answer}, "required": ["answer"], "additionalProperties": False}
