"""Keys over HTTP: access, expiry, revocation, rate limit, and what is stored."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import aiohttp
import httpx
import openai
import pytest
import pytest_asyncio
from fastapi import FastAPI
from pydantic import SecretStr
from sqlalchemy import func, update

from mcp_gateway.configuration.servers import server_of
from starling.app.access import keys as access_keys
from starling.app.access.keys import KeyService, KeySpec
from starling.app.container.database import Database
from starling.app.container.services import open_services
from starling.app.http.authentication import open_access_control
from starling.app.http.loopback_policy import refuse_open_binding
from starling.app.services import Services
from starling.core.clock import SystemClock
from starling.core.errors import ConfigurationError
from starling.core.ids import new_id
from starling.core.principal import HOST_ADMIN, SHARED, Scope
from starling.core.settings.schema import Settings
from starling.infra.postgres.audit import Actor, latest
from starling.infra.postgres.embedded.server import EmbeddedPostgres
from starling.infra.postgres.keys import KeyRepository
from starling.infra.postgres.schema import upgrade
from starling.infra.postgres.tables.access import keys
from tests.support.http_app import make_app, served_api
from tests.support.local_access import TOKEN
from tests.support.openai_clients import openai_client
from tests.support.sse import read_events

pytestmark = pytest.mark.asyncio(loop_scope="module")

ADMIN = Actor.local("test")
HERE = ("127.0.0.1", 40_000)
ELSEWHERE = ("203.0.113.7", 40_000)


@dataclass(frozen=True, slots=True)
class Door:
    """An API that nobody works for: what is asked waits, and so do its streams."""

    settings: Settings
    services: Services
    url: str

    async def key(self, *scopes: Scope, tenant: str = "default", lifetime: timedelta | None = None) -> tuple[str, str]:
        """Make a key; return its id and the key."""
        wish = KeySpec("test", tenant, frozenset(scopes or [Scope.RUN]), lifetime=lifetime)
        row, key = await self.services.storage.keys.create(HOST_ADMIN, wish, ADMIN)
        return row.id, key

    async def expire(self, key_id: str) -> None:
        """Have a key's time be up."""
        async with self.services.storage.engine.begin() as connection:
            await connection.execute(update(keys).where(keys.c.id == key_id).values(expires_at=func.now()))

    @asynccontextmanager
    async def client(self, key: str = TOKEN) -> AsyncGenerator[aiohttp.ClientSession]:
        headers = {"Authorization": f"Bearer {key}"}
        async with aiohttp.ClientSession(self.url, headers=headers) as client:
            yield client

    @asynccontextmanager
    async def app(self, **settings: object) -> AsyncGenerator[FastAPI]:
        """An application of its own over the same store, with other settings."""
        changed = self.settings.model_copy(update=settings)
        async with open_access_control(changed, self.services.storage.keys, TOKEN) as access:
            yield make_app(self.services, "test", access)


class SteppedClock(SystemClock):
    """The machine's clock, some seconds ahead."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def door(module_database_url: str) -> AsyncGenerator[Door]:
    settings = Settings(database_url=SecretStr(module_database_url), rate_per_minute=100_000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(access_keys, "_CHECK_SECONDS", 0.2)
        async with (
            open_services(settings, Database(module_database_url, module_database_url)) as services,
            served_api(settings, services) as served,
        ):
            yield Door(settings, services, served.url)


@asynccontextmanager
async def calling(
    app: FastAPI, key: str = "", address: tuple[str, int] = ELSEWHERE
) -> AsyncGenerator[httpx.AsyncClient]:
    """Call an application from an address, without a network."""
    transport = httpx.ASGITransport(app, client=address)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with httpx.AsyncClient(transport=transport, base_url="http://starling.example", headers=headers) as client:
        yield client


async def test_request_with_a_key_is_served_from_any_address_and_origin(door: Door) -> None:
    _, key = await door.key()
    headers = {"X-Forwarded-For": "198.51.100.1", "Origin": "https://shop.example"}

    async with door.app() as app, calling(app, key) as client:
        response = await client.get(f"/v1/runs/{new_id()}/events", headers=headers)

    assert response.json()["code"] == "not_found"


@pytest.mark.parametrize("end", ["revoked", "expired"])
async def test_revoked_or_expired_key_ends_its_stream(door: Door, end: str) -> None:
    key_id, key = await door.key()
    _, other = await door.key()
    body = {"input": "hello", "thread_id": end}

    async with door.client(key) as client, client.post("/v1/agent/run", json=body) as response:
        events = read_events(response)
        first = await anext(events)
        async with door.client(other) as bystander, bystander.get(f"/v1/runs/{first.data['run_id']}/events") as staying:
            await anext(staying_events := read_events(staying))
            await (
                door.services.storage.keys.revoke(HOST_ADMIN, key_id, ADMIN)
                if end == "revoked"
                else door.expire(key_id)
            )
            async with asyncio.timeout(60):
                assert [event async for event in events] == []
            following = asyncio.ensure_future(anext(staying_events))
            assert not following.done()
            following.cancel()


@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_revoked_key_ends_the_stream_of_an_openai_client_with_an_error(door: Door, api: str) -> None:
    key_id, key = await door.key()

    async with openai_client(door.url, key) as client:
        stream = await (
            client.chat.completions.create(
                model="starling", messages=[{"role": "user", "content": "hello"}], stream=True
            )
            if api == "chat"
            else client.responses.create(model="starling", input="hello", stream=True)
        )
        await anext(aiter(stream))
        await door.services.storage.keys.revoke(HOST_ADMIN, key_id, ADMIN)
        with pytest.raises(openai.APIError, match="was revoked"):
            assert [event async for event in stream] == []


async def test_revoked_key_ends_its_waiting_request(door: Door) -> None:
    key_id, key = await door.key()

    async with door.client(key) as client:
        waiting = asyncio.ensure_future(client.post("/process", json={"input": "hello", "thread_id": "wait"}))
        async with asyncio.timeout(60):
            while not [
                row
                for row in await door.services.storage.keys.every(HOST_ADMIN)
                if row.id == key_id and row.last_used_at
            ]:
                pass
        await door.services.storage.keys.revoke(HOST_ADMIN, key_id, ADMIN)
        async with asyncio.timeout(60), await waiting as response:
            assert response.status == 401
            assert "`starling key create`" in (await response.json())["remedy"]


async def test_revoked_key_is_refused_two_seconds_later(door: Door) -> None:
    clock = SteppedClock()
    known = KeyService(KeyRepository(door.services.storage.engine), clock)
    key_id, key = await door.key()

    async with (
        open_access_control(door.settings, known, TOKEN) as access,
        calling(make_app(door.services, "test", access), key) as client,
    ):
        before = await client.get("/health")
        await door.services.storage.keys.revoke(HOST_ADMIN, key_id, ADMIN)
        clock.ahead = 2.001
        after = await client.get("/health")

    assert (before.status_code, after.status_code) == (200, 401)
    assert "revoked" in after.json()["detail"]


async def test_key_that_was_served_before_reads_the_metrics_and_nothing_else_while_postgres_is_away(
    open_folder: Path,
) -> None:
    wish, clock = KeySpec("prometheus", "default", frozenset({Scope.RUN, Scope.ADMIN})), SteppedClock()
    with EmbeddedPostgres(open_folder, durable=False) as postgres:
        await upgrade(postgres.url)
        settings = Settings(database_url=SecretStr(postgres.url), require_keys=True)
        async with (
            open_services(settings, Database(postgres.url, postgres.url)) as services,
            open_access_control(settings, known := KeyService(KeyRepository(services.storage.engine), clock)) as access,
        ):
            (_, key), (_, unused) = [await known.create(HOST_ADMIN, wish, ADMIN) for _ in range(2)]
            app = make_app(services, "test", access)
            async with calling(app, key) as client, calling(app, unused) as stranger, calling(app) as nobody:
                before = await client.get("/v1/runs")
                postgres.stop()
                clock.ahead = 2.001
                away = await client.get("/metrics")
                others = [await client.get("/v1/runs"), await stranger.get("/metrics"), await nobody.get("/metrics")]
                wrong = await client.get("/metrics", headers={"Authorization": f"Bearer {key[:-1]}_"})

    assert (before.status_code, away.status_code) == (200, 200)
    assert "starling_database_up 0.0" in away.text
    assert [answer.status_code for answer in (*others, wrong)] == [503, 503, 401, 503]


async def test_expired_key_is_refused(door: Door) -> None:
    _, key = await door.key(lifetime=timedelta(seconds=-1))

    async with door.client(key) as client, client.get("/health") as response:
        assert response.status == 401
        assert "expired" in (await response.json())["detail"]


async def test_request_from_this_machine_needs_a_key_when_keys_are_required(door: Door) -> None:
    _, key = await door.key()
    run = f"/v1/runs/{new_id()}/events"

    async with door.app(require_keys=True) as app:
        for other in ("", TOKEN):
            async with calling(app, other, HERE) as client:
                assert (await client.get("http://localhost" + run)).status_code == 401
        async with calling(app, address=HERE) as client:
            assert (await client.get("http://localhost/health")).status_code == 200
        async with calling(app, key, HERE) as client:
            assert (await client.get(run)).status_code == 404


async def test_repeated_wrong_keys_are_refused_with_429_but_no_right_one(door: Door) -> None:
    run, (_, key), (_, other) = f"/v1/runs/{new_id()}", await door.key(), await door.key()

    async def statuses(app: FastAPI, *keys: str, client: str = "192.0.2.1") -> list[int]:
        async with calling(app) as calls:
            headers = [{"Authorization": f"Bearer {key}", "X-Forwarded-For": client} for key in keys]
            answers = [await calls.get(run, headers=header) for header in headers]
        return [answer.status_code for answer in answers]

    async with door.app(trusted_proxies=(ELSEWHERE[0],)) as app:
        wrong = [f"sk-starling-{'0' * 32}-{'x' * 43}", "sk-starling-wrong"]

        assert await statuses(app, key) == [404]
        assert await statuses(app, *wrong * 11) == [401] * 20 + [429] * 2
        assert await statuses(app, key, other) == [404, 404]
        assert await statuses(app, *wrong, client="192.0.2.2") == [401, 401]


async def test_request_without_a_key_is_served_while_no_key_is_active(empty_of_keys: Services) -> None:
    async def statuses() -> list[int]:
        uncached = KeyService(KeyRepository(empty_of_keys.storage.engine), SystemClock())
        async with (
            open_access_control(Settings(), uncached) as access,
            calling(make_app(empty_of_keys, "test", access), address=HERE) as client,
        ):
            return [(await client.get(f"http://localhost{path}")).status_code for path in ("/v1/runs", "/health")]

    before = await statuses()
    row, _ = await empty_of_keys.storage.keys.create(HOST_ADMIN, KeySpec("test", "shop", frozenset({Scope.RUN})), ADMIN)
    while_active = await statuses()
    await empty_of_keys.storage.keys.revoke(HOST_ADMIN, row.id, ADMIN)

    assert (before, while_active, await statuses()) == ([200, 200], [401, 200], [200, 200])


async def test_request_without_a_key_is_refused_where_other_machines_reach_the_api(empty_of_keys: Services) -> None:
    row, _ = await empty_of_keys.storage.keys.create(HOST_ADMIN, KeySpec("test", "shop", frozenset({Scope.RUN})), ADMIN)
    open_to_all = Settings(host="0.0.0.0")  # noqa: S104 - what it is about

    async with open_access_control(open_to_all, empty_of_keys.storage.keys, TOKEN) as access:
        await empty_of_keys.storage.keys.revoke(HOST_ADMIN, row.id, ADMIN)  # no key is active any more
        app = make_app(empty_of_keys, "test", access)
        async with calling(app, address=HERE) as client, calling(app, TOKEN, HERE) as command:
            answers = [await one.get("http://localhost/v1/runs") for one in (client, command)]

    assert [answer.status_code for answer in answers] == [401, 200]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/v1/registry", None),
        ("POST", "/v1/registry/plan", {"mcpServers": {"x": {"command": "/bin/touch", "args": ["planned"]}}}),
        ("POST", "/v1/registry/reload", {"mcpServers": {}}),
        ("PUT", "/v1/switches", {"kind": "tenant", "name": "mill", "reason": "x"}),
        ("GET", "/metrics", None),
    ],
)
async def test_request_without_a_key_is_never_that_of_an_admin(
    empty_of_keys: Services, method: str, path: str, body: object
) -> None:
    async with open_access_control(Settings(), empty_of_keys.storage.keys, TOKEN) as access:
        app = make_app(empty_of_keys, "test", access)
        async with calling(app, address=HERE) as client, calling(app, f"{TOKEN}x", HERE) as guessing:
            refused = [await one.request(method, f"http://localhost{path}", json=body) for one in (client, guessing)]

    assert [answer.status_code for answer in refused] == [401, 401]
    assert "`token` in the data folder" in refused[0].json()["remedy"]


async def test_local_token_makes_a_request_of_this_machine_that_of_an_admin_also_while_keys_are_active(
    door: Door,
) -> None:
    await door.key()

    async with door.app() as app, calling(app, TOKEN, HERE) as client, calling(app, TOKEN) as elsewhere:
        accepted = await client.get("http://localhost/v1/registry")
        forwarded = await client.get("http://localhost/v1/registry", headers={"X-Forwarded-For": "198.51.100.1"})
        remote = await elsewhere.get("http://localhost/v1/registry")

    assert [answer.status_code for answer in (accepted, forwarded, remote)] == [200, 401, 401]


@pytest.mark.parametrize("required", [False, True])
async def test_openapi_states_whether_a_call_needs_a_key(door: Door, required: bool) -> None:
    with_a_key: dict[str, list[str]] = {"HTTPBearer": []}

    async with door.app(require_keys=required) as app:
        described = [app.openapi()["paths"], app.openapi()["paths"]]

    for paths in described:
        assert paths["/process"]["post"]["security"] == ([with_a_key] if required else [{}, with_a_key])
        assert "security" not in paths["/health"]["get"]


async def test_key_over_its_rate_limit_is_refused_with_retry_after(door: Door) -> None:
    (_, key), (_, other) = await door.key(), await door.key()

    async with door.app(rate_per_minute=2) as app, calling(app, key) as client, calling(app, other) as patient:
        answers = [await client.get("/health") for _ in range(3)]

        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert answers[2].json()["code"] == "rate_limited"
        assert 1 <= int(answers[2].headers["Retry-After"]) <= 30
        assert (await patient.get("/health")).status_code == 200


async def test_ready_route_names_servers_to_administrators_and_keys_with_scope_servers_only(door: Door) -> None:
    everybodys = {"command": "no-such-command"}
    config = {"common": everybodys, "vault": everybodys | {"x-starling": {"tenants": ["bank"]}}}
    await door.services.registry.reload({name: server_of(each) for name, each in config.items()}, ADMIN)
    scopes = {"run": Scope.RUN, "admin": Scope.ADMIN, "shop": Scope.SERVERS, "bank": Scope.SERVERS}
    keys_ = {who: (await door.key(scope, tenant=who))[1] for who, scope in scopes.items()}

    told: dict[str, list[str]] = {}
    async with door.app() as app:
        for who, key in ({"nobody": ""} | keys_).items():
            async with calling(app, key) as client:
                response = await client.get("/ready")
                assert response.status_code == 200
                told[who] = [server["name"] for server in response.json()["servers"]]

    assert told == {
        "nobody": [],
        "run": [],
        "admin": ["common", "vault"],
        "shop": ["common"],
        "bank": ["common", "vault"],
    }


async def test_open_address_is_refused_without_a_usable_key(empty_of_keys: Services) -> None:
    keys_ = empty_of_keys.storage.keys
    with pytest.raises(ConfigurationError, match="there is no key"):
        await refuse_open_binding("0.0.0.0", keys_)  # noqa: S104 - what it is about
    row, _ = await keys_.create(HOST_ADMIN, KeySpec("test", "default", frozenset({Scope.RUN})), ADMIN)

    await refuse_open_binding("0.0.0.0", keys_)  # noqa: S104

    await keys_.revoke(HOST_ADMIN, row.id, ADMIN)
    with pytest.raises(ConfigurationError):
        await refuse_open_binding("::", keys_)
    await refuse_open_binding("127.0.0.1", keys_)


async def test_creating_and_revoking_a_key_is_audited(door: Door) -> None:
    key_id, _ = await door.key(Scope.ADMIN, tenant="shop")
    await door.services.storage.keys.revoke(HOST_ADMIN, key_id, ADMIN)
    await door.services.storage.keys.revoke(HOST_ADMIN, key_id, ADMIN)

    entries = [
        entry for entry in await latest(door.services.storage.engine, SHARED, limit=100) if entry.target == key_id
    ]

    assert [entry.action for entry in entries] == ["key.revoke", "key.create"]
    assert entries[1].detail == {"tenant": "shop", "name": "test", "scopes": ["admin"], "grants": None}
    assert (entries[0].by, entries[0].origin) == (ADMIN.name, ADMIN.origin)


async def test_last_use_of_a_key_is_updated_at_most_every_five_minutes(door: Door) -> None:
    key_id, _ = await door.key()
    repository = KeyRepository(door.services.storage.engine)

    async def last_used() -> object:
        found = await repository.find_with_hash(key_id)
        assert found
        return found[0].last_used_at

    await repository.use(key_id)
    first = await last_used()
    await repository.use(key_id)
    assert await last_used() == first is not None
    async with door.services.storage.engine.begin() as connection:
        long_ago = SystemClock().now() - timedelta(minutes=6)
        await connection.execute(update(keys).where(keys.c.id == key_id).values(last_used_at=long_ago))
    await repository.use(key_id)
    assert await last_used() != long_ago


@pytest_asyncio.fixture(loop_scope="module")
async def empty_of_keys(database_url: str) -> AsyncGenerator[Services]:
    settings = Settings(database_url=SecretStr(database_url))
    async with open_services(settings, Database(database_url, database_url)) as services:
        yield services
