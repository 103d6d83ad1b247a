"""A TCP proxy before Postgres or the API, whose connections a test cuts at a given moment, or freezes."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import URL, make_url

type Moment = Literal["before", "during", "after"]

_HOST = "127.0.0.1"
_CHUNK = 65_536


@dataclass(slots=True, eq=False)
class _Link:
    """A client's connection and the server's. Once `swallows` is set, they are cut when the server answers."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    swallows: bool = False

    def cut(self) -> None:
        self.client.transport.abort()
        self.server.close()  # what was written to it still arrives


class TcpProxy:
    """Passes bytes on, both ways, between clients and a port of this machine."""

    def __init__(self, port: int) -> None:
        self.cuts = 0
        self._port = port
        self._links: set[_Link] = set()
        self._armed: tuple[bytes, Moment, int] | None = None
        self._last: bytes | None = None
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        assert self._server is not None
        return self._server.sockets[0].getsockname()[1]

    @property
    def connections(self) -> int:
        return len(self._links)

    def cut(self, moment: Moment, text: bytes = b"COMMIT", *, times: int = 1) -> None:
        """Cut the next connections, `times` of them, through which a client sends `text`.

        `before` it reaches the server, which so never knows of it; `during`: right after it was passed on;
        `after` the server has answered, so that it is done but the client doesn't hear of it.
        """
        self._armed = (text, moment, times)

    def cut_answer(self, text: bytes) -> None:
        """Cut the next connection through which the server sends `text`; the client gets no more than up to its end."""
        self._last = text

    def lead_to(self, port: int) -> None:
        """Have new connections lead to another port, as a moved address does; those that there are stay."""
        self._port = port

    def cut_all(self) -> None:
        """Cut every connection that there is."""
        for link in tuple(self._links):
            link.cut()

    def freeze(self) -> None:
        """Pass nothing on, and let nobody notice; new connections are taken."""
        self._flowing.clear()

    def thaw(self) -> None:
        """Pass on what was held back."""
        self._flowing.set()

    async def start(self, port: int = 0) -> None:
        """Listen, after `stop` on the same port again if it is given."""
        self._server = await asyncio.start_server(self._serve, _HOST, port)

    async def stop(self) -> None:
        """Refuse connections and cut those that there are."""
        assert self._server is not None
        self._server.close()
        self._flowing.set()
        self.cut_all()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            answers, server = await asyncio.open_connection(_HOST, self._port)
        except ConnectionError:
            writer.transport.abort()
            return
        link = _Link(writer, server)
        self._links.add(link)
        up, down = (_task(self._up(reader, link)), _task(self._down(answers, link)))
        try:
            await asyncio.wait((up, down), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._links.discard(link)
            up.cancel()
            down.cancel()
            await asyncio.gather(up, down, return_exceptions=True)
            writer.close()
            server.close()

    async def _up(self, reader: asyncio.StreamReader, link: _Link) -> None:
        tail = b""
        while chunk := await reader.read(_CHUNK):
            await self._flowing.wait()
            moment = None if link.swallows else self._moment(tail + chunk)
            tail = (tail + chunk)[-100:]
            if moment == "before":
                link.cut()
                return
            link.swallows |= moment == "after"
            link.server.write(chunk)
            await link.server.drain()
            if moment == "during":
                link.cut()
                return

    def _moment(self, sent: bytes) -> Moment | None:
        if self._armed is None or self._armed[0] not in sent:
            return None
        text, moment, times = self._armed
        self._armed = (text, moment, times - 1) if times > 1 else None
        self.cuts += 1
        return moment

    async def _down(self, answers: asyncio.StreamReader, link: _Link) -> None:
        tail = b""
        while chunk := await answers.read(_CHUNK):
            await self._flowing.wait()
            if link.swallows:
                link.cut()
                return
            found = (tail + chunk).find(self._last) if self._last else -1
            if self._last and found >= 0:
                link.client.write(chunk[: found + len(self._last) - len(tail)])
                self._last = None
                self.cuts += 1
                link.cut()
                return
            tail = (tail + chunk)[-100:]
            link.client.write(chunk)
            await link.client.drain()


@dataclass(frozen=True, slots=True)
class ProxiedDatabase:
    """A database that is reached through a proxy: `url` leads there, `proxy` makes it fail."""

    proxy: TcpProxy
    url: str


@asynccontextmanager
async def proxied(url: str) -> AsyncGenerator[ProxiedDatabase]:
    """Put a proxy before the database at `url`, whose server listens on this machine over TCP too."""
    address = make_url(url)
    proxy = TcpProxy(_port(address))
    await proxy.start()
    direct = URL.create("postgresql", address.username, address.password, _HOST, proxy.port, address.database)
    try:
        yield ProxiedDatabase(proxy, direct.render_as_string(hide_password=False))
    finally:
        await proxy.stop()


def _port(address: URL) -> int:
    port = address.port or address.query["port"]
    assert isinstance(port, (int, str))
    return int(port)


async def _ended(work: Awaitable[None]) -> None:
    with contextlib.suppress(ConnectionError):
        await work


def _task(work: Awaitable[None]) -> asyncio.Task[None]:
    return asyncio.get_running_loop().create_task(_ended(work))
