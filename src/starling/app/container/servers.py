"""The MCP servers of a process that executes runs: registered at its start, and followed as they change."""

import logging
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from brain.registry.repository import AgentRepository, StarRepository
from mcp_gateway.configuration.address_rules import AddressRules
from mcp_gateway.configuration.servers import read_config
from mcp_gateway.configuration.stdio_over_http import StdioRules
from mcp_gateway.gateway import Connect, Gateway, GatewayParts, open_gateway
from mcp_gateway.registration.known_servers import Directory
from mcp_gateway.registration.repository import CACHE_CHANNEL, ServerRepository
from mcp_gateway.sessions.breakers import ServerBreakers
from mcp_gateway.sessions.leftover_processes import end_leftovers
from starling.app.access.kill_switches import KillSwitchCache
from starling.app.access.local_token import read_token
from starling.app.container.configuration import private_files, server_variables, servers_of_settings
from starling.app.registry.epoch_follower import EpochFollower
from starling.app.registry.epoch_publisher import EpochPublisher
from starling.app.registry.file_watcher import FileWatcher
from starling.app.registry.governance import unknown_names
from starling.app.registry.service import RegistryService
from starling.app.storage import Storage
from starling.core.background_tasks import in_background
from starling.core.clock import SystemClock
from starling.core.secrets.known import settings_secrets
from starling.core.settings.schema import Settings, secret_variables
from starling.core.tools import ServerListing
from starling.infra.postgres.audit import Actor

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Servers:
    """The gateway to the servers, the kill switches that it obeys, and what follows the registry."""

    gateway: Gateway
    halts: KillSwitchCache
    epoch_follower: EpochFollower
    listings: tuple[ServerListing, ...] = ()


@asynccontextmanager
async def open_servers(settings: Settings, storage: Storage, connect: Connect) -> AsyncGenerator[Servers]:
    """Register the configured servers, publish the epoch that they make, and follow the registry from there on."""
    async with AsyncExitStack() as stack:
        leftovers = end_leftovers(private_files(settings))
        await stack.enter_async_context(in_background(leftovers, "end processes that killed platforms left"))
        publisher = EpochPublisher(storage.epochs, Actor.local("start"), "registry.start")
        publisher.prompts = await storage.prompts.at_start()
        for fault in publisher.prompts.faults.values():
            _log.warning("a prompt keeps its text: %s", fault)
        publisher.governance, publisher.checked = settings.governance, False
        servers = ServerRepository(storage.engine, publisher)
        gateway, halts = await stack.enter_async_context(open_tools(settings, storage, servers, connect))
        watcher = None
        if settings.mcp_config is not None and settings.watch_mcp_config:  # its content now is taken as loaded
            watcher = FileWatcher(settings.mcp_config, build_registry(storage, settings, connect))
        if settings.mcp_config is None:
            listings = await gateway.catalog.republish()
        else:  # servers that answer late make an epoch of their own when they do
            listings = await gateway.catalog.sync(read_config(settings.mcp_config), starting=True)
        publisher.prompts, publisher.governance = None, None  # epochs that it makes later are of servers alone
        manifest = publisher.activation.epoch.manifest
        for text in (*unknown_names(manifest.governance, manifest), *manifest.governance.ineffective()):
            _log.warning("governance: %s", text)
        epoch = publisher.activation.epoch.number
        follower = EpochFollower(gateway, storage.rosters, storage.epochs, epoch, SystemClock())
        await stack.enter_async_context(follower.listening(storage.hub))
        if watcher is not None:
            await stack.enter_async_context(in_background(watcher.follow(), "watch-mcp-config"))
        metrics = storage.metrics.metrics
        metrics.sessions.set_function(lambda: gateway.open_sessions)
        metrics.known_epoch.set_function(lambda: follower.epoch)
        metrics.known_since.set_function(lambda: follower.since)
        yield Servers(gateway, halts, follower, listings)


@asynccontextmanager
async def follow_servers(settings: Settings, storage: Storage, connect: Connect) -> AsyncGenerator[Servers]:
    """Use the servers of the active epoch, and follow the registry from there on."""
    epoch = await storage.epochs.active_number() or 0
    publisher = EpochPublisher(storage.epochs, Actor.local("relist"), "registry.relist")  # for tools that have it so
    servers = ServerRepository(storage.engine, publisher)
    async with open_tools(settings, storage, servers, connect) as (gateway, halts):
        follower = EpochFollower(gateway, storage.rosters, storage.epochs, epoch, SystemClock())
        async with follower.listening(storage.hub):
            yield Servers(gateway, halts, follower)


@asynccontextmanager
async def open_tools(
    settings: Settings, storage: Storage, servers: ServerRepository, connect: Connect
) -> AsyncGenerator[tuple[Gateway, KillSwitchCache]]:
    """Open the gateway and the kill switches that it obeys."""
    observer = EpochPublisher(storage.epochs, Actor.local("session"), "server.observe")
    # what results of tools must not show
    secrets = {"database_url": storage.direct_url, "token": read_token(settings.data_dir), **settings_secrets(settings)}
    halts = KillSwitchCache(storage.switches)
    parts = GatewayParts(
        servers,
        ServerRepository(storage.engine, observer),
        settings.limits,
        variables := server_variables(settings),
        halts,
        storage.artifacts,
        Directory(secrets, variables),
        private_files(settings),
        settings.approval,
        AddressRules.of(settings.allowed_addresses),
        servers_of_settings(settings),
        ServerBreakers(on_failure=partial(storage.metrics.metrics.measure, "server_failures")),
    )
    async with halts.listening(storage.hub), open_gateway(parts, connect) as gateway:
        with storage.hub.subscribed(CACHE_CHANNEL, gateway.forget_result, gateway.forget_results):
            yield gateway, halts


def build_registry(storage: Storage, settings: Settings, connect: Connect) -> RegistryService:
    """Return what changes servers and epochs; it starts servers with the environment of this process."""
    engine, variables, private = storage.engine, server_variables(settings), private_files(settings)
    halts = KillSwitchCache(storage.switches)  # unused, as the artifacts: these gateways list tools and call none
    addresses, of_settings = AddressRules.of(settings.allowed_addresses), servers_of_settings(settings)

    def opened(servers: ServerRepository) -> AbstractAsyncContextManager[Gateway]:
        directory, limits = Directory(environment=variables), settings.limits
        given = servers, servers, limits, variables, halts, storage.artifacts, directory, private
        return open_gateway(GatewayParts(*given, addresses=addresses, of_settings=of_settings), connect)

    return RegistryService(
        epochs=storage.epochs,
        agents=AgentRepository(engine),
        stars=StarRepository(engine),
        prompts=storage.prompts,
        servers=partial(ServerRepository, engine),
        gateway=opened,
        stdio_rules=StdioRules(settings.stdio_over_http, secret_variables(), addresses),
    )
