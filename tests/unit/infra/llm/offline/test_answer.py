"""The final answer, and answers without tools."""

import json

from brain.prompts import prompt
from starling.core.llm import ModelRequest, ModelRole
from tests.support.offline_requests import answer, compose_answer


def test_json_result_is_formatted_with_its_citation() -> None:
    text = compose_answer(
        [
            '{"timezone": "America/Lima", "datetime": "2026-11-20T05:00:14-05:00", "is_dst": false}',
            '{"path": "/", "total_bytes": 270553174016, "percent": 22.6}',
        ]
    )

    assert text == (
        "- timezone: America/Lima; datetime: 2026-11-20 05:00:14 (UTC-05:00); is dst: no [1]\n"
        "- path: /; total bytes: 270.6 GB; percent: 22.6 % [2]"
    )


def test_several_calls_of_one_task_are_formatted_one_per_line() -> None:
    text = compose_answer(["fs.read {'path': '/a'}:\nhello\n\nfs.read {'path': '/b'}:\nbye"])

    assert text == "path: /a: hello\n  path: /b: bye [1]"


def test_answer_names_degraded_parts_and_assumptions() -> None:
    text = compose_answer(["5"], [("book a flight", "no agent can")], ["“this disk” is the root disk."])

    assert (
        text == "5 [1]\n\nNot answered:\n- book a flight (no agent can)\n\nThis assumes: “this disk” is the root disk."
    )


def test_answer_without_results_says_so() -> None:
    assert compose_answer([], [("book a flight", "no agent can")]).startswith("I couldn't get a result")


def test_long_results_are_shortened() -> None:
    assert len(compose_answer(["word " * 5_000])) < 1_500


def alone(task: str, state: object) -> str:
    messages = prompt("generalist").fill(user_request=task, task_id="t1", task=task, state_context=json.dumps(state))
    return answer(ModelRequest(ModelRole.REASONING, messages)).content


def test_question_without_tools_is_declined() -> None:
    assert "No language model is configured" in alone("what is the capital of France?", {})


def test_earlier_results_answer_a_task_without_tools() -> None:
    assert alone("summarize the load", {"results": {"t1": '{"load": 0.5}'}}) == "load: 0.5"
