"""Servers that came over HTTP are connected to at public and allowed addresses alone."""

import asyncio
import gzip
import json
import ssl
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from mcp_gateway.configuration.address_rules import AddressRules
from mcp_gateway.configuration.servers import ServerConfig, server_of
from mcp_gateway.registration.discovery import list_once
from mcp_gateway.sessions.checked_connections import CheckedConnections, CheckedTransport, Resolve, resolve_host
from mcp_gateway.sessions.pool import SessionPool
from starling.core.errors import ServerUnavailableError
from starling.core.settings.schema import Limits
from tests.support.gateway_harness import GatewayHarness, call, free_port, listed, running_http
from tests.support.self_signed import write_certificate

CORPUS = Path(__file__).parents[2] / "data/security/ssrf_urls.jsonl"
LOOPBACK = "127.0.0.1"
MIB = 2**20


def rows(*kinds: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in CORPUS.read_text().splitlines()]
    return [row for row in found if row["cat"] in kinds]


@dataclass
class Site:
    """A server on loopback that keeps each request: its first line, its headers and its body."""

    port: int = 0
    received: list[tuple[str, Mapping[str, str], str]] = field(default_factory=list[tuple[str, Mapping[str, str], str]])

    async def handle(self, request: web.Request) -> web.Response:
        self.received.append((f"{request.method} {request.path}", request.headers.copy(), await request.text()))
        if request.path == "/gzip":
            body = gzip.compress(bytes(64 * MIB))
            headers = {"content-encoding": "gzip", "content-type": "application/json"}
            return web.Response(body=body, headers=headers)
        if request.path == "/loop":
            return web.Response(status=308, headers={"location": "/loop"})
        if to := request.query.get("to"):
            return web.Response(status=int(request.path.strip("/")), headers={"location": to})
        return web.Response(text="hello", headers={"connection": "close"})

    @asynccontextmanager
    async def serving(
        self, host: str = LOOPBACK, port: int = 0, tls: ssl.SSLContext | None = None
    ) -> AsyncGenerator["Site"]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.handle)
        runner = web.AppRunner(app, shutdown_timeout=0)
        await runner.setup()
        await web.TCPSite(runner, host, port, ssl_context=tls).start()
        self.port = runner.addresses[0][1]
        try:
            yield self
        finally:
            await runner.cleanup()


def names(known: Mapping[str, Sequence[str]]) -> Resolve:
    """Return a resolver that knows some names, and leaves all others to the system."""

    async def resolve(host: str, port: int) -> Sequence[str]:
        return known[host] if host in known else await resolve_host(host, port)

    return resolve


async def listing_error(config: ServerConfig, checked: CheckedConnections) -> ServerUnavailableError:
    """Return why a server can't be listed."""
    async with SessionPool(Limits(server_start_seconds=10), {}, checked) as sessions:
        with pytest.raises(ServerUnavailableError) as failed:
            await list_once(sessions, "a", config, 10)
    return failed.value


async def listing_fault(config: ServerConfig, checked: CheckedConnections) -> str:
    return (await listing_error(config, checked)).message


async def get(url: str, checked: CheckedConnections, tls: ssl.SSLContext | None = None) -> httpx.Response:
    transport = CheckedTransport(checked, tls or httpx.create_ssl_context())
    async with httpx.AsyncClient(transport=transport, trust_env=False) as client:
        return await client.get(url, headers={"Authorization": "Bearer x"})


PRIVATE = names({"localtest.me": [LOOPBACK], "localhost.": [LOOPBACK], "instance-data": ["169.254.169.254"]})


@pytest.mark.parametrize("row", rows("host", "form"), ids=lambda row: row["url"].encode("unicode_escape").decode())
async def test_address_of_the_corpus_is_refused_and_nothing_is_sent_there(row: dict[str, Any]) -> None:
    checked = CheckedConnections(resolve=PRIVATE)

    async with Site().serving() as canary:
        url = row["url"].replace(":8999", f":{canary.port}")
        for kind in ("http", "sse", "execution_service"):
            fault = await listing_fault(server_of({"type": kind, "url": url}, "api"), checked)
            assert "address" in fault
        with pytest.raises((httpx.TransportError, httpx.InvalidURL)):  # also without the look at its text
            await get(url, checked)

    assert canary.received == []


@pytest.mark.parametrize("row", rows("redirect"), ids=lambda row: row["url"])
@pytest.mark.parametrize("target", ["canary", "allowed"])
async def test_redirect_to_another_origin_is_not_followed(row: dict[str, Any], target: str) -> None:
    hosts = {"redirector.test": [LOOPBACK], "other.test": [LOOPBACK]}
    checked = CheckedConnections(AddressRules.of(hosts), names(hosts))

    async with Site().serving() as canary, Site().serving() as redirector:
        to = f"127.0.0.1:{canary.port}" if target == "canary" else f"other.test:{canary.port}"
        url = row["url"].replace("127.0.0.1:8999", to).replace("REDIRECTOR", f"redirector.test:{redirector.port}")
        config = server_of({"url": url, "headers": {"Authorization": "Bearer x"}}, "api")
        await listing_fault(config, checked)

    assert redirector.received
    assert canary.received == []


@pytest.mark.parametrize("row", rows("redirect-loop"), ids=lambda row: row["url"])
async def test_loop_of_redirects_ends(row: dict[str, Any]) -> None:
    hosts = {"redirector.test": [LOOPBACK]}
    checked = CheckedConnections(AddressRules.of(hosts), names(hosts))

    async with Site().serving() as site:
        url = row["url"].replace("REDIRECTOR", f"redirector.test:{site.port}")
        fault = await listing_fault(server_of({"url": url}, "api"), checked)

    assert "308" in fault
    assert 1 < len(site.received) < 30


@pytest.mark.parametrize("row", rows("gzip-bomb"), ids=lambda row: row["url"])
async def test_compressed_answer_that_grows_beyond_the_limit_is_refused(row: dict[str, Any]) -> None:
    hosts = {"bomb.test": [LOOPBACK]}
    checked = CheckedConnections(AddressRules.of(hosts), names(hosts))

    async with Site().serving() as site:
        url = row["url"].replace("BOMB", f"bomb.test:{site.port}")
        fault = await listing_fault(server_of({"url": url}, "api"), checked)

    assert "longer than 16 MiB" in fault


def test_every_row_of_the_corpus_is_executed() -> None:
    kinds = {row["cat"] for row in map(json.loads, CORPUS.read_text().splitlines())}

    assert kinds == {"host", "form", "redirect", "redirect-loop", "gzip-bomb"}


async def test_name_that_changes_to_loopback_is_connected_to_at_its_checked_address_and_refused_then() -> None:
    answers = [["127.0.0.2"], [LOOPBACK]]

    async def resolve(host: str, port: int) -> Sequence[str]:
        del host, port
        return answers.pop(0)

    checked = CheckedConnections(AddressRules(networks=(ip_network("127.0.0.2"),)), resolve)
    port = free_port()
    async with Site().serving("127.0.0.2", port) as public, Site().serving(LOOPBACK, port) as canary:
        transport = CheckedTransport(checked, httpx.create_ssl_context())
        async with httpx.AsyncClient(transport=transport, trust_env=False) as client:
            first = await client.get(f"http://rebind.test:{port}/")
            with pytest.raises(httpx.ConnectError, match=r"^rebind\.test leads to an address that is not public$"):
                await client.get(f"http://rebind.test:{port}/")

    assert first.text == "hello"
    assert [headers["Host"] for _, headers, _ in public.received] == [f"rebind.test:{port}"]
    assert canary.received == []


async def test_tls_certificate_is_checked_against_the_name(tmp_path: Path) -> None:
    certificate = write_certificate(tmp_path / "name.pem", "name.test")
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(certificate)
    trusting = ssl.create_default_context(cafile=str(certificate))
    hosts = {"name.test": [LOOPBACK], "other.test": [LOOPBACK]}
    checked = CheckedConnections(AddressRules.of(hosts), names(hosts))

    async with Site().serving(tls=server) as site:
        answer = await get(f"https://name.test:{site.port}/", checked, trusting)
        with pytest.raises(httpx.ConnectError, match="certificate"):
            await get(f"https://other.test:{site.port}/", checked, trusting)

    assert answer.text == "hello"


async def test_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Site().serving() as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        checked = CheckedConnections(resolve=names({"private.test": ["10.0.0.1"]}))
        errors = [
            await listing_error(server_of({"type": kind, "url": "http://private.test/"}, "api"), checked)
            for kind in ("http", "sse", "execution_service")
        ]

    for error in errors:
        assert "private.test leads to an address that is not public" in error.message
        assert "10.0.0.1" not in str(error)
        assert "STARLING_ALLOWED_ADDRESSES" in error.remedy
    assert proxy.received == []


async def test_a_hundred_requests_at_once_have_connections() -> None:
    waiting = asyncio.Barrier(100)

    async def answer(request: web.Request) -> web.Response:
        del request
        await waiting.wait()
        return web.Response(text="hello")

    server = TestServer(web.Application())
    server.app.router.add_get("/", answer)
    transport = CheckedTransport(CheckedConnections(AddressRules.of([LOOPBACK])), httpx.create_ssl_context())
    async with server, httpx.AsyncClient(transport=transport, trust_env=False) as client:
        answers = await asyncio.gather(*(client.get(str(server.make_url("/"))) for _ in range(100)))

    assert {each.status_code for each in answers} == {200}


async def test_silent_resolver_ends_with_the_time_limit() -> None:
    never = asyncio.Event()

    async def resolve(host: str, port: int) -> Sequence[str]:
        del host, port
        await never.wait()
        return ()

    transport = CheckedTransport(CheckedConnections(resolve=resolve), httpx.create_ssl_context())
    async with httpx.AsyncClient(transport=transport, timeout=0.05) as client:
        with pytest.raises(httpx.ConnectTimeout):
            await client.get("http://silent.test/")


async def test_only_servers_that_came_over_http_are_restricted_in_every_process(harness: GatewayHarness) -> None:
    with running_http(harness.record, free_port()) as config:
        async with harness.gateway() as gateway:
            [refused] = await gateway.catalog.sync({"a": config}, source="api")
            await gateway.catalog.sync({}, source="api")
            of_a_file = await listed(gateway, config)
            await gateway.catalog.sync({})
            await gateway.catalog.add("a", config)
            on_host = await call(gateway, (await gateway.refresh())[0], "pid")
            await gateway.catalog.remove("a")
        allowed = AddressRules.of([LOOPBACK])
        async with harness.gateway(addresses=allowed) as gateway:
            [waiting] = await gateway.catalog.add("a", config, source="api")
        async with harness.gateway() as worker:
            _, [row] = await worker.catalog.load()
            with pytest.raises(ServerUnavailableError, match="not a public one"):
                await worker.catalog.try_out("a")

    assert "not a public one" in refused.error
    assert of_a_file.state == "ready"
    assert on_host.status == "succeeded"
    assert (waiting.tools, bool(waiting.quarantined), row.config_hash) == ((), True, config.hash)
