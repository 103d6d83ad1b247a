"""Keys over HTTP: an admin of the machine manages all, a key those of its tenant, and gives no more than it has."""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

import aiohttp
import pytest
from sqlalchemy import func, update

from starling.app.access.keys import KeySpec
from starling.core.ids import new_id
from starling.core.principal import HOST_ADMIN, Grant, Scope
from starling.infra.postgres.audit import Actor, latest
from starling.infra.postgres.tables.access import keys
from tests.integration.http.conftest import LiveApi
from tests.support.run_factories import wait_for_lock_waiter

pytestmark = pytest.mark.asyncio(loop_scope="module")

ADMINS = (Scope.ADMIN, Scope.RUN)
WITHIN = 'Name a `grant` within yours: {"tools": ["git.log"], "servers": ["time"]}.'


async def create(api: LiveApi, status: int = 201, headers: Mapping[str, str] | None = None, **body: Any) -> Any:
    return await api.post("/v1/keys", json={"name": "ci", **body}, status=status, headers=headers or {})


async def listed(api: LiveApi, headers: Mapping[str, str] | None = None, **query: str) -> set[str]:
    found = await api.get("/v1/keys", headers=headers or {}, params=query)
    assert "hash" not in str(found)
    return {key["id"] for key in found["keys"]}


def shown(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def test_key_is_shown_once_works_and_ends_when_it_is_revoked(api: LiveApi) -> None:
    async with api.client.post("/v1/keys", json={"name": "ci"}) as response:
        made, cached = await response.json(), response.headers["Cache-Control"]
    await api.get("/v1/runs", headers=shown(made["key"]))
    kept = next(key for key in (await api.get("/v1/keys"))["keys"] if key["id"] == made["id"])
    revoked = await api.delete(f"/v1/keys/{made['id']}")

    assert cached == "no-store"
    assert UUID(made["key"].split("-")[2]) == UUID(made["id"])
    assert "key" not in kept
    assert (kept["state"], kept["scopes"], kept["grant"], kept["expires_at"]) == ("active", ["run"], None, None)
    assert (revoked["id"], revoked["state"]) == (made["id"], "revoked")
    entries = await latest(api.services.storage.engine, "default", limit=2)
    assert [(entry.change.action, entry.change.target) for entry in entries] == [
        ("key.revoke", made["id"]),
        ("key.create", made["id"]),
    ]
    assert made["key"].split("-")[3] not in str(entries)


async def test_admin_of_the_machine_manages_the_keys_of_any_tenant(api: LiveApi) -> None:
    made = await create(
        api,
        tenant="shop",
        scopes=["run", "teams"],
        grant={"servers": ["time"], "tools": ["git.log"]},
        expires_in=3600,
    )

    assert (made["tenant"], made["scopes"]) == ("shop", ["run", "teams"])
    assert made["grant"] == {"servers": ["time"], "tools": ["git.log"]}
    assert made["expires_at"] is not None
    assert made["id"] in await listed(api)
    assert made["id"] in await listed(api, tenant="shop")
    assert made["id"] not in await listed(api, tenant="bank")
    await api.delete(f"/v1/keys/{made['id']}")


async def test_key_sees_and_revokes_the_keys_of_its_tenant_alone(api: LiveApi) -> None:
    admin = await api.key(*ADMINS, tenant="shop")
    own = await create(api, headers=admin)
    others = await create(api, tenant="bank")

    seen = await listed(api, admin)
    await api.get("/v1/keys", params={"tenant": "bank"}, status=403, headers=admin)
    await create(api, tenant="bank", status=403, headers=admin)
    hidden = await api.delete(f"/v1/keys/{others['id']}", status=404, headers=admin)
    unknown = await api.delete(f"/v1/keys/{new_id()}", status=404, headers=admin)
    ended = await api.delete(f"/v1/keys/{own['id']}", headers=admin)

    assert own["tenant"] == "shop"
    assert own["id"] in seen
    assert others["id"] not in seen
    assert hidden["detail"].replace(others["id"], "") == unknown["detail"].replace(unknown["detail"].split("'")[1], "")
    assert ended["state"] == "revoked"
    await api.delete(f"/v1/keys/{others['id']}")


@pytest.mark.parametrize(
    ("wanted", "lacks", "remedy"),
    [
        ({"scopes": ["run", "teams"]}, "lacks the scopes teams", "Name `scopes` that it has: admin, run."),
        ({"scopes": ["run"]}, "its grant reaches less", WITHIN),
        ({"grant": {"servers": ["time", "git"]}}, "its grant reaches less", WITHIN),
        ({"grant": {"tools": ["git.push"]}}, "its grant reaches less", WITHIN),
        ({"grant": {"servers": ["time"]}}, "it expires at", "Name an `expires_in` of at most "),
        ({"grant": {"servers": ["time"]}, "expires_in": 7_200}, "it expires at", "Name an `expires_in` of at most "),
    ],
)
async def test_key_gives_no_more_than_it_has(api: LiveApi, wanted: dict[str, Any], lacks: str, remedy: str) -> None:
    grant = Grant(frozenset({"time"}), frozenset({"git.log"}))
    spec = KeySpec("maker", "shop", frozenset(ADMINS), grant, timedelta(hours=1))
    _, maker = await api.services.storage.keys.create(HOST_ADMIN, spec, Actor.local("test"))
    before = await listed(api)

    problem = await create(api, status=403, headers=shown(maker), **wanted)
    after = await listed(api)
    granted = {"servers": ["time"], "tools": ["git.log"]}
    made = await create(api, headers=shown(maker), scopes=["admin"], grant=granted, expires_in=600)

    assert lacks in problem["detail"]
    assert problem["remedy"].startswith(remedy)
    assert after == before
    assert made["scopes"] == ["admin"]


async def test_key_that_is_being_revoked_or_was_revoked_creates_no_other_while_it_is_cached(
    api: LiveApi, module_database_url: str
) -> None:
    maker = await api.key(*ADMINS)
    own = await create(api, headers=maker)
    maker_id = str(UUID(maker["Authorization"].split("-")[2]))
    revoke = update(keys).where(keys.c.id == maker_id).values(revoked_at=func.now())

    async with api.services.storage.engine.connect() as connection:
        await connection.execute(revoke)
        waiting = asyncio.ensure_future(create(api, status=401, headers=maker))
        await wait_for_lock_waiter(module_database_url)
        await connection.commit()
        during = await waiting
    after = await create(api, status=401, headers=maker)
    known = await listed(api)

    assert "was revoked or has expired" in during["detail"]
    assert "revoked" in after["detail"]
    assert own["id"] in known


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"name": ""}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"tenant": "*"}, "not a tenant name"),
        ({"tenant": "a b"}, "not a tenant name"),
        ({"scopes": []}, "scopes"),
        ({"scopes": ["root"]}, "scopes"),
        ({"grant": {"tools": ["git"]}}, "not the full name of a tool"),
        ({"grant": {"tools": ["git.*"]}}, "Grant the whole server"),
        ({"grant": {"server": ["git"]}}, "server"),
        ({"expires_in": 0}, "expires_in"),
        ({"expires_in": "1d"}, "expires_in"),
        ({"key": "sk-starling-mine"}, "key"),
    ],
)
async def test_key_that_is_described_wrongly_is_refused(api: LiveApi, body: dict[str, Any], said: str) -> None:
    before = await listed(api)

    problem = await create(api, status=422, **body)

    assert said in problem["detail"] + problem["remedy"]
    assert await listed(api) == before


async def test_id_that_is_none_is_refused(api: LiveApi) -> None:
    await api.delete("/v1/keys/mine", status=422)


async def test_key_without_admin_and_callers_without_a_key_manage_none(api: LiveApi) -> None:
    runner = await api.key(Scope.RUN, Scope.TEAMS, Scope.SERVERS)

    for headers, status in ((runner, 403), ({"Authorization": "Bearer x"}, 401)):
        await api.get("/v1/keys", status=status, headers=headers)
        await create(api, status=status, headers=headers)
        await api.delete(f"/v1/keys/{new_id()}", status=status, headers=headers)
    async with aiohttp.ClientSession(api.url) as nobody, nobody.post("/v1/keys", json={"name": "ci"}) as refused:
        assert refused.status == 401
