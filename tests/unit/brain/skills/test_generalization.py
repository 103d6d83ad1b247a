"""What of a solved task becomes a slot, and what stays."""

from typing import Any

import pytest

from brain.skills.generalization import MadeCall, TaskTexts, for_task, generalized, hiding_secrets, is_too_long
from brain.skills.skill import PromptSkill

LIMA = "America/Lima"


def unchanged(text: str) -> str:
    return text


def slot(name: str, source: str, example: object) -> dict[str, object]:
    return {"slot": name, "from": source, "example": example}


@pytest.mark.parametrize(
    ("task", "arguments", "template", "found"),
    [
        ("Look at the left disk.", {"thing": "left disk"}, "Look at the {thing}.", slot("thing", "task", "left disk")),
        ("Which time is it in Lima?", {"zone": LIMA}, "Which time is it in {zone}?", slot("zone", "task", LIMA)),
        ("Show the last 5 commits.", {"count": 5}, "Show the last {count} commits.", slot("count", "task", 5)),
        ("Show 15 commits.", {"count": 5}, "Show 15 commits.", 5),
        ("Walk 1,000 m.", {"metres": 1000}, "Walk 1,000 m.", slot("metres", "task", 1000)),
        ("Take 15% of it.", {"share": 0.15}, "Take {share}% of it.", slot("share", "task", 0.15)),
        ("Weather for tomorrow.", {"day": "2026-11-23"}, "Weather for tomorrow.", slot("day", "task", "2026-11-23")),
        ("北京的天气怎么样", {"city": "北京"}, "{city}的天气怎么样", slot("city", "task", "北京")),
        ("付到账户5500。", {"to": 5500}, "付到账户{to}。", slot("to", "task", 5500)),
        ("List the files.", {"recursive": True}, "List the files.", True),
        ("List the files.", {"order": "name"}, "List the files.", "name"),
        ("Find it.", {"city": "Oslo"}, "Find it.", slot("city", "request", "Oslo")),
        ("Open it.", {"id": "a-17"}, "Open it.", slot("id", "result", "a-17")),
    ],
)  # fmt: skip
def test_value_is_a_slot_where_it_comes_from_a_text(
    task: str, arguments: dict[str, Any], template: str, found: object
) -> None:
    texts = TaskTexts(task, "What about Oslo?", ["the newest is a-17"])

    shown, calls = generalized(texts, [MadeCall("server.tool", arguments, "")], unchanged)

    assert shown == template
    assert list(calls[0].arguments.values()) == [found]


def test_value_of_an_earlier_call_is_a_slot_of_the_next_one() -> None:
    made = [MadeCall("mail.list", {}, "message 77"), MadeCall("mail.read", {"id": 77}, "Hello.")]

    _, calls = generalized(TaskTexts("Read my newest message.", ""), made, unchanged)

    assert calls[1].arguments == {"id": slot("id", "result", 77)}


def test_same_value_has_the_same_slot_and_another_one_its_own() -> None:
    made = [MadeCall("a.b", {"city": "Lima"}, ""), MadeCall("a.c", {"place": "Lima", "city": "Oslo"}, "")]

    template, calls = generalized(TaskTexts("Compare Lima and Oslo.", ""), made, unchanged)

    lima = slot("city", "task", "Lima")
    assert template == "Compare {city} and {city_2}."
    assert [call.arguments for call in calls] == [
        {"city": lima},
        {"place": lima, "city": slot("city_2", "task", "Oslo")},
    ]


def test_name_of_a_slot_is_never_replaced_in_a_template() -> None:
    made = [MadeCall("a.b", {"city": "Lima", "kind": "city"}, "")]

    template, _ = generalized(TaskTexts("Find the city Lima.", ""), made, unchanged)

    assert template == "Find the {kind} {city}."


@pytest.mark.parametrize(
    "arguments",
    [
        {"password": "hunter2secret"},
        {"headers": {"X-Api-Key": "hunter2secret"}},
        {"credentials": {"user": "bob", "value": "hunter2secret"}},
        {"cookie": "hunter2secret", "text": "hunter2secret"},
    ],
)
def test_secret_argument_is_hidden_everywhere(arguments: dict[str, Any]) -> None:
    made = [MadeCall("web.login", arguments, "")]
    texts = TaskTexts("Log in as bob with hunter2secret.", "My password is hunter2secret.")

    template, calls = generalized(texts, made, hiding_secrets(unchanged, made))

    assert "hunter2secret" not in f"{template} {calls}"


@pytest.mark.parametrize(
    ("known", "arguments", "task", "recalled"),
    [
        ("Restart it.", {}, "Restart it.", True),
        ("Restart it.", {}, "Restart it!", False),
        ("Restart it.", {"force": True}, "Restart it.", False),
        ("Restart it, force is true.", {"force": True}, "Restart it, force is true.", True),
        ("Restart it.", {"then": None, "note": "pay 77"}, "Restart it.", False),
        ("Add 5.", {"data": {"sum": 5}}, "Add 6.", True),
        ("Add 5.", {"data": {"pay_to_77": 5}}, "Add 6.", False),
        ("Add 5 to 5.", {"data": 5}, "Add 6 to 6.", True),
        ("Add 5 to 5.", {"data": 5}, "Add 6 to 7.", False),
        ("Add 5.", {"data": 5}, "Add all.", False),
        ("Switch the left lamp off.", {"lamp": "left lamp"}, "Switch the right fan off.", True),
        ("Write to राम now.", {"to": "राम"}, "Write to सीता now.", True),
        ("给北京转账5500元", {"to": "北京", "sum": 5500}, "给上海转账5511元", True),
        ("给北京转账5500元", {"to": "北京", "sum": 5500}, "给上海和转账5511元", False),
        ("Book it in Lima.", {"zone": LIMA}, "Book it in Oslo.", False),
        ("Log in.", {"password": "hunter2"}, "Log in.", False),
    ],
)  # fmt: skip
def test_skill_that_changes_something_is_recalled_if_the_task_is_equal_and_has_all_values(
    known: str, arguments: dict[str, Any], task: str, *, recalled: bool
) -> None:
    template, calls = generalized(TaskTexts(known, "Pay 77."), [MadeCall("a.b", arguments, "")], unchanged)
    skill = PromptSkill("1", template, calls, "")

    found = for_task(skill, known, task, {"a.b": {"properties": {key: {} for key in (*arguments, "sum")}}})

    assert (found is not None) == recalled
    assert "example" not in str(found)


def test_calls_with_many_or_long_arguments_are_too_long() -> None:
    assert not is_too_long([MadeCall("a.b", {"ids": list(range(50))}, "")])
    assert is_too_long([MadeCall("a.b", {"ids": list(range(51))}, "")])
    assert is_too_long([MadeCall("a.b", {"text": "x" * 5_000}, "")])
