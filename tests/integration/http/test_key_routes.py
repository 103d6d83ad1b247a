"""Keys over HTTP: an admin of the machine manages all, a key those of its tenant, and gives no more than it has."""

import asyncio
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import func, update

from starling.core.principal import Scope
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
