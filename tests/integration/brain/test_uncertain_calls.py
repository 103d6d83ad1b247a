"""Calls that may have been done: not made again in their run, and named in its answer."""

import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from psycopg import AsyncConnection

from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.ledger import LedgerReader
from tests.integration.brain.conftest import Open
from tests.support.effect_recorder import AGENT, EffectRecorder
from tests.support.gateway_harness import SERVERS, free_port
from tests.support.interrupted_runs import answer_interrupts, execute_run, open_interrupts
from tests.support.model_script import Answer
from tests.support.platform import Platform, ScriptedModel, calls, decision, listens, task, verdict

UNUSABLE = [("invoice", "plain"), ("charge", "malformed"), ("charge", "internal")]  # the first breaks its output schema


@pytest.fixture
async def platform(opened: Open, effects: EffectRecorder) -> AsyncGenerator[Platform]:
    async with opened(servers={"effects": effects.as_server()}) as platform:
        yield platform


async def states(platform: Platform, key: RunKey) -> list[str]:
    return [str(row.state) for row in await LedgerReader(platform.services.storage.engine).calls(key)]


async def degraded(platform: Platform, key: RunKey) -> str:
    """Return what the result says about parts that couldn't be had."""
    return " ".join(f"{part.part} {part.reason}" for part in (await platform.result(key)).degraded)


@pytest.mark.parametrize(("tool", "spoilt"), UNUSABLE)
async def test_unsafe_call_with_an_unusable_result_is_made_once_and_named_in_the_answer(
    platform: Platform, script: ScriptedModel, effects: EffectRecorder, tool: str, spoilt: str
) -> None:
    script.supervisor(decision(task("t1", AGENT)), decision(task("t2", AGENT, "do it")), decision())
    for name in ("t1", "t2"):
        script.agent(name, calls((tool, {"what": "a", "answer": spoilt})))

    stream = await platform.ask("Do it.")

    first, *repeats = await states(platform, stream.key)
    assert effects.done() == [f"{tool} a"]
    assert (first, repeats) == ("unusable", ["failed"] * 3)
    assert stream.of("tool_result")[0]["state"] == "unusable"
    assert stream.of("in_doubt") == []
    assert "may have been done" in await degraded(platform, stream.key)
    assert "may have been done" in stream.reply


async def test_repeat_of_an_unusable_call_is_refused_after_a_resume(
    platform: Platform, script: ScriptedModel, effects: EffectRecorder
) -> None:
    wanted = calls(("invoice", {"what": "a"}))
    script.supervisor(decision(task("t1", AGENT)), decision())
    script.agent("t1", wanted, Answer("", hold="for ever"), wanted)
    key = await platform.accept("Do it.")
    async with platform.executing(key):
        await platform.model.received(3)

    stream = await platform.finish(key)

    assert effects.done() == ["invoice a"]
    assert (await states(platform, key))[:2] == ["unusable", "failed"]
    assert (
        "was called with the same arguments before in this run (call t1.0.0)" in stream.of("tool_result")[1]["result"]
    )


async def test_uncertain_call_of_an_approved_task_is_named_and_other_arguments_are_not_refused(
    platform: Platform, script: ScriptedModel, effects: EffectRecorder
) -> None:
    script.supervisor(decision(task("t1", AGENT)), decision())
    script.agent(
        "t1", calls(("invoice", {"what": "a"}), ("continue", {})), calls(("invoice", {"what": "b", "answer": "number"}))
    )
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("Invoiced [1]."))

    stream = await platform.ask("Do it.")

    assert stream.status == "succeeded"
    assert effects.done() == ["invoice a", "invoice b"]
    assert 'whether effects.invoice {"what":"a"} (call t1.0.0) was done' in await degraded(platform, stream.key)


async def test_call_that_a_reconcile_tool_found_done_succeeds_and_is_not_made_again(
    opened: Open, script: ScriptedModel, effects: EffectRecorder
) -> None:
    script.supervisor(decision(task("t1", AGENT)), decision())
    script.agent("t1", calls(("charge", {"what": "a", "answer": "internal"})))
    script.reviewer(verdict("REJECTED", "Again."))
    async with opened(servers={"effects": effects.as_server(reconcile=True)}) as platform:
        stream = await platform.ask("Do it.")
        first, *repeats = await states(platform, stream.key)

    assert effects.done() == ["charge a"]
    assert (first, set(repeats)) == ("succeeded", {"reused"})
    assert "[Its own answer can't be used; effects.find_charge says this.]" in stream.of("tool_result")[0]["result"]
    assert "effects.find_charge says this." in stream.of("tool_result")[1]["result"]


async def test_call_that_a_reconcile_tool_found_not_done_has_failed_and_may_be_made_again(
    opened: Open, script: ScriptedModel, effects: EffectRecorder
) -> None:
    script.supervisor(decision(task("t1", AGENT)), decision())
    script.agent("t1", calls(("charge", {"what": "a", "answer": "refuse"})))
    async with opened(servers={"effects": effects.as_server(reconcile=True)}) as platform:
        stream = await platform.ask("Do it.")
        found, parts = await states(platform, stream.key), await degraded(platform, stream.key)

    made = [line for line in effects.lines("arrived") if line["tool"] == "charge"]
    assert (len(made), set(found), effects.done()) == (len(found), {"failed"}, [])
    assert len(found) > 1
    assert "(call t1.0.0)" not in parts


async def test_idempotent_call_that_timed_out_is_repeated_under_the_same_key(
    opened: Open, script: ScriptedModel, effects: EffectRecorder
) -> None:
    script.supervisor(decision(task("t1", AGENT)), decision())
    script.agent("t1", calls(("pay", {"what": "a", "stall": "after", "gate": "gate"})))
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("Paid [1]."))
    async with opened(servers={"effects": effects.as_server(timeout=2)}) as platform:
        key = await platform.accept("Do it.")
        async with platform.executing(key) as run:
            await effects.until("arrived", "a", 2)
            effects.open("gate")
            await run
        stream = await platform.stream(key)
        found = await LedgerReader(platform.services.storage.engine).calls(key)
        parts = await degraded(platform, key)

    assert effects.done() == ["pay a"]
    assert {line["key"] for line in effects.lines("arrived")} == {found[0].sent_key}
    assert [(row.state, row.sent_key) for row in found] == [
        ("in_doubt", found[0].sent_key),
        ("succeeded", found[0].sent_key),
    ]
    assert (stream.status, stream.of("in_doubt"), parts) == ("succeeded", [], "")


async def test_idempotent_call_that_never_answers_is_named_in_the_answer_and_repeated_under_its_key(
    opened: Open, script: ScriptedModel, effects: EffectRecorder
) -> None:
    wanted = calls(("pay", {"what": "a", "stall": "after", "gate": "gate"}))
    script.supervisor(decision(task("t1", AGENT)), decision(task("t2", AGENT, "do it")), decision())
    script.agent("t1", wanted, wanted, Answer("I can't."))
    script.agent("t2", wanted)
    async with opened(servers={"effects": effects.as_server(timeout=2)}) as platform:
        stream = await platform.ask("Do it.")
        found = await states(platform, stream.key)
        parts = await degraded(platform, stream.key)

    assert effects.done() == ["pay a"]
    assert len({line["key"] for line in effects.lines("arrived")}) == 1
    assert set(found) == {"in_doubt"}
    assert "effects.pay" in parts
    assert "may have been done" in parts
    assert "may have been done" in stream.reply


async def test_idempotent_call_of_the_former_version_is_repeated_under_the_key_that_was_sent(
    platform: Platform, script: ScriptedModel, effects: EffectRecorder, database_url: str
) -> None:
    wanted = calls(("put", {"what": "a", "stall": "after", "gate": "gate"}))
    script.supervisor(decision(task("t1", AGENT)), decision())
    script.agent("t1", wanted, wanted)
    script.reviewer(verdict("REJECTED", "Again."), verdict("APPROVED"))
    script.qa(Answer("Put [1]."))
    key = await platform.accept("Do it.")
    async with platform.executing(key):
        await effects.until("done", "a")
    async with await AsyncConnection.connect(database_url, autocommit=True) as connection:
        await connection.execute("UPDATE ledger SET idempotency_key = NULL")
    effects.open("gate")

    stream = await platform.finish(key)

    first, second = await LedgerReader(platform.services.storage.engine).calls(key)
    _, *sent = [line["key"] for line in effects.lines("arrived")]
    assert (stream.status, sent) == ("succeeded", [first.key])
    assert (second.state, second.reused_key) == ("reused", first.key)


@contextmanager
def stateless_server(file: Path) -> Generator[dict[str, Any]]:
    """Run the server that answers calls with 404; give its entry under `mcpServers`."""
    port = free_port()
    process = subprocess.Popen([sys.executable, SERVERS / "stateless_http.py", file, str(port)])
    try:
        while not listens(port):
            assert process.poll() is None
            time.sleep(0.02)
        yield {"url": f"http://127.0.0.1:{port}/mcp"}
    finally:
        process.kill()
        process.wait()


async def test_http_404_without_a_session_id_leaves_an_unsafe_call_in_doubt(
    opened: Open, script: ScriptedModel, tmp_path: Path
) -> None:
    file = tmp_path / "calls"
    script.supervisor(decision(task("t1", "mcp_agent_stateless")), decision())
    script.agent("t1", calls(("charge", {"what": "a"})))
    with stateless_server(file) as server:
        async with opened(servers={"stateless": server}) as platform:
            key = await platform.accept("Do it.")
            await execute_run(platform, key)
            asked = [question.kind for question in await open_interrupts(platform, key)]
            found = await states(platform, key)
            await answer_interrupts(platform, key, resolution="give_up")
            stream = await platform.finish(key)

    assert file.read_text() == "charge\n"
    assert (asked, found) == (["in_doubt"], ["in_doubt"])
    assert "may have been done" in stream.reply


async def test_call_in_doubt_stays_in_doubt_when_its_server_was_removed(
    platform: Platform, script: ScriptedModel, effects: EffectRecorder
) -> None:
    held = calls(("charge", {"what": "a", "stall": "after", "gate": "gate"}))
    script.run(decision(task("t1", AGENT)), decision(), t1=[held])
    key = await platform.accept("Do it.")
    async with platform.executing(key):
        await effects.until("done", "a")
    await platform.worker_runtime.gateway.catalog.remove("effects")

    await execute_run(platform, key)

    (question,) = await open_interrupts(platform, key)
    assert question.kind == "in_doubt"
    assert "It had been called before that" in question.message
    assert "notDoneFrom" not in question.responseSchema
