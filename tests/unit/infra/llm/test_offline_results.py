"""Reviews approve results about all that the task names, and nothing else; answers cite the results."""

import pytest

from brain.prompts import prompt
from starling.core.llm import ModelRequest, ModelRole
from tests.support.offline_requests import Call, answer, compose_answer, review

TASK = "what time is it in Lima"
LIMA = '{"timezone": "America/Lima", "datetime": "2026-11-20T05:00:14-05:00", "is_dst": false}'
LOG_TASK = "list the last 3 commits of /srv/app"


def now(result: str, zone: str = "America/Lima") -> list[Call]:
    return [("time.get_current_time", {"timezone": zone}, result, "succeeded")]


def one(name: str, result: str, status: str = "succeeded", **arguments: object) -> list[Call]:
    return [(name, arguments, result, status)]


FITTING: list[tuple[str, list[Call]]] = [
    (TASK, now(LIMA)),
    (TASK, one("x.clock_now", "05:00", zone="America/Lima")),
    (LOG_TASK, one("git.git_log", "Commit: 1\nMessage: input not found", repo_path="/srv/app", max_count=3)),
    ("how full is this disk?", one("s.disk", '{"path": "/", "percent": 22.6}')),
    ("What is the sum of 2 and 3?", one("e.get-sum", "The sum of 2 and 3 is 5.", a=2, b=3)),
    ('delete the entity "Alice"', one("m.delete_entities", "Entities deleted", names=["Alice"])),
    (
        "convert 9:15 from UTC to Lima",
        one("t.convert", '{"a": "UTC", "b": "America/Lima"}', source="UTC", time="09:15", target="America/Lima"),
    ),
    ("Please commit /r", one("g.git_commit", "Changes committed", repo_path="/r")),
    ('Search the books for "dragons"', one("s.search", "", words="dragons")),
    ('Search the books for "dragons"', one("s.search", "[]", words="dragons")),
    (TASK, [*one("time.get_current_time", "Error: no zone Lima", "failed", timezone="Lima"), *now(LIMA)]),
]
WRONG: list[tuple[str, list[Call], str]] = [
    (TASK, now(LIMA.replace("America/Lima", "Europe/London"), "Europe/London"), "Lima"),
    (TASK, now("Error executing tool get_current_time: Invalid timezone"), "error"),
    (TASK, now('{"isError": true, "message": "x"}'), "error"),
    (f"{TASK} and Tokyo", now(LIMA), "Tokyo"),
    (f"{TASK} at 16:30", now(LIMA), "16:30"),
    (LOG_TASK, one("g.git_log", "Commit: 1", repo_path="/srv/app", max_count=5), "3"),
    (LOG_TASK, one("g.git_log", "Commit: 1", repo_path="/other", max_count=3), "/srv/app"),
    (LOG_TASK, one("g.git_log", "fatal: not a repository", "failed", repo_path="/srv/app", max_count=3), "failed"),
    ('delete the entity "Alice"', one("m.delete", "Entities deleted", names=["Bob"]), "Alice"),
]


@pytest.mark.parametrize(("task", "made"), FITTING)
def test_result_about_all_that_the_task_names_is_approved(task: str, made: list[Call]) -> None:
    verdict = review(task, made, made[-1][2])

    assert verdict.status == "APPROVED", verdict.reasons
    assert all(passage in made[-1][2] for passage in verdict.evidence)


@pytest.mark.parametrize(("task", "made", "named"), WRONG)
def test_wrong_result_is_rejected_with_what_is_wrong(task: str, made: list[Call], named: str) -> None:
    verdict = review(task, made)

    assert verdict.status == "REJECTED"
    assert named in " ".join(verdict.reasons)


def test_output_without_calls_is_rejected() -> None:
    assert review("what is the capital of France?", [], "Paris", "generalist").status == "REJECTED"


def test_json_results_are_listed_as_text_with_citations() -> None:
    text = compose_answer([LIMA, '{"path": "/", "none": null, "sizes": [1, 2.5], "a": {"b_c": "d"}}'])

    assert text == (
        "- timezone: America/Lima; datetime: 2026-11-20T05:00:14-05:00; is dst: no [1]\n"
        "- path: /; none: none; sizes: 1; sizes: 2.5; a b c: d [2]"
    )


def test_answer_names_degraded_parts() -> None:
    text = compose_answer(["5"], [("book a flight", "no agent can")])

    assert text == "5 [1]\n\nNot answered:\n- book a flight (no agent can)"


def test_long_results_are_shortened() -> None:
    assert len(compose_answer(["word " * 5_000])) < 1_300


def test_task_without_tools_is_declined() -> None:
    messages = prompt("generalist").fill(user_request="x", task_id="t1", task="x", state_context="{}")

    assert "no language model is configured" in answer(ModelRequest(ModelRole.REASONING, messages)).content
