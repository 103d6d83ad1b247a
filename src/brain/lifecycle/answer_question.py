"""The question to the user in place of a final answer: once in a run, where the circuit breaker ended planning."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, ClassVar, Final

from pydantic import BaseModel, ConfigDict, Field

from brain.interrupts.clarification import answer_schema, clarification_update, may_ask, question_request
from brain.planning.decision import OpenDecision
from brain.planning.decision_update import is_open
from brain.prompts import response_schema
from brain.run.context import RunContext
from brain.run.structured_output import ask_for_document
from brain.state import GraphState, Update
from starling.core.errors import BudgetExhaustedError, DeadlineExceededError, JournalDivergedError, ModelError
from starling.core.llm import Message, ModelRequest, ModelRole

_PATH: Final = "qa/0"
_NOTE: Final = (
    "Don't write the answer yet. Parts of the request have none: would one short question to the user let them be "
    "answered? Answer with one JSON object: `question`, empty if none would help; `options`: up to five likely answers."
)
_REASON: Final = "Parts of the request have no answer yet."


class _Question(BaseModel):
    """A question to the user, empty if none would help."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    EXPECTED: ClassVar[str] = 'one JSON object with "question" and "options"'

    question: str = ""
    options: Annotated[list[str], Field(max_length=20)] = []


_SCHEMA: Final = response_schema("question", _Question)


async def question_update(
    context: RunContext, state: GraphState, messages: Sequence[Message], *, limit: int, answer_chars: int
) -> Update:
    """Return the update that carries a question and its answer, empty if nothing is asked.

    `messages` are those that the final answer is asked for with. Supervisors and final answers have one `limit` of
    questions in common. With an answer, a decision comes next. Raises SuspendedError while there is none.
    """
    if not _may_ask(context, state, limit):
        return {}
    system, *others = messages
    request = ModelRequest(
        role=context.allowance.role(ModelRole.ROUTER),
        messages=(replace(system, content=f"{system.content}\n\n{_NOTE}"), *others),
        response=_SCHEMA,
        max_tokens=context.allowance.max_tokens,
    )
    try:
        wanted = await ask_for_document(context.model, _PATH, 0, request, _Question)
    except (ModelError, JournalDivergedError, DeadlineExceededError, BudgetExhaustedError) as error:
        context.recorder.warn(error.code, f"{error} The answer is written without a question.")
        return {}
    if not (question := wanted.question.strip()):
        return {}
    asked = question_request(_PATH, question, _REASON, answer_schema(answer_chars, wanted.options))
    answer = context.interrupts.answer_to(asked)
    update = clarification_update(state, OpenDecision(thought_process=_REASON, question=question), answer)
    routing = {**state["routing"], "qa_asked": True}  # the question is no decision
    if answer.state == "resolved":
        routing |= {"begins": "decision", "retry_count": 0}
    [record] = update["clarifications"]
    return {**update, "routing": routing, "clarifications": [{**record, "decision": routing["decisions"]}]}


def _may_ask(context: RunContext, state: GraphState, limit: int) -> bool:
    """Whether the user may be asked, as the journal has it if it has; never where an earlier version has answered."""
    journal, routing = context.journal, state["routing"]
    if (recorded := journal.find(_PATH, "context")) is not None:
        return bool(recorded["may_ask"]) and not routing.get("qa_asked")
    asks_any = (context.trial is None or context.trial.of_run) and not context.path
    if not asks_any or not is_open(routing) or context.budget.exhausted_reason:
        return False
    allowed = not journal.knows("qa/1", "answer") and may_ask(
        context.run, state, limit=limit, decisions=context.allowance.supervisor_calls
    )
    journal.record(_PATH, "context", {"may_ask": allowed})
    return allowed
