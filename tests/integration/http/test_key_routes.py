"""Keys over HTTP: an admin of the machine manages all, a key those of its tenant, and gives no more than it has."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

import aiohttp
import pytest

from starling.app.access.keys import KeySpec
from starling.core.ids import new_id
from starling.core.principal import Grant, Scope
from starling.infra.postgres.audit import Actor, latest
from tests.integration.http.conftest import LiveApi

pytestmark = pytest.mark.asyncio(loop_scope="module")

ADMINS = (Scope.ADMIN, Scope.RUN)


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
    ("wanted", "lacks"),
    [
        ({"scopes": ["run", "teams"]}, "lacks the scopes teams"),
        ({"scopes": ["run"]}, "its grant reaches less"),
        ({"grant": {"servers": ["time", "git"]}}, "its grant reaches less"),
        ({"grant": {"tools": ["git.push"]}}, "its grant reaches less"),
        ({"grant": {"servers": ["time"]}}, "it expires at"),
        ({"grant": {"servers": ["time"]}, "expires_in": 7_200}, "it expires at"),
    ],
)
async def test_key_gives_no_more_than_it_has(api: LiveApi, wanted: dict[str, Any], lacks: str) -> None:
    grant = Grant(frozenset({"time"}), frozenset({"git.log"}))
    spec = KeySpec("maker", "shop", frozenset(ADMINS), grant, timedelta(hours=1))
    _, maker = await api.services.storage.keys.create(spec, Actor.local("test"))
    before = await listed(api)

    problem = await create(api, status=403, headers=shown(maker), **wanted)
    after = await listed(api)
    granted = {"servers": ["time"], "tools": ["git.log"]}
    made = await create(api, headers=shown(maker), scopes=["admin"], grant=granted, expires_in=600)

    assert lacks in problem["detail"]
    assert after == before
    assert made["scopes"] == ["admin"]


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
