"""The status of each run that ends, as a score at Langfuse: once, whoever ended the run."""

from collections.abc import Mapping
from typing import Any

import pytest
from psycopg import AsyncConnection

from starling.core.ids import trace_id_of
from starling.infra.postgres.runs.acceptance import RunKey
from tests.integration.tracing.conftest import Open
from tests.support.otlp_collector import Collector
from tests.support.platform import ScriptedModel, decision

KEYS = {"langfuse_public_key": "pk-lf-1", "langfuse_secret_key": "sk-lf-secret"}
CANCELLED = [("run_failure", "cancelled"), ("run_status", "cancelled")]


def statuses(collector: Collector, key: RunKey) -> list[tuple[str, str]]:
    trace_id = trace_id_of(key.id)
    return sorted((score["name"], score["value"]) for score in collector.scores if score["traceId"] == trace_id)


async def unsent(url: str) -> int:
    async with await AsyncConnection.connect(url) as connection:
        row = await (await connection.execute("SELECT count(*) FROM unsent_status_scores")).fetchone()
        return row[0] if row else 0


async def test_run_that_was_cancelled_before_a_worker_had_it_sends_its_status(
    opened: Open, collector: Collector, database_url: str
) -> None:
    async with opened(**KEYS, langfuse_host=collector.url) as platform:
        key = await platform.accept("Hi.")
        await platform.services.runs.cancellation.cancel(key)

    assert statuses(collector, key) == CANCELLED
    assert collector.refused == []
    assert await unsent(database_url) == 0


async def test_run_that_was_cancelled_while_it_waited_for_an_answer_sends_its_status(
    opened: Open, script: ScriptedModel, collector: Collector
) -> None:
    script.supervisor(decision(question="Which disk?", options=["the first", "the second"]))

    async with opened(**KEYS, langfuse_host=collector.url) as platform:
        key = await platform.accept("How full is the disk?")
        await platform.brain.execute(await platform.claim(key))
        await platform.services.runs.cancellation.cancel(key)

    assert statuses(collector, key) == CANCELLED


async def test_run_that_a_process_without_langfuse_cancelled_has_its_status_sent_by_a_worker(
    opened: Open, collector: Collector
) -> None:
    async with opened() as platform:
        key = await platform.accept("Hi.")
        await platform.services.runs.cancellation.cancel(key)
    before = statuses(collector, key)

    async with opened(**KEYS, langfuse_host=collector.url):
        await collector.until(lambda found: statuses(found, key) == CANCELLED)

    assert before == []


async def test_run_that_ended_while_langfuse_was_away_has_its_status_sent_later(
    opened: Open, script: ScriptedModel, collector: Collector, database_url: str
) -> None:
    script.supervisor(decision(reply="Hello!"))
    async with opened(**KEYS, langfuse_host="http://127.0.0.1:9") as platform:
        key = (await platform.ask("Hi.")).key
    async with await AsyncConnection.connect(database_url) as connection:
        await connection.execute("UPDATE unsent_status_scores SET due_at = now()")  # the minute of its last delivery

    async with opened(**KEYS, langfuse_host=collector.url):
        await collector.until(lambda found: bool(found.scores))

    assert statuses(collector, key) == [("run_status", "succeeded")]
    assert await unsent(database_url) == 0


@pytest.mark.parametrize("tracing", [{}, {"otlp_endpoint": "http://127.0.0.1:9"}])
async def test_worker_without_langfuse_stores_nothing_to_send(
    opened: Open, script: ScriptedModel, database_url: str, tracing: Mapping[str, Any]
) -> None:
    script.supervisor(decision(reply="Hello!"))

    async with opened(**tracing) as platform:
        await platform.ask("Hi.")

    assert await unsent(database_url) == 0
