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
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.ledger import LedgerReader
from tests.integration.brain.conftest import Open
from tests.support.gateway import SERVERS, python
from tests.support.mcp_servers.verbose import poem
from tests.support.model_script import Answer, Body
from tests.support.platform import ModelSays, Platform, Told, calls, decision, task, verdict
from tests.support.runs import waiting_for_a_lock
from tests.support.waiting import until_there

POET, LIMIT, LINES = "mcp_agent_poet", 1_000, 500
WHOLE = artifact_id(poem(LINES))
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


def one_task(says: ModelSays, *answers: Answer) -> None:
    says.supervisor(decision(task("t1", POET)))
    says.agent("t1", *answers)
    says.reviewer(verdict("APPROVED"))
    says.qa(Answer("That is it [1]."))


def offered(body: Body) -> set[str]:
    return {tool["function"]["name"] for tool in body.get("tools", ())}


def results(told: Told, name: str) -> list[str]:
    """Return what calls of a tool came to, in the order in which they were asked for."""
    found = sorted(told.of("tool_result"), key=lambda result: result["call_id"])
    return [result["result"] for result in found if result["name"] == name]


async def test_the_stream_names_the_artifact_of_a_call_and_of_its_task(platform: Platform, says: ModelSays) -> None:
    one_task(says, calls(RECITE, ("recite", {"lines": 2})))

    told = await platform.ask("Recite.")

    results = {result["call_id"]: result for result in told.of("tool_result")}
    assert {call: result["artifact"] for call, result in results.items()} == {"t1.0.0": WHOLE, "t1.0.1": None}
    assert WHOLE in results["t1.0.0"]["result"]
    assert told.of("task_result")[0]["artifacts"] == [WHOLE]
    content = await platform.services.artifacts.read(told.key.tenant, told.key.id, WHOLE)
    assert content.text == poem(LINES)


async def test_a_run_without_long_results_hears_nothing_of_artifacts(platform: Platform, says: ModelSays) -> None:
    one_task(says, calls(("recite", {"lines": 2})))

    told = await platform.ask("Recite.")

    assert told.of("task_result")[0]["artifacts"] == []
    assert all("read_artifact" not in offered(body) for body in platform.model.bodies)
    assert await platform.services.artifacts.of_run(told.key.tenant, told.key.id) == []


async def test_an_agent_reads_on_and_finds_in_what_was_cut(platform: Platform, says: ModelSays, said: Path) -> None:
    middle = {"artifact": WHOLE, "offset": 5_500, "length": 40}
    one_task(
        says,
        calls(RECITE, AGAIN),
        calls(("read_artifact", middle), ("read_artifact", {"find": "LINE 00499"}), AGAIN),
        calls(("read_artifact", {"artifact": WHOLE[:12], "offset": 10_900})),
    )

    told = await platform.ask("Recite.")

    part, place, last = results(told, "read_artifact")
    at = poem(LINES).index("line 00499")
    assert part.startswith(poem(LINES)[5_500:5_540])
    assert part.endswith(
        f"[characters 5500 to 5540 of {len(poem(LINES)):,} of artifact {WHOLE}; more from offset 5540]"
    )
    assert place.startswith(f"{at}: ")
    assert last.startswith(poem(LINES)[10_900:])
    assert last.endswith("; that is its end]")
    assert said.read_text().splitlines() == [f"recite {LINES}"]
    assert told.status == "succeeded"
    first, second, third = (body for body in platform.model.bodies if "continue" in offered(body))
    assert "read_artifact" not in offered(first)
    assert "read_artifact" in offered(second) & offered(third)


async def test_a_part_is_never_longer_than_a_result_may_be(platform: Platform, says: ModelSays) -> None:
    one_task(says, calls(RECITE, AGAIN), calls(("read_artifact", {"length": 10**9}), ("read_artifact", {"find": "n"})))

    told = await platform.ask("Recite.")

    texts = results(told, "read_artifact")
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
async def test_what_cant_be_read_is_said_so(
    platform: Platform, says: ModelSays, arguments: dict[str, Any], code: str
) -> None:
    one_task(says, calls(RECITE, AGAIN), calls(("read_artifact", arguments)))

    told = await platform.ask("Recite.")

    assert code in results(told, "read_artifact")[0]


async def test_nobody_reads_what_is_another_runs(platform: Platform, says: ModelSays) -> None:
    one_task(says, calls(RECITE))
    await platform.ask("Recite.")
    says.rules.clear()
    one_task(says, calls(("recite", {"lines": 400}), AGAIN), calls(("read_artifact", {"artifact": WHOLE})))

    told = await platform.ask("Recite.", thread="another")

    assert "names none of the artifacts here" in results(told, "read_artifact")[0]


async def test_who_builds_on_a_result_is_told_of_its_artifact_and_reads_in_it(
    platform: Platform, says: ModelSays, said: Path
) -> None:
    says.supervisor(decision(task("t1", POET), task("t2", POET, after=["t1"]), task("t3", "generalist", after=["t1"])))
    says.agent("t1", calls(RECITE))
    says.agent("t2", calls(("read_artifact", {"find": "line 00321"})))
    says.agent("t3", Answer("A poem of many lines."))
    says.reviewer(verdict("APPROVED"))
    says.qa(Answer("Found it [1][2][3]."))

    told = await platform.ask("Recite, then find line 321.")

    (body,) = platform.asked('<task id="t2">do t2')[:1]
    assert "read_artifact" in offered(body)
    assert WHOLE in body["messages"][-1]["content"]
    assert '"from": "poet.recite"' in html.unescape(body["messages"][-1]["content"])
    assert results(told, "read_artifact")[0].startswith(f"{poem(LINES).index('line 00321')}: ")
    assert said.read_text().splitlines() == [f"recite {LINES}"]
    writer = next(body for body in platform.model.bodies if '<task id="t3">' in str(body["messages"]))
    assert offered(writer) == set()
    assert {item["task_id"]: item["artifacts"] for item in told.of("task_result")} == {
        "t1": [WHOLE],
        "t2": [],
        "t3": [],
    }


async def test_a_rejected_agent_reads_on_in_the_next_attempt(platform: Platform, says: ModelSays) -> None:
    says.supervisor(decision(task("t1", POET)))
    says.agent("t1", calls(RECITE), calls(("read_artifact", {"offset": 10_000})))
    says.reviewer(verdict("REJECTED", "The end is missing."), verdict("APPROVED"))
    says.qa(Answer("That is it [1]."))

    told = await platform.ask("Recite.")

    assert told.status == "succeeded"
    assert told.of("task_result")[0]["artifacts"] == [WHOLE]


async def test_a_life_that_ends_between_keeping_and_recording_doubles_nothing(
    platform: Platform, says: ModelSays, said: Path, database_url: str
) -> None:
    one_task(says, calls(("recite", {"lines": LINES, "gate": "gate"})))
    key = await platform.accept("Recite.")
    async with await AsyncConnection.connect(database_url) as other, platform.living(key) as life:
        await until_there(f"recite {LINES}", lambda: said.read_text().splitlines() if said.exists() else ())
        await other.execute("SELECT FROM runs FOR UPDATE")  # nothing of the run can be written down
        (said.parent / "gate").touch()
        await waiting_for_a_lock(database_url)
        assert len(await kept(platform, key)) == 1
        life.cancel()
        await asyncio.gather(life, return_exceptions=True)
        await other.rollback()

    told = await platform.finish(key)

    assert told.status == "succeeded"
    assert set(said.read_text().splitlines()) == {f"recite {LINES}"}  # a read may be made again
    assert [item.call_id for item in await kept(platform, key)] == ["t1.0.0"]
    assert [result["artifact"] for result in told.of("tool_result")] == [WHOLE]


async def test_a_change_whose_result_was_kept_is_replayed_with_it_and_asks_nobody(
    platform: Platform, says: ModelSays, said: Path
) -> None:
    one_task(says, calls(("write", {"lines": LINES}), AGAIN), calls(("read_artifact", {"offset": 5_000, "length": 30})))
    key = await platform.accept("Write.")
    async with platform.living(key):
        await seen(platform, key, "tool_result", 2)

    told = await platform.finish(key)

    (row,) = await LedgerReader(platform.services.engine).calls(key)
    assert row.outcome is not None
    assert (row.state, row.outcome["artifact"]) == ("succeeded", WHOLE)
    assert said.read_text().splitlines() == [f"write {LINES}"]
    assert told.status == "succeeded"
    assert [result["artifact"] for result in told.of("tool_result")] == [WHOLE, None]
    assert results(told, "read_artifact")[0].startswith(poem(LINES)[5_000:5_030])
    asked = [json.dumps(body["messages"]) for body in platform.model.bodies]
    assert len(asked) - len(set(asked)) <= 1  # what was being asked when the life ended


async def test_a_change_whose_result_cant_be_kept_is_made_once_and_succeeds(
    opened: Open, says: ModelSays, said: Path
) -> None:
    one_task(says, calls(("write", {"lines": LINES})))
    async with opened(servers=poet(said), tool_result_chars=LIMIT, tenant_artifact_bytes=0) as platform:
        told = await platform.ask("Write.")

        (row,) = await LedgerReader(platform.services.engine).calls(told.key)

    (result,) = told.of("tool_result")
    assert (told.status, row.state, result["artifact"]) == ("succeeded", "succeeded", None)
    assert "the rest wasn't kept: the tenant's quota is used up" in result["result"]
    assert said.read_text().splitlines() == [f"write {LINES}"]


async def test_the_reviewer_is_told_that_there_is_more(platform: Platform, says: ModelSays) -> None:
    one_task(says, calls(RECITE, ("recite", {"lines": 2})))

    await platform.ask("Recite.")

    (review,) = platform.asked("<tool_calls>")
    assert review["messages"][-1]["content"].count(f'shown="the beginning of {len(poem(LINES)):,} characters"') == 1


async def kept(platform: Platform, key: RunKey) -> list[Any]:
    return list(await platform.services.artifacts.of_run(key.tenant, key.id))


async def seen(platform: Platform, key: RunKey, kind: str, count: int) -> None:
    async for event in platform.services.reader.follow(key):
        count -= event.type == kind
        if count == 0:
            return
