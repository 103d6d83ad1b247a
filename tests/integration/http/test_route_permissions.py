"""Every route refuses callers without permission and changes nothing."""

import hashlib
import json
import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import httpx
import pytest
import pytest_asyncio
from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.routing import iter_route_contexts
from pydantic import SecretStr
from sqlalchemy import Table, select

from starling.app.access.keys import KeySpec
from starling.app.container.database import Database
from starling.app.container.services import open_services
from starling.app.http.authentication import OPEN, RequireScope, open_access_control, optional_caller
from starling.app.runs.acceptance import RunRequest
from starling.app.services import Services
from starling.core.artifacts import ArtifactOrigin, artifact_id
from starling.core.principal import HOST_ADMIN, Principal, Scope
from starling.core.settings.schema import Settings
from starling.infra.postgres.audit import Actor
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.tables.access import metadata
from tests.integration.http.test_keys import ELSEWHERE
from tests.support.http_app import make_app
from tests.support.local_access import TOKEN

pytestmark = pytest.mark.asyncio(loop_scope="module")

ADMIN = Actor.local("test")
BANK, SHOP = "bank", "shop"
SECRET_WORDS = "the vault opens at nine"
ARTIFACT = artifact_id(SECRET_WORDS.encode())
AGENT = "teller"
CREW = "tellers"
MAKES = {  # what there isn't yet, of the name in its path
    ("POST", "/v1/teams/{name}/versions"),
    ("POST", "/v1/threads/{thread_id:path}/states"),
}
ORDER = "order-4711"  # the bank's idempotency key
LISTS = {"/v1/runs/{run_id}/resume"}  # paths whose body is a list
NOBODYS = "01a1f8ac-cbf4-7cdd-97b7-5ad5f772744e"
SKILL: dict[str, Any] = {
    "format": "starling.skill",
    "version": 1,
    "task": SECRET_WORDS,
    "template": SECRET_WORDS,
    "calls": [{"tool": "vault.open", "arguments": {}}],
    "outcome": SECRET_WORDS,
    "tools": {"vault.open": "hash"},
    "agent_kind": "custom",
    "agent": AGENT,
}
TEAM: dict[str, Any] = {
    "name": CREW,
    "purpose": SECRET_WORDS,
    "members": [{"name": "writer", "role": "Writer", "goal": SECRET_WORDS}],
}
BODIES: dict[str, Any] = {  # a good body of each route that takes one
    "/v1/agent/run": {"input": "hello", "thread_id": "t"},
    "/process": {"input": "hello", "thread_id": "t"},
    "/execute": {"tool_name": "vault.open"},
    "/v1/runs": {"input": "hello", "thread_id": "t"},
    "/v1/runs/{run_id}/cancel": {},
    "/v1/runs/{run_id}/feedback": {"score": 1},
    "/v1/runs/{run_id}/fork": {},
    "/v1/runs/{run_id}/resume": [{"interruptId": NOBODYS, "status": "cancelled"}],
    "/v1/approvals/{interrupt_id}": {"status": "cancelled"},
    "/v1/agents": {"id": AGENT},
    "/v1/skills/import": SKILL,
    "/v1/skills/{skill_id}/retire": {"reason": "why"},
    "/v1/skills/{skill_id}/restore": {},
    "/v1/switches": {"kind": "server", "name": "vault", "reason": "why"},
    "/v1/teams": {"goal": "Count the coins."},
    "/v1/teams/check": {"spec": TEAM},
    "/v1/teams/{name}/prove": {},
    "/v1/teams/{name}/versions": {"spec": TEAM},
    "/v1/teams/{name}/activate": {},
    "/v1/teams/{name}/rollback": {},
    "/v1/teams/{name}/archive": {},
    "/v1/threads/{thread_id:path}/states": {"messages": [{"role": "user", "content": "hello"}]},
    "/v1/threads/{thread_id:path}/fork": {},
    "/v1/threads/{thread_id:path}/checkout": {"branch": "main"},
    "/v1/threads/{thread_id:path}/rewind": {"position": 0},
    "/v1/threads/{thread_id:path}/prune": {},
    "/v1/keys": {"name": "ci"},
    "/v1/servers": {"name": "shop", "config": {"url": "https://shop.example/mcp"}},
    "/v1/servers/{name}/test": {},
    "/v1/servers/{name}/tools/{tool:path}": {"timeout": 3},
    "/v1/servers/{name}/approve": {"tools": {"act": "0" * 64}},
    "/v1/chat/completions": {"model": "nobodys", "messages": [{"role": "user", "content": "hello"}]},
    "/v1/responses": {"model": "nobodys", "input": "hello"},  # without a run, which nobody would execute
    "/v1/responses/{response_id}/cancel": {},
    "/v1/registry/plan": {"mcpServers": {}},
    "/v1/registry/reload": {"mcpServers": {}},
    "/v1/registry/rollback": {},
    "/v1/governance/check": {},
    "/v1/prompts/pull": {},
    "/v1/doctor": {},
    "/v1/console/codes": {},
    "/v1/console/sessions": {"code": "nobodys"},
}
CONSOLE = {"/console", "/console/{path:path}"}  # files without data
OF_ANYBODY = {"/v1/console/codes", "/v1/console/session"}  # for whoever was let in


@dataclass(frozen=True, slots=True)
class Call:
    """One method of one route."""

    method: str
    path: str
    parameters: tuple[str, ...] = ()
    scopes: frozenset[Scope] = frozenset()  # of which it asks for one
    declared: bool = False  # that it says who may call it

    @property
    def body(self) -> Any:
        return None if self.method == "GET" else BODIES.get(self.path)


@dataclass(frozen=True, slots=True)
class Town:
    """An application with two tenants: the bank has a run, a skill, an agent and a team, the shop has keys."""

    app: FastAPI
    services: Services
    run: RunKey
    skill: str  # the bank's
    key_id: str  # of a key of the bank's
    keys: dict[frozenset[Scope], str] = field(default_factory=dict[frozenset[Scope], str])

    @property
    def calls(self) -> list[Call]:
        return list(calls_of(self.app))

    async def key(self, scopes: frozenset[Scope], tenant: str = SHOP) -> str:
        """Return a key of the shop's that was used before."""
        if scopes not in self.keys:
            row, key = await self.services.storage.keys.create(HOST_ADMIN, KeySpec("test", tenant, scopes), ADMIN)
            await self.services.storage.keys.authenticate(key)
            assert row.state == "active"
            self.keys[scopes] = key
        return self.keys[scopes]

    async def checksum(self, tenant: str | None = None) -> dict[str, str]:
        """Return a hash of the content of every table, or of a tenant's rows in it."""
        async with self.services.storage.engine.connect() as connection:
            return {
                table.name: _hash([repr(row) for row in await connection.execute(_rows(table, tenant))])
                for table in metadata.sorted_tables
            }


def calls_of(app: FastAPI) -> Iterator[Call]:
    """Return every method of every route, the documentation's too."""
    for route in iter_route_contexts(app.routes):
        path = route.path or ""
        parameters = tuple(re.findall(r"{(\w+)", path))
        dependant: Dependant | None = getattr(route, "dependant", None)
        declared, scopes = declared_by(dependant) if dependant else (False, frozenset[Scope]())
        for method in sorted((route.methods or {"GET"}) - {"HEAD"}):
            yield Call(method, path, parameters, scopes, declared or path in DOCUMENTATION)


# For anybody who was let in.
DOCUMENTATION = {"/openapi.json", "/docs", "/docs/oauth2-redirect", "/redoc", "/static-offline-docs"}


def declared_by(dependant: Dependant) -> tuple[bool, frozenset[Scope]]:
    """Return whether a route says who may call it, and the scopes of which it asks for one."""
    if isinstance(dependant.call, RequireScope):
        return True, dependant.call.scopes
    if dependant.call is optional_caller:
        return True, frozenset()
    found = [declared_by(below) for below in dependant.dependencies]
    return next((pair for pair in found if pair[0]), (False, frozenset[Scope]()))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def town(module_database_url: str) -> AsyncGenerator[Town]:
    """Nobody works here, so that nothing changes by itself."""
    settings = Settings(
        database_url=SecretStr(module_database_url), rate_per_minute=100_000, wrong_keys_per_minute=100_000
    )
    async with (
        open_services(settings, Database(module_database_url, module_database_url)) as services,
        open_access_control(settings, services.storage.keys, TOKEN) as access,
    ):
        owner = Principal(BANK, "", frozenset(Scope))
        accepted = await services.runs.acceptance.accept(
            owner, RunRequest(input=SECRET_WORDS, thread_id="vault"), ORDER
        )
        read = ArtifactOrigin(BANK, accepted.key.id, "t1.0.0", "vault.read")
        assert await services.storage.artifacts.put(read, SECRET_WORDS.encode(), "text/plain") == ARTIFACT
        app = make_app(services, "test", access)
        (skill,) = await services.skill_import.store(BANK, json.dumps(SKILL).encode(), ADMIN)
        row, credentials = await services.storage.keys.create(
            HOST_ADMIN, KeySpec("bank", BANK, frozenset(Scope)), ADMIN
        )
        town = Town(app, services, accepted.key, skill.id, row.id)
        async with client_of(town, f"Bearer {credentials}") as client:
            response = await client.post("/v1/agents", json={"id": AGENT, "behavior_template": SECRET_WORDS})
            assert response.status_code == 201, response.text
            response = await client.post(f"/v1/teams/{CREW}/versions", json={"spec": TEAM})
            assert response.status_code == 201, response.text
            response = await client.post(f"/v1/teams/{CREW}/activate")
            assert response.status_code == 200, response.text
        yield town


@asynccontextmanager
async def client_of(town: Town, credentials: str = "") -> AsyncGenerator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(town.app, client=ELSEWHERE)
    headers = {"Authorization": credentials} if credentials else {}
    async with httpx.AsyncClient(transport=transport, base_url="http://starling.example", headers=headers) as client:
        yield client


async def ask(client: httpx.AsyncClient, call: Call, town: Town, **more: Any) -> httpx.Response:
    """Make a call that is in order but for who makes it: with what is the bank's in its path."""
    banks = {
        "run_id": town.run.id,
        "thread_id": "vault",
        "other_id": town.run.id,
        "interrupt_id": NOBODYS,
        "name": CREW if call.path.startswith("/v1/teams") else AGENT,
        "artifact": ARTIFACT,
        "skill_id": town.skill,
        "model": AGENT,
        "response_id": f"resp_{town.run.id.replace('-', '')}",
        "key_id": town.key_id,
        "version": "1",
        "tool": "get",
        "path": "index.html",
    }  # what the bank has, for each parameter of a path that there is
    path = call.path.replace(":path", "").format(**{parameter: banks[parameter] for parameter in call.parameters})
    request: dict[str, Any] = {"json": call.body} | more
    return await client.request(call.method, path, **request)


async def test_every_route_declares_its_required_scope(town: Town) -> None:
    silent = [call for call in town.calls if not call.declared]
    open_ones = {call.path for call in town.calls if call.declared and not call.scopes}
    unknown = [call for call in town.calls if call.method in ("POST", "PUT", "PATCH") and call.body is None]

    assert silent == [], (
        "take Caller, Admin, TeamCaller, TeamReader or OptionalCaller from starling.app.http.dependencies"
    )
    assert open_ones == OPEN | DOCUMENTATION | CONSOLE | OF_ANYBODY
    assert unknown == [], "give BODIES a good body of it"


async def test_route_without_a_declared_scope_is_found(town: Town) -> None:
    app = FastAPI()

    @app.get("/leak")
    async def leak() -> None:
        pass

    assert [call.path for call in calls_of(app) if not call.declared] == ["/leak"]


async def test_remote_request_without_a_key_is_refused(town: Town) -> None:
    before = await town.checksum()

    async with client_of(town) as client:
        answers = {call: await ask(client, call, town) for call in town.calls if call.path not in OPEN | CONSOLE}

    assert {call.path: answer.status_code for call, answer in answers.items() if answer.status_code != 401} == {}
    assert {answer.headers["WWW-Authenticate"] for answer in answers.values()} == {'Bearer realm="starling"'}
    assert await town.checksum() == before


async def test_invalid_key_is_refused_on_every_route(town: Town) -> None:
    every = frozenset(Scope)
    good = await town.key(every)
    row, revoked = await town.services.storage.keys.create(HOST_ADMIN, KeySpec("test", SHOP, every), ADMIN)
    await town.services.storage.keys.revoke(HOST_ADMIN, row.id, ADMIN)
    past = timedelta(seconds=-1)
    _, expired = await town.services.storage.keys.create(HOST_ADMIN, KeySpec("test", SHOP, every, lifetime=past), ADMIN)
    wrong_secret, unknown = f"{good[:-43]}{'A' * 43}", f"sk-starling-{'0' * 32}-{'A' * 43}"
    shown = ["Bearer", "Bearer x", f"Basic {good}", good, f"Bearer {good}x", f"Bearer {good} {good}"]
    shown += [f"Bearer {key}" for key in (wrong_secret, unknown, revoked, expired, f"{'a' * 100_000}")]
    before = await town.checksum()

    wrong: list[tuple[str, str, int]] = []
    for credentials in shown:
        async with client_of(town, credentials) as client:
            answers = [(call.path, (await ask(client, call, town)).status_code) for call in town.calls]
            wrong += [(credentials[:40], *answer) for answer in answers if answer[1] != 401]

    assert wrong == []
    assert await town.checksum() == before


async def test_key_without_the_required_scope_is_refused(town: Town) -> None:
    others = {call: await town.key(frozenset(Scope) - call.scopes) for call in town.calls if call.scopes}
    before = await town.checksum()

    answers: dict[str, int] = {}
    for call, key in others.items():
        async with client_of(town, f"Bearer {key}") as client:
            response = await ask(client, call, town)
            answers[f"{call.method} {call.path}"] = response.status_code
            answer = response.json()
            assert answer.get("error", answer)["code"] == "forbidden"

    assert set(answers.values()) == {403}
    assert await town.checksum() == before


async def test_path_with_an_id_of_another_tenant_is_not_found(town: Town) -> None:
    key = await town.key(frozenset(Scope))
    before = await town.checksum()

    async with client_of(town, f"Bearer {key}") as client:
        calls = [call for call in town.calls if call.parameters and (call.method, call.path) not in MAKES]
        calls = [call for call in calls if call.path not in CONSOLE]
        answers = {(call.method, call.path): await ask(client, call, town) for call in calls}

    assert len(answers) == len(calls) > 0
    assert {asked: answer.status_code for asked, answer in answers.items() if answer.status_code != 404} == {}
    assert await town.checksum() == before


async def test_tenant_named_in_body_query_or_header_is_ignored(town: Town) -> None:
    key = await town.key(frozenset(Scope))
    foreign = {"tenant": BANK, "run_id": town.run.id, "thread_id": "vault", "key_id": town.run.id}
    headers = {"X-Tenant": BANK, "Tenant": BANK, "X-Tenant-Id": BANK, "Last-Event-ID": "0", "X-Run-Id": town.run.id}
    asking = {"/v1/agent/run", "/process", "/v1/runs"}  # accepted, most would wait for a worker
    before = await town.checksum(BANK)

    async with client_of(town, f"Bearer {key}") as client:
        for call in town.calls:
            body = call.body if call.body is None or call.path in LISTS else call.body | foreign
            response = await ask(client, call, town, params=foreign, headers=headers, json=body)
            assert SECRET_WORDS not in response.text, call
            assert call.body is None or call.path not in asking or response.status_code == 422, call

    assert await town.checksum(BANK) == before


async def test_list_filtered_by_an_id_of_another_tenant_omits_its_runs(town: Town) -> None:
    key = await town.key(frozenset(Scope))
    banks = {"run_id": town.run.id, "thread_id": "vault", "before": f"f{town.run.id[1:]}", "status": "queued"}
    lists = {
        path: {parameter["name"] for parameter in operations["get"].get("parameters", ())} & banks.keys()
        for path, operations in town.app.openapi()["paths"].items()
        if "get" in operations and "{" not in path
    }

    answers: dict[str, str] = {}
    async with client_of(town, f"Bearer {key}") as client:
        for path, parameters in lists.items():
            for name in parameters:
                response = await client.get(path, params={name: banks[name]})
                assert response.status_code == 200
                answers[f"{path}?{name}"] = response.text

    assert {"/v1/runs?thread_id", "/v1/runs?before", "/v1/approvals?run_id"} <= answers.keys()
    assert [asked for asked, found in answers.items() if town.run.id in found] == []


async def test_threads_of_other_tenants_are_not_listed(town: Town) -> None:
    own = {BANK: "cellar", SHOP: "counter"}
    listed: dict[str, set[str]] = {}

    for tenant, thread in own.items():
        _, key = await town.services.storage.keys.create(HOST_ADMIN, KeySpec("test", tenant, frozenset(Scope)), ADMIN)
        async with client_of(town, f"Bearer {key}") as client:
            made = await client.post(
                f"/v1/threads/{thread}/states", json={"messages": [{"role": "user", "content": "x"}]}
            )
            assert made.status_code == 201, made.text
    for tenant in own:
        _, key = await town.services.storage.keys.create(HOST_ADMIN, KeySpec("test", tenant, frozenset(Scope)), ADMIN)
        async with client_of(town, f"Bearer {key}") as client:
            threads = (await client.get("/v1/threads", params={"limit": 200})).json()["threads"]
            listed[tenant] = {thread["id"] for thread in threads}

    assert {tenant: found & set(own.values()) for tenant, found in listed.items()} == {
        tenant: {thread} for tenant, thread in own.items()
    }


async def test_unfinished_runs_of_all_tenants_are_listed_for_admins_alone(town: Town) -> None:
    admins, others = frozenset({Scope.ADMIN}), frozenset(Scope) - {Scope.ADMIN}
    refused: list[int] = []

    async with client_of(town, f"Bearer {await town.key(admins)}") as client:
        listed = (await client.get("/v1/runs?all_tenants=true")).json()["runs"]
        none = (await client.get("/v1/runs?all_tenants=true&status=waiting")).json()["runs"]
        refused.append((await client.get("/v1/runs")).status_code)
        refused.append((await client.get("/v1/runs?all_tenants=true&status=failed")).status_code)
    async with client_of(town, f"Bearer {await town.key(others)}") as client:
        refused.append((await client.get("/v1/runs?all_tenants=true")).status_code)

    assert (BANK, town.run.id, "queued") in [(run["tenant"], run["run_id"], run["status"]) for run in listed]
    assert none == []
    assert refused == [403, 422, 403]


async def test_idempotency_key_of_another_tenant_creates_a_run_of_its_own(town: Town) -> None:
    key = await town.key(frozenset(Scope))
    before = await town.checksum(BANK)

    async with client_of(town, f"Bearer {key}") as client:
        request = {"input": SECRET_WORDS, "thread_id": "safe"}
        first, again = [
            await client.post("/v1/runs", json=request, headers={"Idempotency-Key": ORDER}) for _ in range(2)
        ]

    assert first.status_code == 202
    assert first.json()["run_id"] == again.json()["run_id"] != town.run.id
    assert await town.checksum(BANK) == before


async def test_thread_of_the_same_name_is_separate_per_tenant(town: Town) -> None:
    before = await town.checksum(BANK)
    principal = Principal(SHOP, "", frozenset(Scope))

    accepted = await town.services.runs.acceptance.accept(principal, RunRequest(input="hello", thread_id="vault"))

    assert (await town.services.runs.documents.row(accepted.key)).thread_id == "vault"
    assert await town.checksum(BANK) == before


def _rows(table: Table, tenant: str | None) -> Any:
    query = select(table).order_by(*table.primary_key.columns)
    return query if tenant is None else query.where(table.c.tenant == tenant)


def _hash(rows: list[str]) -> str:
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()
