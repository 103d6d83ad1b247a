"""Reading server-sent events as a client does."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aiohttp


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a stream."""

    id: int
    type: str
    data: dict[str, Any]


async def read_events(response: aiohttp.ClientResponse) -> AsyncIterator[Event]:
    """Yield the events of a response as they come; comments (keep-alives) are passed over."""
    fields: dict[str, str] = {}
    async for raw in response.content:
        line = raw.decode().rstrip("\r\n")
        if line.startswith(":"):
            continue
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif fields:
            yield Event(int(fields["id"]), fields["event"], json.loads(fields["data"]))
            fields = {}


async def ask(url: str, text: str, thread_id: str) -> list[Event]:
    """Send a request to an API and return its whole stream."""
    body = {"input": text, "thread_id": thread_id}
    async with aiohttp.ClientSession(url) as client, client.post("/v1/agent/run", json=body) as response:
        assert response.status == 200, await response.text()
        return [event async for event in read_events(response)]
