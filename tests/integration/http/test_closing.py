"""An API that is told to stop ends its streams in order, and at once: readers come again elsewhere."""

import asyncio
from contextlib import AsyncExitStack

import aiohttp
from pydantic import SecretStr

from starling.app.container import Database, open_store
from starling.app.http.app import make_app
from starling.app.http.security import open_access
from starling.app.http.server import bind, serving
from starling.core.settings import Settings
from tests.support.sse import read_events


async def test_a_live_stream_ends_between_two_events(database_url: str) -> None:
    settings = Settings(database_url=SecretStr(database_url))
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_store(settings, Database(database_url, database_url)))
        access = await stack.enter_async_context(open_access(settings, store.keys))
        api = AsyncExitStack()
        url = await api.enter_async_context(serving(make_app(store, "test", access), bind("127.0.0.1", 0)))
        client = await stack.enter_async_context(aiohttp.ClientSession(url))
        body = {"input": "Nobody works on this.", "thread_id": "t"}
        response = await stack.enter_async_context(client.post("/v1/agent/run", json=body))
        events = read_events(response)
        first = await anext(events)

        async with asyncio.timeout(4):  # a stream that is cut off instead is cut off after five seconds
            await api.aclose()
        rest = [event async for event in events]

    assert (first.type, rest) == ("run_started", [])
