"""Notifications: one connection a process, and none sent while no other process listens."""

import asyncio
import os
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
from psycopg import AsyncConnection
from sqlalchemy import make_url
from sqlalchemy.ext.asyncio import AsyncEngine

from starling.core.errors import DatabaseUnavailableError
from starling.core.events.run_events import Thinking
from starling.infra.postgres import engine
from starling.infra.postgres.embedded.server import EmbeddedPostgres
from starling.infra.postgres.engine import beside_address, observe_failures, open_engine, transaction
from starling.infra.postgres.notifications import NotificationHub, open_hub
from starling.infra.postgres.runs import broadcast
from starling.infra.postgres.runs.acceptance import RunRepository
from starling.infra.postgres.runs.broadcast import CHANNEL, SEND_NOTICES, Broadcast, NoticeSender
from starling.infra.postgres.runs.leases import Leases
from starling.infra.postgres.runs.writer import RunWriter
from tests.support.run_factories import claimed, defer_nothing, new_run

SECONDS = 60


async def test_subscribers_of_several_channels_share_one_connection(database_url: str) -> None:
    async with asyncio.timeout(SECONDS), open_hub(database_url) as hub:
        first = hub.notices("one", at_least_every=60)
        second = hub.notices("two", at_least_every=60)
        assert await anext(first)
        assert await anext(second)
        await notify(database_url, "two")

        assert await anext(second)
        assert await connections(database_url) == 1


def patient(url: str, **limits: str | int) -> dict[str, Any]:
    """Return the limits of a connection that isn't given up, but for what the address says."""
    return beside_address(url, **{**limits, "connect_timeout": 10 * SECONDS})


async def test_hub_passes_a_silent_host_after_the_seconds_of_the_address(
    postgres_server: EmbeddedPostgres, database_url: str, silent_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "beside_address", patient)
    ports = f"{silent_port},{make_url(postgres_server.tcp_url).port}"
    query = {"host": "127.0.0.1,127.0.0.1", "port": ports, "connect_timeout": "2"}
    both = make_url(database_url)._replace(host=None, port=None).set(query=query)
    async with asyncio.timeout(SECONDS), open_hub(both.render_as_string(hide_password=False)) as hub:
        assert await anext(hub.notices("one", at_least_every=60))


async def test_a_channel_without_notifications_yields_false_after_its_interval(database_url: str) -> None:
    async with asyncio.timeout(SECONDS), open_hub(database_url) as hub:
        notices = hub.notices("quiet", at_least_every=0.05)
        while not await anext(notices):
            pass  # it doesn't listen yet

        assert not await anext(notices)


async def test_hub_is_notified_when_another_process_begins_to_listen(database_url: str) -> None:
    async with asyncio.timeout(SECONDS), open_hub(database_url) as hub:
        await until(lambda: not hub.has_peers)

        async with open_hub(database_url) as other:
            await until(lambda: hub.has_peers)
            assert other.has_peers


async def test_process_that_begins_to_listen_during_a_count_is_noticed(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting = "SELECT 0 FROM pg_advisory_lock(1), pg_advisory_unlock(1)"
    monkeypatch.setattr("starling.infra.postgres.notifications._COUNT_PEERS", counting)
    async with asyncio.timeout(SECONDS), await AsyncConnection.connect(database_url, autocommit=True) as other:
        await other.execute("SELECT pg_advisory_lock(1)")
        async with open_hub(database_url) as hub:
            noticed = hub.notices("starling_peers", at_least_every=60)
            await waiting_for_a_lock(other)
            await other.execute("NOTIFY starling_peers")
            await other.execute("SELECT pg_advisory_unlock(1)")
            assert await anext(noticed)

            assert hub.has_peers


async def test_hub_listens_again_after_the_server_has_ended_its_session_for_its_duration(database_url: str) -> None:
    limited = make_url(database_url).update_query_dict({"options": "-c transaction_timeout=50"})
    async with asyncio.timeout(SECONDS), await AsyncConnection.connect(database_url, autocommit=True) as other:
        await other.execute("SELECT pg_advisory_lock(1400140146, 1)")  # so that the hub can't announce itself
        async with open_hub(limited.render_as_string(hide_password=False)) as hub:
            noticed = hub.notices("one", at_least_every=60)
            await waiting_for_a_lock(other)
            await until_no_lock_is_awaited(other)
            await other.execute("SELECT pg_advisory_unlock_all()")

            assert await anext(noticed)


async def test_lost_connection_leaves_the_reader_of_the_next_owner_of_its_descriptor(database_url: str) -> None:
    loop, hub, read = asyncio.get_running_loop(), NotificationHub(database_url), asyncio.Event()
    async with asyncio.timeout(SECONDS), await AsyncConnection.connect(database_url, autocommit=True) as connection:
        descriptor = connection.fileno()
        ours, theirs = socket.socketpair()
        with ours, theirs:
            with hub._reading(connection) as lost:  # pyright: ignore[reportPrivateUsage]
                async with await AsyncConnection.connect(database_url, autocommit=True) as other:
                    await other.execute("SELECT pg_terminate_backend(%s, 5000)", (connection.info.backend_pid,))
                await until(lambda: bool(lost))
                os.dup2(ours.fileno(), descriptor)
                loop.add_reader(descriptor, read.set)
            theirs.send(b"x")
            await read.wait()
            loop.remove_reader(descriptor)
            os.close(descriptor)


async def test_a_flush_sends_no_notification_while_no_other_process_listens(
    database_url: str, engine: AsyncEngine
) -> None:
    async with asyncio.timeout(SECONDS), open_hub(database_url) as hub, listener(database_url) as sent:
        await until(lambda: not hub.has_peers)
        sender = NoticeSender(engine)
        writer = await running_writer(engine, Broadcast(hub, sender))
        writer.emit(Thinking(content="unheard", message_id="m"))
        await writer.flush()

        async with open_hub(database_url):
            await until(lambda: hub.has_peers)
            writer.emit(Thinking(content="heard", message_id="m"))
            await writer.flush()
            notice = await anext(sent.notifies())
        await writer.close()
        await sender.close()

    assert notice.payload == f"{writer.run.id}:3"


async def test_events_written_during_a_notification_are_sent_together_with_the_next(
    database_url: str, engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broadcast, "_CLOSE_SECONDS", SECONDS)
    async with asyncio.timeout(SECONDS), listener(database_url) as sent:
        sender = NoticeSender(engine)
        sender.add("a", 1)  # its transaction has not begun when the others follow
        for run, seq in (("b", 4), ("a", 2), ("b", 5), ("c", 1)):
            sender.add(run, seq)
        await sender.close()

        notices = await sent_so_far(database_url, sent)

    assert notices == ["a:2", "b:5", "c:1"]


async def test_notifications_of_events_do_not_wait_for_the_disk(engine: AsyncEngine) -> None:
    async with transaction(engine) as connection:
        await connection.execute(SEND_NOTICES.encode(), {"notices": ["a:1"]})
        row = await (await connection.execute(b"SHOW synchronous_commit")).fetchone()

    async with transaction(engine) as connection:
        later = await (await connection.execute(b"SHOW synchronous_commit")).fetchone()

    assert (row, later) == (("off",), ("on",))


async def test_events_are_committed_without_a_notification_in_their_transaction(
    database_url: str, engine: AsyncEngine
) -> None:
    async with asyncio.timeout(SECONDS), listener(database_url) as sent:
        writer = await running_writer(engine, Broadcast())
        writer.emit(Thinking(content="written", message_id="m"))
        await writer.flush()
        await writer.close()

        notices = await sent_so_far(database_url, sent)

    assert notices == []


async def test_notice_that_can_not_be_sent_is_left_to_polling() -> None:
    nowhere = open_engine("postgresql://starling@127.0.0.1:9/starling")
    failures: list[DatabaseUnavailableError] = []
    observe_failures(nowhere, failures.append)
    sender = NoticeSender(nowhere)
    sender.add("a", 1)
    await sender.close()
    await nowhere.dispose()

    assert len(failures) == 1


@asynccontextmanager
async def listener(url: str) -> AsyncGenerator[AsyncConnection]:
    """Give a connection that listens without announcing it."""
    async with await AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute(f"LISTEN {CHANNEL}".encode())
        yield connection


async def running_writer(engine: AsyncEngine, broadcast: Broadcast) -> RunWriter:
    repository = RunRepository(engine, defer_nothing, cap=8)
    new = new_run()
    await repository.accept(new)
    claim = await claimed(Leases(engine, defer_nothing, repository.admit, graph_version=1), new.key)
    return RunWriter(engine, claim, broadcast)


async def waiting_for_a_lock(other: AsyncConnection) -> None:
    """Return once another session waits for an advisory lock."""
    while not await _awaited_locks(other):  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0.005)


async def until_no_lock_is_awaited(other: AsyncConnection) -> None:
    while await _awaited_locks(other):  # noqa: ASYNC110
        await asyncio.sleep(0.005)


async def _awaited_locks(other: AsyncConnection) -> int:
    query = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    row = await (await other.execute(query)).fetchone()
    assert row is not None
    return row[0]


async def notify(url: str, channel: str) -> None:
    async with await AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute("SELECT pg_notify(%s, '')", (channel,))


async def sent_so_far(url: str, sent: AsyncConnection) -> list[str]:
    """Return the notices up to now: one more follows, and they come in the order of their commits."""
    await notify(url, CHANNEL)
    found: list[str] = []
    async with aclosing(sent.notifies()) as notices:
        while payload := (await anext(notices)).payload:
            found.append(payload)
    return found


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
