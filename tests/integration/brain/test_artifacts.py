"""Runs whose results are too long for a model: the whole is kept once, named, and read on in."""

import asyncio
import html
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from psycopg import AsyncConnection

from starling.core.artifacts import artifact_id
from starling.infra.postgres.engine import execute_autocommit
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.ledger import LedgerReader
from tests.integration.brain.conftest import Open
from tests.support.gateway_harness import SERVERS, python
from tests.support.interrupted_runs import wait_for_event, wait_until_noted
from tests.support.mcp_servers.verbose import picture, poem
from tests.support.model_script import Answer, Body
from tests.support.platform import Platform, RunStream, ScriptedModel, calls, decision, task, verdict
from tests.support.run_factories import wait_for_lock_waiter

POET, LIMIT, LINES = "mcp_agent_poet", 1_000, 500
WHOLE = artifact_id(poem(LINES).encode())
RECITE = ("recite", {"lines": LINES})
AGAIN = ("continue", dict[str, Any]())


@pytest.fixture
def said(tmp_path: Path) -> Path:
    """The file in which the server notes its calls."""
    return tmp_path / "said"


@pytest.fixture
async def platform(opened: Open, said: Path) -> AsyncGenerator[Platform]:
    async with opened(servers=poet(said), tool_result_chars=LIMIT) as platform:
        yield platform


def poet(said: Path) -> dict[str, Any]:
    config = python(SERVERS / "verbose.py", str(said), effect="read", tools={"write": {"effect": "unsafe"}})
    return {"poet": config.model_dump(mode="json", by_alias=True, exclude_defaults=True)}


def one_task(script: ScriptedModel, *answers: Answer) -> None:
    script.run(decision(task("t1", POET)), t1=[*answers], qa=Answer("That is it [1]."))


def offered(body: Body) -> set[str]:
    return {tool["function"]["name"] for tool in body.get("tools", ())}


def results(stream: RunStream, name: str) -> list[str]:
    """Return what calls of a tool came to, in the order in which they were asked for."""
    found = sorted(stream.of("tool_result"), key=lambda result: result["call_id"])
    return [result["result"] for result in found if result["name"] == name]


async def test_events_of_call_and_task_name_the_artifact(platform: Platform, script: ScriptedModel) -> None:
    one_task(script, calls(RECITE, ("recite", {"lines": 2})))

    stream = await platform.ask("Recite.")

    results = {result["call_id"]: result for result in stream.of("tool_result")}
    assert {call: result["artifact"] for call, result in results.items()} == {"t1.0.0": WHOLE, "t1.0.1": None}
    assert WHOLE in results["t1.0.0"]["result"]
    assert stream.of("task_result")[0]["artifacts"] == [WHOLE]
    content = await platform.services.storage.artifacts.read(stream.key.tenant, stream.key.id, WHOLE)
    assert content.content.decode() == poem(LINES)


async def test_answer_is_checked_against_the_whole_of_a_long_result_and_cites_it(
    platform: Platform, script: ScriptedModel
) -> None:
    script.run(decision(task("t1", POET)), t1=calls(RECITE), qa=Answer("Line 00377 is the best [1], not “line 00777”."))

    stream = await platform.ask("Recite.")

    assert stream.reply.startswith("Line 00377 is the best [1], not “line 00777” [?].\n\nRead in part: do t1")
    [source] = stream.done["citations"]
    assert source["calls"] == [{"call_id": "t1.0.0", "tool": "poet.recite", "artifact": WHOLE}]
    [excerpt] = source["excerpts"]
    content = await platform.services.storage.artifacts.read(stream.key.tenant, stream.key.id, excerpt["artifact"])
    assert content.content.decode()[excerpt["start"] : excerpt["end"]] == excerpt["text"] == "line 00377: and so on"


async def test_document_of_a_run_says_when_its_artifacts_are_no_longer_kept(
    platform: Platform, script: ScriptedModel
) -> None:
    one_task(script, calls(RECITE))
    stream = await platform.ask("Recite.")
    kept = await platform.services.runs.documents.read(stream.key)
    await execute_autocommit(platform.services.storage.engine, "DELETE FROM run_artifacts RETURNING 1", {})

    lost = await platform.services.runs.documents.read(stream.key)

    assert kept.pruned == ()
    assert [(one.what, WHOLE in one.text) for one in lost.pruned] == [("artifacts", True)]


async def test_run_without_long_results_has_no_artifact_and_no_artifact_tool(
    platform: Platform, script: ScriptedModel
) -> None:
    one_task(script, calls(("recite", {"lines": 2})))

    stream = await platform.ask("Recite.")

    assert stream.of("task_result")[0]["artifacts"] == []
    assert all("read_artifact" not in offered(body) for body in platform.model.bodies)
    assert await platform.services.storage.artifacts.of_run(stream.key.tenant, stream.key.id) == []


async def test_agent_reads_and_searches_the_rest_of_a_cut_result(
    platform: Platform, script: ScriptedModel, said: Path
) -> None:
    middle = {"artifact": WHOLE, "offset": 5_500, "length": 40}
    one_task(
        script,
        calls(RECITE, AGAIN),
        calls(("read_artifact", middle), ("read_artifact", {"find": "LINE 00499"}), AGAIN),
        calls(("read_artifact", {"artifact": WHOLE[:12], "offset": 10_900})),
    )

    stream = await platform.ask("Recite.")

    part, place, last = results(stream, "read_artifact")
    at = poem(LINES).index("line 00499")
    assert part.startswith(poem(LINES)[5_500:5_540])
    assert part.endswith(
        f"[characters 5500 to 5540 of {len(poem(LINES)):,} of artifact {WHOLE}; more from offset 5540]"
    )
    assert place.startswith(f"{at}: ")
    assert last.startswith(poem(LINES)[10_900:])
    assert last.endswith("; that is its end]")
    assert said.read_text().splitlines() == [f"recite {LINES}"]
    assert stream.status == "succeeded"
    first, second, third = (body for body in platform.model.bodies if "continue" in offered(body))
    assert "read_artifact" not in offered(first)
    assert "read_artifact" in offered(second) & offered(third)


async def test_read_part_of_an_artifact_is_at_most_as_long_as_a_result_may_be(
    platform: Platform, script: ScriptedModel
) -> None:
    one_task(
        script, calls(RECITE, AGAIN), calls(("read_artifact", {"length": 10**9}), ("read_artifact", {"find": "n"}))
    )

    stream = await platform.ask("Recite.")

    texts = results(stream, "read_artifact")
    assert len(texts) == 2
    assert all(len(text) <= LIMIT for text in texts)
    assert "; more from offset 800]" in texts[0]
    assert "[more from offset " in texts[1]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"artifact": "0" * 64}, "names none of the artifacts here"),
        ({"artifact": WHOLE[:4]}, "names none of the artifacts here"),
        ({"offset": -1}, "don't fit read_artifact: offset"),
        ({"file": "/etc/passwd"}, "don't fit read_artifact: file"),
        ({"offset": 10**9}, "nothing begins at"),
        ({"find": "no such line"}, "isn't in artifact"),
    ],
)
async def test_invalid_read_of_an_artifact_fails_with_the_reason(
    platform: Platform, script: ScriptedModel, arguments: dict[str, Any], code: str
) -> None:
    one_task(script, calls(RECITE, AGAIN), calls(("read_artifact", arguments)))

    stream = await platform.ask("Recite.")

    assert code in results(stream, "read_artifact")[0]


async def test_artifact_of_another_run_cannot_be_read(platform: Platform, script: ScriptedModel) -> None:
    one_task(script, calls(RECITE))
    await platform.ask("Recite.")
    script.rules.clear()
    one_task(script, calls(("recite", {"lines": 400}), AGAIN), calls(("read_artifact", {"artifact": WHOLE})))

    stream = await platform.ask("Recite.", thread="another")

    assert "names none of the artifacts here" in results(stream, "read_artifact")[0]


async def test_image_is_an_artifact_of_its_task_that_no_agent_reads(platform: Platform, script: ScriptedModel) -> None:
    image = artifact_id(picture(9))
    one_task(
        script,
        calls(("draw", {"lines": 9}), AGAIN),
        calls(RECITE, AGAIN),
        calls(("read_artifact", {"artifact": image}), ("read_artifact", {"find": "line 00321"})),
    )

    stream = await platform.ask("Draw and recite.")

    refused, found = results(stream, "read_artifact")
    assert refused == f"Artifact {image} of poet.draw is binary: it has no text to read."
    assert found.startswith(f"{poem(LINES).index('line 00321')}: ")
    assert stream.of("task_result")[0]["artifacts"] == [image, WHOLE]
    offers = ["read_artifact" in offered(body) for body in platform.model.bodies if "continue" in offered(body)]
    assert offers == [False, False, True]


async def test_dependent_task_is_given_the_artifact_of_the_result_and_reads_it(
    platform: Platform, script: ScriptedModel, said: Path
) -> None:
    script.run(
        decision(task("t1", POET), task("t2", POET, after=["t1"]), task("t3", "generalist", after=["t1"])),
        t1=calls(RECITE),
        t2=calls(("read_artifact", {"find": "line 00321"})),
        t3=Answer("A poem of many lines."),
        qa=Answer("Found it [1][2][3]."),
    )

    stream = await platform.ask("Recite, then find line 321.")

    (body,) = platform.requests_containing('<task id="t2">do t2')[:1]
    assert "read_artifact" in offered(body)
    assert WHOLE in body["messages"][-1]["content"]
    assert '"from": "poet.recite"' in html.unescape(body["messages"][-1]["content"])
    assert results(stream, "read_artifact")[0].startswith(f"{poem(LINES).index('line 00321')}: ")
    assert said.read_text().splitlines() == [f"recite {LINES}"]
    writer = next(body for body in platform.model.bodies if '<task id="t3">' in str(body["messages"]))
    assert offered(writer) == set()
    assert {item["task_id"]: item["artifacts"] for item in stream.of("task_result")} == {
        "t1": [WHOLE],
        "t2": [],
        "t3": [],
    }


async def test_agent_reads_the_artifact_of_its_rejected_attempt(platform: Platform, script: ScriptedModel) -> None:
    script.supervisor(decision(task("t1", POET)))
    script.agent("t1", calls(RECITE), calls(("read_artifact", {"offset": 10_000})))
    script.reviewer(verdict("REJECTED", "The end is missing."), verdict("APPROVED"))
    script.qa(Answer("That is it [1]."))

    stream = await platform.ask("Recite.")

    assert stream.status == "succeeded"
    assert stream.of("task_result")[0]["artifacts"] == [WHOLE]


async def test_crash_after_storing_an_artifact_and_before_recording_its_call_stores_it_once(
    platform: Platform, script: ScriptedModel, said: Path, database_url: str
) -> None:
    one_task(script, calls(("recite", {"lines": LINES, "gate": "gate"})))
    key = await platform.accept("Recite.")
    async with await AsyncConnection.connect(database_url) as other, platform.executing(key) as life:
        await wait_until_noted(f"recite {LINES}", lambda: said.read_text().splitlines() if said.exists() else ())
        await other.execute("SELECT FROM runs FOR UPDATE")  # nothing of the run can be written down
        (said.parent / "gate").touch()
        await wait_for_lock_waiter(database_url)
        assert len(await kept(platform, key)) == 1
        life.cancel()
        await asyncio.gather(life, return_exceptions=True)
        await other.rollback()

    stream = await platform.finish(key)

    assert stream.status == "succeeded"
    assert set(said.read_text().splitlines()) == {f"recite {LINES}"}  # a read may be made again
    assert [item.call_id for item in await kept(platform, key)] == ["t1.0.0"]
    assert [result["artifact"] for result in stream.of("tool_result")] == [WHOLE]


async def test_recorded_unsafe_call_is_replayed_with_its_artifact_without_an_approval(
    platform: Platform, script: ScriptedModel, said: Path
) -> None:
    one_task(
        script, calls(("write", {"lines": LINES}), AGAIN), calls(("read_artifact", {"offset": 5_000, "length": 30}))
    )
    key = await platform.accept("Write.")
    async with platform.executing(key):
        await wait_for_event(platform, key, "tool_result", 2)

    stream = await platform.finish(key)

    (row,) = await LedgerReader(platform.services.storage.engine).calls(key)
    assert row.outcome is not None
    assert (row.state, row.outcome["artifact"]) == ("succeeded", WHOLE)
    assert said.read_text().splitlines() == [f"write {LINES}"]
    assert stream.status == "succeeded"
    assert [result["artifact"] for result in stream.of("tool_result")] == [WHOLE, None]
    assert results(stream, "read_artifact")[0].startswith(poem(LINES)[5_000:5_030])
    asked = [json.dumps(body["messages"]) for body in platform.model.bodies]
    assert len(asked) - len(set(asked)) <= 1  # what was being asked when the execution ended


async def test_unsafe_call_whose_result_cannot_be_stored_succeeds_and_is_made_once(
    opened: Open, script: ScriptedModel, said: Path
) -> None:
    one_task(script, calls(("write", {"lines": LINES})))
    async with opened(servers=poet(said), tool_result_chars=LIMIT, tenant_artifact_bytes=0) as platform:
        stream = await platform.ask("Write.")

        (row,) = await LedgerReader(platform.services.storage.engine).calls(stream.key)

    (result,) = stream.of("tool_result")
    assert (stream.status, row.state, result["artifact"]) == ("succeeded", "succeeded", None)
    assert "the rest wasn't kept: the tenant's quota is used up" in result["result"]
    assert said.read_text().splitlines() == [f"write {LINES}"]


async def kept(platform: Platform, key: RunKey) -> list[Any]:
    return list(await platform.services.storage.artifacts.of_run(key.tenant, key.id))
