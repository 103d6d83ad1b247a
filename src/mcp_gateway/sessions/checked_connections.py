"""Connections to servers that came over HTTP: a name is resolved once, and a checked address of it is connected to."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from ssl import SSLContext
from typing import cast

import anyio
import httpcore
import httpx

from mcp_gateway.configuration.address_rules import PUBLIC_ONLY, AddressRules

_Backend = cast("type[httpcore.AsyncNetworkBackend]", httpcore.AnyIOBackend)  # its type is also that without anyio

type Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the addresses of a host, of which there is at least one. Raises OSError."""


async def resolve_host(host: str, port: int) -> Sequence[str]:
    """Return the addresses that the system's resolver has for a host, in its order."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(each[4][0]) for each in found))


class CheckedConnections(_Backend):
    """Connects to servers that came over HTTP, where the rules allow an address that the resolver found."""

    def __init__(self, rules: AddressRules = PUBLIC_ONLY, resolve: Resolve = resolve_host) -> None:
        self.rules = rules
        self._resolve = resolve

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's signature
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the first address of a host that accepts it. Raises httpcore.ConnectError, ConnectTimeout."""
        try:
            with anyio.fail_after(timeout):
                addresses = await self._resolve(host, port)
        except TimeoutError:
            raise httpcore.ConnectTimeout(f"{host} was not resolved in time") from None
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError(f"{host} can't be resolved: {error}") from error
        if fault := self.rules.fault(host, addresses):
            raise httpcore.ConnectError(fault)
        *others, last = addresses
        for address in others:
            with suppress(httpcore.ConnectError, httpcore.ConnectTimeout):
                return await super().connect_tcp(address, port, timeout, local_address, socket_options)
        return await super().connect_tcp(last, port, timeout, local_address, socket_options)


class CheckedTransport(httpx.AsyncHTTPTransport):
    """Connects to allowed addresses alone, and through no proxy of the environment.

    It is HTTPX's on another pool, as that has no parameter for what opens connections. TLS and `Host` keep the name of
    the request, and so does the pool, whose connections are checked when they are made.
    """

    def __init__(self, checked: CheckedConnections, tls: SSLContext) -> None:
        super().__init__(verify=tls, trust_env=False)
        self._pool = httpcore.AsyncConnectionPool(  # with the limits of HTTPX
            ssl_context=tls,
            max_connections=100,
            max_keepalive_connections=20,
            keepalive_expiry=5.0,
            network_backend=checked,
        )
