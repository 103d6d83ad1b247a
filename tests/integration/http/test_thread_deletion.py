"""Deleting and pruning threads beside runs that are accepted, and with calls that may have been made."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from starling.core.conversation.openai_messages import UserMessage
from starling.core.ids import new_id
from starling.core.principal import DEFAULT_TENANT
from starling.infra.postgres.engine import Engine, changing, driver, fetch_autocommit
from starling.infra.postgres.runs.busy_thread_policy import take_turn
from tests.integration.http.conftest import LiveApi

pytestmark = pytest.mark.asyncio(loop_scope="module")

SAID: dict[str, Any] = {"t": "UserMessageState", "data": {"text": "Hi."}}
WAITERS = """
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'
AND query LIKE '%%hashtextextended%%'"""
IN_DOUBT = """
INSERT INTO ledger (tenant, run_id, key, path, position, index, tool, effect, arguments, state, correlation_id)
VALUES (%(tenant)s, %(run)s, 'key', 't1', 0, 0, 's.t', 'unsafe', '{}', 'in_doubt', 'c') RETURNING key"""
SETTLED = "UPDATE ledger SET settled_at = now() WHERE tenant = %(tenant)s AND run_id = %(run)s RETURNING key"


async def queued(engine: Engine, count: int) -> None:
    """Return once so many transactions wait for the lock of a thread."""
    async with asyncio.timeout(60):
        while await fetch_autocommit(engine, WAITERS, {}) != [(count,)]:
            pass


@pytest.mark.parametrize(
    ("named", "status"), [({}, 202), ({"branch": "main"}, 202), ({"branch": "other"}, 404)], ids=str
)
async def test_thread_that_a_run_begins_right_behind_its_deletion_can_be_shown_and_forked(
    api: LiveApi, named: Mapping[str, str], status: int
) -> None:
    thread, engine = new_id(), api.services.storage.engine
    path, run = f"/v1/threads/{thread}", {"input": "hello", "thread_id": thread, **named}
    await api.post(f"{path}/states", 201, json={"states": [SAID]})
    await api.post(f"{path}/fork", 201, json={"name": "other"})
    await api.post(f"{path}/checkout", json={"branch": "other"})

    async with changing(engine) as connection, asyncio.TaskGroup() as tasks:
        await take_turn(await driver(connection), {"tenant": DEFAULT_TENANT, "thread_id": thread})
        tasks.create_task(api.delete(path))
        await queued(engine, 1)
        tasks.create_task(api.post("/v1/runs", status, json=run))
        await queued(engine, 2)
        await connection.commit()

    if status == 404:
        await api.get(path, 404)
        return
    shown = await api.get(path)
    assert (shown["branch"], [branch["id"] for branch in shown["branches"]]) == ("main", ["main"])
    assert (await api.get(f"{path}/states"))["states"][0]["data"]["text"] == "hello"
    await api.post(f"{path}/fork", 201, json={"position": 0})


async def test_prune_and_delete_are_refused_until_a_call_in_doubt_is_settled(api: LiveApi) -> None:
    pruned, deleted = threads = new_id(), new_id()
    for thread in threads:
        run = (await api.ask("hello", thread))[0].data["run_id"]
        await fetch_autocommit(api.services.storage.engine, IN_DOUBT, {"tenant": DEFAULT_TENANT, "run": run})
    await api.post(f"/v1/threads/{pruned}/rewind", json={"position": 0})
    before = [await api.get(f"/v1/threads/{thread}") for thread in threads]

    refused = [await api.post(f"/v1/threads/{pruned}/prune", 409), await api.delete(f"/v1/threads/{deleted}", 409)]

    assert all("isn't known whether a call" in problem["detail"] for problem in refused)
    assert [await api.get(f"/v1/threads/{thread}") for thread in threads] == before
    for shown in before:
        run = (await api.get("/v1/runs", params={"thread_id": shown["id"]}))["runs"][0]["run_id"]
        await fetch_autocommit(api.services.storage.engine, SETTLED, {"tenant": DEFAULT_TENANT, "run": run})
    assert (await api.post(f"/v1/threads/{pruned}/prune"))["runs"] == 1
    assert (await api.delete(f"/v1/threads/{deleted}"))["runs"] == 1


async def test_thread_that_was_made_for_a_refused_request_stays_where_somebody_else_went_on_with_it(
    api: LiveApi,
) -> None:
    threads, message = api.services.threads, UserMessage(role="user", content="Hi.")
    kept, gone = new_id(), new_id()
    made = await threads.begin(DEFAULT_TENANT, kept, [message])
    alone = await threads.begin(DEFAULT_TENANT, gone, [message])
    assert made is not None
    assert alone is not None

    assert await threads.begin(DEFAULT_TENANT, kept, [message]) is None
    await api.post(f"/v1/threads/{kept}/states", 201, json={"states": [SAID]})
    await threads.changes.discard(DEFAULT_TENANT, kept, made.id, made.tip)
    await threads.changes.discard(DEFAULT_TENANT, gone, alone.id, alone.tip)

    assert len((await api.get(f"/v1/threads/{kept}/states"))["states"]) == 2
    await api.get(f"/v1/threads/{gone}", 404)
