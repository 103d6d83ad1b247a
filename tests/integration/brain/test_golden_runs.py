"""Runs that an earlier version left waiting go on after the upgrade, with the prompts that they were begun with."""

import asyncio
import json
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any, Final

import alembic.command
import psycopg
import pytest
from alembic.config import Config
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import Connection

from starling.core.principal import DEFAULT_TENANT
from starling.infra.postgres.engine import open_engine
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.schema import migrations_folder, upgrade
from tests.conftest import DatabaseServer
from tests.integration.brain.conftest import Open
from tests.support.effect_recorder import AGENT, EffectRecorder
from tests.support.golden_runs import WORDING, load, servers
from tests.support.interrupted_runs import answer_interrupts, open_interrupts
from tests.support.model_script import Answer
from tests.support.platform import Platform, RunStream, ScriptedModel, calls, decision, task, verdict

RUNS: Final = Path(__file__).parents[2] / "data" / "golden_runs" / "fc8e73e7.jsonl"
REVISION: Final = "0019"
YES: Final = {"approved": True}
ANSWER: Final = "They are charged [1]."


def _migrate(connection: Connection) -> None:
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(migrations_folder()))
    alembic.command.upgrade(config, REVISION)


async def _upgraded(url: str) -> None:
    """Give a database the schema and the rows of the recorded version, then upgrade it."""
    engine = open_engine(url)
    async with engine.begin() as connection:
        await connection.run_sync(_migrate)
    await engine.dispose()
    with psycopg.connect(url) as session:
        load(session, RUNS)
    await upgrade(url)


@pytest.fixture(scope="module")
def upgraded(database_server: DatabaseServer) -> Generator[str]:
    """What creates a copy of the recorded database, upgraded to the schema of this version."""
    with database_server.database() as url:
        asyncio.run(_upgraded(url))
        yield f"TEMPLATE {conninfo_to_dict(url)['dbname']} STRATEGY FILE_COPY"


@pytest.fixture
def database_url(database_server: DatabaseServer, upgraded: str) -> Generator[str]:
    with database_server.database(upgraded) as url:
        yield url


@pytest.fixture
async def platform(opened: Open, effects: EffectRecorder) -> AsyncGenerator[Platform]:
    async with opened(servers=servers(effects)) as platform:
        yield platform


def run_of(thread: str) -> RunKey:
    """Return the key of the recorded run on a thread."""
    recorded = map(json.loads, RUNS.read_text("utf-8").splitlines())
    (found,) = (line["row"] for line in recorded if line["table"] == "runs" and line["row"]["thread_id"] == thread)
    return RunKey(DEFAULT_TENANT, found["id"])


async def resumed(platform: Platform, script: ScriptedModel, thread: str, **payload: Any) -> RunStream:
    """Answer the question of a recorded run, and execute it to its end."""
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer(ANSWER))
    key = run_of(thread)
    await answer_interrupts(platform, key, **payload)
    stream = await platform.finish(key)
    assert (stream.status, stream.reply, stream.codes) == ("succeeded", ANSWER, [])
    assert all(WORDING in body["messages"][0]["content"] for body in platform.model.bodies)
    return stream


@pytest.mark.parametrize(
    ("thread", "done"),
    [
        ("first_attempt", ["charge a"]),
        ("equal_call", []),  # what the first attempt did, which the recorded version's server has done
        ("other_call", ["charge d"]),
        ("team", ["charge f"]),
    ],
)
async def test_approved_call_of_a_run_of_an_earlier_version_is_made_once(
    platform: Platform, script: ScriptedModel, effects: EffectRecorder, thread: str, done: list[str]
) -> None:
    stream = await resumed(platform, script, thread, **YES)

    assert effects.done() == done
    reviewed_by_two = thread == "team"
    assert len(platform.model.bodies) == (4 if reviewed_by_two else 2)
    assert await open_interrupts(platform, stream.key) == []


async def test_question_of_an_earlier_version_is_answered_after_the_upgrade(
    platform: Platform, script: ScriptedModel, effects: EffectRecorder
) -> None:
    script.supervisor(decision(task("t1", AGENT)))
    script.agent("t1", calls(("read_it", {"what": "e"})))

    await resumed(platform, script, "clarification", answer="Both.")

    assert effects.done() == ["read_it e"]
    assert platform.requests_containing("Both.")


async def test_call_of_an_earlier_version_in_doubt_is_not_made_again_once_somebody_said_that_it_was_done(
    platform: Platform, script: ScriptedModel, effects: EffectRecorder
) -> None:
    await resumed(platform, script, "in_doubt", resolution="done", result="They are charged.")

    assert effects.done() == []


async def test_diverged_plan_of_an_earlier_version_ends_with_its_reason_and_what_would_help(
    platform: Platform, database_url: str
) -> None:
    key = run_of("clarification")
    await answer_interrupts(platform, key, answer="Both.")
    async with await psycopg.AsyncConnection.connect(database_url) as connection:
        await connection.execute("UPDATE journal SET request_hash = 'other' WHERE run_id = %s", (key.id,))

    stream = await platform.finish(key)

    assert (stream.status, stream.codes) == ("failed", ["journal_diverged"])
    assert "The wording, the tools or the settings of this run have changed" in stream.reply
    assert "What would help: a new request" in stream.reply
