"""The system under test: a Postgres, two APIs, two workers, a model server, MCP servers and two tenants."""

import asyncio
import json
import os
import random
import secrets
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import psutil
import psycopg
from psycopg import AsyncConnection
from psycopg.rows import DictRow, dict_row

from starling.app.access.keys import KeyService, KeySpec
from starling.core.clock import SystemClock
from starling.core.principal import HOST_ADMIN, Scope
from starling.infra.postgres.audit import Actor
from starling.infra.postgres.embedded.server import EmbeddedPostgres
from starling.infra.postgres.engine import open_engine
from starling.infra.postgres.keys import KeyRepository
from starling.infra.postgres.schema import upgrade
from tests.chaos.processes import ManagedService, all_ready, supervised
from tests.chaos.teams import activate_teams
from tests.chaos.workload import EFFECTS, HOSTILE, answer
from tests.support.gateway_harness import SERVERS, free_port
from tests.support.model_script import Answer, Body
from tests.support.model_server import ModelServer
from tests.support.otlp_collector import Collector
from tests.support.postgres_servers import ReplicatedPostgres
from tests.support.versions import THIS, Version

TENANTS = ("alpha", "beta")
EFFECT_SERVERS = ("till", "vault")  # servers whose effects are counted; unsafe tools of the vault need approval
LEASE_SECONDS = 2.0
CLIENT_SCOPES = frozenset({Scope.RUN, Scope.TEAMS, Scope.ADMIN})  # so that activations of teams are approved, too
_WITNESS = Path(__file__).with_name("change_log.sql")
LIMITS = {
    "lease_seconds": LEASE_SECONDS,
    "run_seconds": 120,
    "crashes_per_run": 8,
    "model_call_seconds": 15,
    "tool_call_seconds": 10,
    "tool_result_chars": 600,
}
_HOSTILE_SECONDS = 1.0  # for a call of a hostile server: less than it takes for a late answer
_MODEL_SECONDS = 0.03
_LEFT_SECONDS = 20.0


class Postgres(Protocol):
    """A server, also one of several that take each other's place."""

    @property
    def url(self) -> str: ...
    @property
    def tcp_url(self) -> str: ...
    @property
    def pid(self) -> int: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...


def embedded(folder: Path) -> EmbeddedPostgres:
    """Return the platform's own server."""
    postgres = EmbeddedPostgres(folder / "database")
    postgres._port = free_port()  # pyright: ignore[reportPrivateUsage]
    return postgres


def replicated(folder: Path) -> ReplicatedPostgres:
    """Return a server with a synchronous replica."""
    return ReplicatedPostgres(folder, ports=(free_port(), free_port()))


@dataclass(slots=True)
class TenantKey:
    """A key of a tenant; `going` says that it is revoked or about to be."""

    id: str
    secret: str
    going: bool = False


@dataclass(slots=True)
class ModelEndpoint:
    """Answers by the plan in the request, or with `failure` while there is one."""

    failure: Answer | None = None

    async def __call__(self, body: Body) -> Answer:
        return self.failure or await answer(body)


@dataclass(frozen=True)
class Cluster:
    """The running system. `keys` are those in use, `planted` the secrets that must not appear anywhere."""

    folder: Path
    postgres: Postgres
    model: ModelServer
    endpoint: ModelEndpoint
    collector: Collector
    apis: Sequence[ManagedService]
    workers: Sequence[ManagedService]
    addresses: Sequence[str]
    keys: dict[str, TenantKey]
    planted: dict[str, str]

    @property
    def services(self) -> list[ManagedService]:
        return [*self.apis, *self.workers]

    @property
    def effects_file(self) -> Path:
        return self.folder / "effects" / "record"

    def effects(self) -> list[dict[str, Any]]:
        """Return the records of the effect servers, in order."""
        lines = self.effects_file.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]  # another process may be writing the last

    @asynccontextmanager
    async def connected(self) -> AsyncGenerator[AsyncConnection[DictRow]]:
        """Open a connection that no fault is aimed at. Raises psycopg.OperationalError."""
        address = f"{self.postgres.url}&application_name=chaos"
        connecting = AsyncConnection[DictRow].connect(address, autocommit=True, row_factory=dict_row, connect_timeout=5)
        async with await connecting as connection:
            yield connection

    def left_over(self) -> list[psutil.Process]:
        """Return processes that still run some time after the services that started them have ended."""
        begun = [each for each in psutil.process_iter(["cwd"]) if each.info["cwd"] == str(self.folder)]
        _, alive = psutil.wait_procs(begun, timeout=_LEFT_SECONDS)
        return alive

    async def rows(self, query: str) -> list[DictRow]:
        async with self.connected() as connection:
            done = await connection.execute(query.encode())
            return await done.fetchall() if done.description is not None else []  # a row may have no column


@asynccontextmanager
async def open_cluster(
    folder: Path,
    team_runtime: str,
    versions: Sequence[Version] = (THIS, THIS),
    *,
    started: int = 2,
    postgres: Callable[[Path], AbstractContextManager[Postgres]] = embedded,
) -> AsyncGenerator[Cluster]:
    """Start everything in `folder`, which every user may enter; stop it at the end of the block.

    `team_runtime` executes the members of teams. There is an API and a worker of each of `versions`; only the first
    `started` of each are started. The first version sets the database up. `postgres` makes
    the server, which starts with its context.
    """
    planted = {f"of the {name}": f"planted-{secrets.token_hex(12)}" for name in ("model", "servers", "collector")}
    async with AsyncExitStack() as stack:
        server = stack.enter_context(postgres(folder))
        await (upgrade(server.url) if versions[0] is THIS else versions[0].upgrade(server.url, folder))
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute(_WITNESS.read_bytes())
        keys = await _keys(server.url, *CLIENT_SCOPES)
        endpoint = ModelEndpoint()
        model = await stack.enter_async_context(ModelServer(endpoint, latency=_MODEL_SECONDS))
        collector = await stack.enter_async_context(Collector())
        ports = [free_port() for _ in versions]
        common = _environment(folder, planted, model, collector)
        pairs = [
            _services(folder, server, {**common, **version.variables}, port, number)
            for number, (version, port) in enumerate(zip(versions, ports, strict=True), 1)
        ]
        apis, workers = zip(*pairs, strict=True)
        cluster = Cluster(
            folder=folder,
            postgres=server,
            model=model,
            endpoint=endpoint,
            collector=collector,
            apis=apis,
            workers=workers,
            addresses=[f"http://127.0.0.1:{port}" for port in ports],
            keys=keys,
            planted={**planted, **{f"key of {name}": key.secret for name, key in keys.items()}, **_password(server)},
        )
        keeper = asyncio.get_running_loop().create_task(_open_gates(cluster.effects_file), name="gates")
        stack.callback(keeper.cancel)
        first = [service for pair in pairs[:started] for service in pair]
        await stack.enter_async_context(supervised(first))
        await all_ready(first)
        for tenant, key in (await _keys(server.url, Scope.TEAMS, Scope.ADMIN)).items():
            cluster.planted[f"key of the team administrator of {tenant}"] = key.secret
            await activate_teams(cluster.addresses[0], key.secret, team_runtime)
        yield cluster


async def _keys(url: str, *scopes: Scope) -> dict[str, TenantKey]:
    """Return a new key for each tenant."""
    engine = open_engine(url)
    keys = KeyService(KeyRepository(engine), SystemClock())
    wishes = [KeySpec("chaos", tenant, frozenset(scopes)) for tenant in TENANTS]
    made = [await keys.create(HOST_ADMIN, wish, Actor.local("chaos")) for wish in wishes]
    await engine.dispose()
    return {row.tenant: TenantKey(row.id, secret) for row, secret in made}


def _password(postgres: Postgres) -> Mapping[str, str]:
    return {"password of Postgres": urlsplit(postgres.tcp_url).password or ""}


def _environment(
    folder: Path, planted: Mapping[str, str], model: ModelServer, collector: Collector
) -> Mapping[str, str]:
    """Return the environment variables that all services have."""
    (folder / "effects").mkdir()
    (folder / "effects" / "record").touch()
    config = folder / "mcp.json"
    config.write_text(json.dumps({"mcpServers": _servers(folder)}))
    inherited = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    return {
        **inherited,
        "HOME": str(folder),
        "STARLING_DATA_DIR": str(folder),
        "STARLING_MCP_CONFIG": str(config),
        "STARLING_MODEL": "openai:scripted",
        "OPENAI_BASE_URL": model.url,
        "OPENAI_API_KEY": planted["of the model"],
        "CHAOS_SERVER_SECRET": planted["of the servers"],
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer {planted['of the collector']}",
        "STARLING_REQUIRE_KEYS": "true",
        "STARLING_RATE_PER_MINUTE": "1000000",
        "STARLING_WRONG_KEYS_PER_MINUTE": "1000000",
        "STARLING_LIMITS": json.dumps(LIMITS),
        "LOG_LEVEL": "INFO",
        "LOG_FORMAT": "json",
    }


def _services(
    folder: Path, postgres: Postgres, common: Mapping[str, str], port: int, number: int
) -> tuple[ManagedService, ManagedService]:
    """Return an API and a worker."""

    def service(name: str, *command: str) -> ManagedService:
        def environment(life: int) -> Mapping[str, str]:
            return {**common, "DATABASE_URL": f"{postgres.url}&application_name={name}.{life}"}

        return ManagedService(name, (*command, "--json"), environment, folder)

    return service(f"api-{number}", "serve", "--port", str(port)), service(f"worker-{number}", "worker")


def _servers(folder: Path) -> dict[str, Any]:
    effects: dict[str, Any] = {
        "command": sys.executable,
        "args": [str(SERVERS / "effects.py")],
        "env": {"EFFECTS_FILE": str(folder / "effects" / "record"), "EFFECTS_SECRET": "${CHAOS_SERVER_SECRET}"},
        "x-starling": {
            "description": "Counts what it does.",
            "tools": {tool: {"effect": effect} for tool, effect in EFFECTS.items()},
        },
    }
    vault = effects | {"x-starling": effects["x-starling"] | {"approval": "unsafe"}}
    return {
        **dict(zip(EFFECT_SERVERS, (effects, vault), strict=True)),
        **{name: _hostile_server(name) for name in HOSTILE},
    }


def _hostile_server(name: str) -> dict[str, Any]:
    options = {"description": "Looks at things.", "effect": "read", "timeout": _HOSTILE_SECONDS}
    return {"command": sys.executable, "args": [str(SERVERS / "hostile.py"), name], "x-starling": options}


async def _open_gates(record: Path) -> None:
    """Release each stalled call after a random delay, so that faults hit calls before and after their effects."""
    rng = random.Random(0)
    loop = asyncio.get_running_loop()
    with record.open() as lines:
        begun = ""  # a line that its process has not yet written to the end
        while True:
            *whole, begun = (begun + lines.read()).split("\n")
            for line in whole:
                gate = record.with_name(f"{json.loads(line)['what']}.gate")
                loop.call_later(rng.uniform(0.0, 1.0), gate.touch)
            await asyncio.sleep(0.02)
