"""The decision table of the clarifier: what the supervisor is shown, and what is decided before a model is asked.

Its last row, the reply to a question, is in `test_supervisor_replies`.
"""

from dataclasses import replace

import pytest

from brain.planning.decision import DECISION, OPEN_DECISION
from brain.state import ConversationMessage, initial_state
from tests.support.in_memory_run import make_run
from tests.support.model_documents import decision_json, task
from tests.support.supervisor_steps import decide

RAG = "RAG systems use retrieval to ground what a model writes."
CLASSIFICATION = "I'm working on classification."
TABLE = [
    ("Tell me more about it", ("assistant", RAG)),
    ("Which prompt gave highest accuracy in Zhang 2024?", None),
    ("What did OpenAI release this month?", None),
    ("The best approach", None),
    ("How many examples are enough?", ("user", CLASSIFICATION)),
    ("Use the approach from the paper", None),
]
ROW = pytest.mark.parametrize(("request_text", "before"), TABLE, ids=[text for text, _ in TABLE])
TO_BENCH = decision_json(task("t1", "bench"))


def history(before: tuple[str, str] | None) -> list[ConversationMessage]:
    return [ConversationMessage(role=before[0], content=before[1])] if before else []  # type: ignore[typeddict-item]


@ROW
async def test_supervisor_is_shown_request_and_conversation_and_may_ask(
    request_text: str, before: tuple[str, str] | None
) -> None:
    _, execution = await decide(TO_BENCH, state=initial_state(request_text, history(before)))

    [request] = execution.model.requests
    system, user = (message.content for message in request.messages[:2])
    assert f"<user_request>{request_text}</user_request>" in user
    assert (f'<message role="{before[0]}">{before[1]}</message>' in user) if before else "<message" not in user
    assert "only if no reading is likely and a wrong one useless or harmful" in system
    assert request.response == OPEN_DECISION


@ROW
async def test_after_as_many_questions_as_are_allowed_the_supervisor_can_only_choose(
    request_text: str, before: tuple[str, str] | None
) -> None:
    asked_twice = replace(make_run(), clarifications=2)

    update, execution = await decide(TO_BENCH, state=initial_state(request_text, history(before)), run=asked_twice)

    [request] = execution.model.requests
    assert "You can't ask the user: choose the most likely reading." in request.messages[0].content
    assert request.response == DECISION
    assert update["next_step"] == ["t1"]
