"""What a run changed is in its last event, in its document, in its reply where that matters, and on the terminal."""

import asyncio
from typing import Any

import pytest

from tests.integration.effects.conftest import APPROVED, PIZZERIA, REJECTED, SLOW, Kitchen, ask_for
from tests.support.command_line import new_workspace
from tests.support.model_script import Answer
from tests.support.platform import decision, task
from tests.support.worker_runtime import running_worker

T1, T2 = task("t1", PIZZERIA), task("t2", PIZZERIA)
WORDS = Answer("It is ordered.")


def effect(what: str, call_id: str = "t1.0.0", name: str = "pizzeria.order", **fields: Any) -> dict[str, Any]:
    path = call_id.partition(".")[0]
    usual = {
        "task_id": path,
        "path": path,
        "effect": "unsafe",
        "state": "succeeded",
        "declared": True,
        "approved": True,
    }
    return {"call_id": call_id, "name": name, "args": {"what": what}, **usual, **fields}


LOST: dict[str, Any] = {
    "args": {"what": "salt", "answer": "lost"},
    "effect": "idempotent",
    "state": "in_doubt",
    "approved": False,
}
SPOILT: dict[str, Any] = {"args": {"what": "tofu", "answer": "malformed"}, "state": "unusable", "approved": False}


@pytest.mark.parametrize(
    ("answers", "verdicts", "of", "expected"),
    [
        ([ask_for("order tofu")], [REJECTED, APPROVED], PIZZERIA, [effect("tofu")]),
        ([ask_for("order tofu")], [REJECTED], PIZZERIA, [effect("tofu", approved=False)]),
        ([ask_for("order tofu"), ask_for("put milk")], [REJECTED, APPROVED], PIZZERIA,
         [effect("tofu"), effect("milk", "t1.1.0", "pizzeria.put", effect="idempotent")]),
        ([ask_for("say tofu")], [APPROVED], PIZZERIA, [effect("tofu", name="pizzeria.say", declared=False)]),
        ([ask_for("order tofu malformed"), WORDS], [REJECTED], PIZZERIA, [effect("tofu", **SPOILT)]),
        ([ask_for("put salt lost"), WORDS], [REJECTED], SLOW, [effect("salt", name="slow.put", **LOST)]),
        ([ask_for("order tofu fail"), ask_for("menu tofu", "peek tofu")], [APPROVED], PIZZERIA, []),
    ],
    ids=["approved", "rejected", "of all attempts", "undeclared", "unusable", "in doubt", "a failed call and reads"],
)  # fmt: skip
async def test_effects_of_all_attempts_are_in_the_last_event_and_the_document(
    kitchen: Kitchen, answers: list[Answer], verdicts: list[Answer], of: str, expected: list[dict[str, Any]]
) -> None:
    kitchen.plan(*answers, verdicts=verdicts, of=of)

    stream = await kitchen.run()

    document = await kitchen.read(f"/v1/runs/{stream.key.id}")
    assert stream.done.get("effects") == expected
    assert document["result"].get("effects") == expected


async def test_effects_of_a_run_that_is_resumed_without_time_left_come_from_the_ledger(kitchen: Kitchen) -> None:
    kitchen.plan(ask_for("order tofu"), verdicts=[Answer("", hold="for ever")])
    key = await kitchen.platform.accept("Get what is needed.")
    async with kitchen.platform.executing(key):
        await kitchen.platform.model.received(3)

    await kitchen.platform.brain.execute(await kitchen.platform.claim(key, run_seconds=0.001))

    assert (await kitchen.platform.stream(key)).done.get("effects") == [effect("tofu", approved=False)]


async def test_reused_call_is_shown_by_the_document_and_the_list_of_calls(kitchen: Kitchen) -> None:
    kitchen.plan(ask_for("order tofu"))

    stream = await kitchen.run()

    document = await kitchen.read(f"/v1/runs/{stream.key.id}?include=tasks,calls")
    listed = await kitchen.read(f"/v1/runs/{stream.key.id}/calls")
    shown = [call["state"] for attempt in document["tasks"][0]["attempts"] for call in attempt["calls"]]
    assert [call["state"] for call in listed["calls"]] == ["succeeded", "reused"]
    assert shown == ["succeeded", "reused"]


async def test_reply_names_the_effects_of_a_task_that_was_not_approved(kitchen: Kitchen) -> None:
    kitchen.script.supervisor(decision(T1, T2), decision())
    kitchen.script.agent("t1", ask_for("menu tofu"))
    kitchen.script.agent("t2", ask_for("order milk"))
    kitchen.script.reviewer(APPROVED, of="t1")
    kitchen.script.reviewer(REJECTED, of="t2")
    kitchen.script.qa(Answer("Tofu is on the menu [1]."))

    stream = await kitchen.run()

    assert stream.status == "succeeded"
    assert all(part in stream.reply for part in ("Tofu is on the menu", "pizzeria.order", "milk")), stream.reply


@pytest.mark.parametrize(("tool", "words"), [("order", "changed:"), ("say", "may have changed")])
async def test_terminal_shows_effects_below_the_answer(kitchen: Kitchen, tool: str, words: str) -> None:
    kitchen.plan(ask_for(f"{tool} tofu"), verdicts=[APPROVED])

    with new_workspace() as workspace:
        async with running_worker(kitchen.platform.worker_runtime.worker):
            done = await asyncio.to_thread(workspace.starling, "ask", "Order tofu.", "--url", kitchen.url)

    assert done.returncode == 0, done.stderr
    below = f"{done.stdout}\n{done.stderr}".partition("It is done [1].")[2].lower()
    _, found, named = below.partition(words)
    assert found, below
    assert f"pizzeria.{tool}" in named
    assert "tofu" in named
    assert ("may have changed" in below) == (tool == "say")
