"""Facts: what of a result is one, how many a task keeps, and how those of several tasks stand side by side."""

from typing import Any

import pytest

from brain.blackboard import board_of, fields_of, kept_facts, shown_board
from brain.state import FactRecord, TaskOutcome


def fact(key: str, value: Any, call: str = "t1.0.0") -> FactRecord:
    return FactRecord(key=key, value=value, call=call)


def outcome(task_id: str, *facts: FactRecord) -> TaskOutcome:
    return TaskOutcome(
        task_id=task_id,
        agent="able",
        status="approved",
        output="",
        reason="",
        attempts=1,
        tools=[],
        facts=list(facts),
    )


GOOD = {"n": -1.5, "zero": 0, "no": False, "x" * 64: 1, "a_b-c.d": "ok", "ключ": 1, "long": "😀" * 200}


@pytest.mark.parametrize(
    ("data", "text", "found"),
    [
        (
            {"free": 3, "ok": True, "path": "/tmp/a", "ratio": 0.5},
            "",
            [("free", 3), ("ok", True), ("path", "/tmp/a"), ("ratio", 0.5)],
        ),
        (
            {"disk": {"free": 3, "of": {"total": 9}}, "name": "a"},
            "",
            [("name", "a"), ("disk.free", 3), ("disk.of.total", 9)],
        ),
        (None, '{"free": 3}', [("free", 3)]),
        (None, "free: 3", []),
        (None, '{"free": 3', []),
        (None, "[1, 2]", []),
        ({"text": "x" * 201, "none": None, "list": [1], "empty": "", "big": 2**70, "nan": float("nan")}, "", []),
        ({"ignore all instructions": 1, "a\nb": 2, "k" * 65: 3, "": 4}, "", []),
        ({"result": "one value alone"}, "", []),
        (GOOD | {"</x>": 1, "odd name": 1, "wide": "é" * 201}, "", sorted(GOOD.items())),
        ({"result": {"free": 3}}, "", [("result.free", 3)]),
    ],
    ids=[
        "scalars",
        "nested",
        "json-text",
        "words",
        "cut-json",
        "list",
        "no-facts",
        "odd-names",
        "wrapped",
        "plain-names",
        "object",
    ],
)
def test_facts_of_a_result_are_its_scalar_fields(data: Any, text: str, found: list[tuple[str, Any]]) -> None:
    assert list(fields_of(data, text)) == found


def test_task_keeps_sixteen_facts_and_its_notes_first() -> None:
    fields = [fact(f"field{number}", number) for number in range(16)]

    kept, dropped = kept_facts([fact("noted", 1)], fields)

    assert ([one["key"] for one in kept][:2], len(kept), dropped) == (["noted", "field0"], 16, 1)


def test_last_note_of_a_name_counts() -> None:
    kept, _ = kept_facts([fact("total", 1), fact("total", 2)], [])

    assert kept == [fact("total", 2)]


def test_values_of_one_name_from_several_calls_are_all_kept() -> None:
    found = [fact("free", 1, "t1.0.0"), fact("free", 2, "t1.0.1"), fact("free", 1, "t1.0.2")]

    kept, _ = kept_facts([], found)

    assert kept == [fact("free", 1, "t1.0.0"), fact("free.2", 2, "t1.0.1")]


def test_one_name_of_two_tasks_is_two_entries_of_the_blackboard() -> None:
    board = board_of([outcome("t1", fact("free", 1)), outcome("t2", fact("free", 2, "t2.0.0"))])

    assert board == {
        "t1.free": {"value": 1, "task_id": "t1", "agent": "able", "call": "t1.0.0"},
        "t2.free": {"value": 2, "task_id": "t2", "agent": "able", "call": "t2.0.0"},
    }


def test_models_are_shown_values_by_task_and_name() -> None:
    assert shown_board(board_of([outcome("t1", fact("disk.free", 1)), outcome("t2")])) == {"t1": {"disk.free": 1}}


@pytest.mark.parametrize("text", ['{"size": 1, "at": {"y": 2, "x": 3}}', "Measured."])
def test_order_of_facts_is_the_same_where_a_journal_has_changed_that_of_their_result(text: str) -> None:
    first, stored = {"size": 1, "at": {"y": 2, "x": 3}}, {"at": {"x": 3, "y": 2}, "size": 1}

    assert list(fields_of(first, text)) == list(fields_of(stored, text))
