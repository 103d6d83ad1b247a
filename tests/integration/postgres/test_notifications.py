"""Notifications: one connection a process, and none sent while no other process listens."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from psycopg import AsyncConnection
from sqlalchemy.ext.asyncio import AsyncEngine

from starling.core.events import Thinking
from starling.infra.postgres.notifications import NotificationHub, open_hub
from starling.infra.postgres.runs.acceptance import RunRepository
from starling.infra.postgres.runs.broadcast import CHANNEL, Broadcast
from starling.infra.postgres.runs.leases import Leases
from starling.infra.postgres.runs.writer import RunWriter
from tests.support.run_factories import claimed, defer_nothing, new_run

SECONDS = 20


async def test_subscribers_of_several_channels_share_one_connection(database_url: str) -> None:
    async with asyncio.timeout(SECONDS), open_hub(database_url) as hub:
        first = hub.notices("one", at_least_every=60)
        second = hub.notices("two", at_least_every=60)
        assert await anext(first)
        assert await anext(second)
        await notify(database_url, "two")

        assert await anext(second)
        assert await connections(database_url) == 1


async def test_a_channel_without_notifications_yields_false_after_its_interval(database_url: str) -> None:
    async with asyncio.timeout(SECONDS), open_hub(database_url) as hub:
        notices = hub.notices("quiet", at_least_every=0.05)
        assert await anext(notices)

        assert not await anext(notices)


async def test_hub_is_notified_when_another_process_begins_to_listen(database_url: str) -> None:
    async with asyncio.timeout(SECONDS), open_hub(database_url) as hub:
        await until(lambda: not hub.has_peers)

        async with open_hub(database_url) as other:
            await until(lambda: hub.has_peers)
            assert other.has_peers


async def test_a_flush_sends_no_notification_while_no_other_process_listens(
    database_url: str, engine: AsyncEngine
) -> None:
    async with asyncio.timeout(SECONDS), open_hub(database_url) as hub, listener(database_url) as sent:
        await until(lambda: not hub.has_peers)
        writer = await running_writer(engine, hub)
        writer.emit(Thinking(content="unheard", message_id="m"))
        await writer.flush()

        async with open_hub(database_url):
            await until(lambda: hub.has_peers)
            writer.emit(Thinking(content="heard", message_id="m"))
            await writer.flush()
            notice = await anext(sent.notifies())
        await writer.close()

    assert notice.payload == f"{writer.run.id}:3"


@asynccontextmanager
async def listener(url: str) -> AsyncGenerator[AsyncConnection]:
    """Give a connection that listens without announcing it."""
    async with await AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute(f"LISTEN {CHANNEL}".encode())
        yield connection


async def running_writer(engine: AsyncEngine, hub: NotificationHub) -> RunWriter:
    repository = RunRepository(engine, defer_nothing, cap=8)
    new = new_run()
    await repository.accept(new)
    claim = await claimed(Leases(engine, defer_nothing, repository.admit), new.key)
    return RunWriter(engine, claim, Broadcast(hub))


async def notify(url: str, channel: str) -> None:
    async with await AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute("SELECT pg_notify(%s, '')", (channel,))


async def connections(url: str) -> int:
    async with await AsyncConnection.connect(url, autocommit=True) as connection:
        cursor = await connection.execute(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name = 'starling-listen'"
        )
        row = await cursor.fetchone()
    assert row is not None
    return row[0]


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0.01)
