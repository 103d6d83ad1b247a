"""The bare loop as a service: `python -m bench.served_loop <folder> <database URL>`; prints its address.

What any service needs that serves the same request without a framework: an ASGI application, a stream of events, and
each of the six answers stored in Postgres before it is sent. It keeps uvicorn's parser in Python (h11) and asyncio's
own event loop, so that the reference stays the same when the platform's server becomes faster.
"""

import asyncio
import signal
import socket
import sys
from pathlib import Path
from types import FrameType

import orjson
import uvicorn
from psycopg import AsyncConnection
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool
from starlette.types import Receive, Scope, Send

from bench.bare_loop import Loop, open_loop
from starling.core.llm import ModelReply

_TABLE = "CREATE TABLE IF NOT EXISTS bench_answers (id bigserial PRIMARY KEY, kind text, answer jsonb)"
_KEEP = "INSERT INTO bench_answers (kind, answer) VALUES (%s, %s)"
_HEADERS = [(b"content-type", b"text/event-stream")]


type Pool = AsyncConnectionPool[AsyncConnection[TupleRow]]


class Service:
    """The whole application."""

    def __init__(self, loop: Loop, pool: Pool) -> None:
        self._loop = loop
        self._pool = pool

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer any request by the one that is measured."""
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})

        async def tell(what: str, reply: ModelReply) -> None:
            content = orjson.dumps({"type": what, "content": reply.content})
            async with self._pool.connection() as connection:
                await connection.execute(_KEEP, (what, content.decode()))
            await send(_chunk(b"event: %b\ndata: %b\n\n" % (what.encode(), content)))

        await send(_chunk(b"event: run_started\ndata: {}\n\n"))
        await self._loop.one(tell)
        await send(_chunk(b"", more=False))


def _chunk(body: bytes, *, more: bool = True) -> dict[str, object]:
    return {"type": "http.response.body", "body": body, "more_body": more}


async def _serve(folder: Path, database: str) -> None:
    pool: Pool = AsyncConnectionPool(database, min_size=4, max_size=8, open=False, kwargs={"autocommit": True})
    async with open_loop(folder) as loop, pool:
        async with pool.connection() as connection:
            await connection.execute(_TABLE)
        listener = socket.create_server(("127.0.0.1", 0))
        config = uvicorn.Config(
            Service(loop, pool), log_level="error", access_log=False, lifespan="off", http="h11", loop="asyncio"
        )
        server = uvicorn.Server(config)
        print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
        await server.serve([listener])


def _stop(number: int, frame: FrameType | None) -> None:
    sys.exit(0)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _stop)
    asyncio.run(_serve(Path(sys.argv[1]), sys.argv[2]))
