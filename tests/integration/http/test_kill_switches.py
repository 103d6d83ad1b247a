"""Kill switches over HTTP."""

import pytest
import pytest_asyncio

from starling.app.access.keys import KeySpec
from starling.app.runs.acceptance import RunRequest
from starling.core.principal import HOST_ADMIN, Principal, Scope
from starling.infra.postgres.audit import Actor
from tests.integration.http.conftest import LiveApi

pytestmark = pytest.mark.asyncio(loop_scope="module")

TIME = {"kind": "server", "name": "time", "reason": "It lies."}


async def names(api: LiveApi) -> list[tuple[str, str, str, str]]:
    found = (await api.get("/v1/switches"))["switches"]
    return [(item["kind"], item["name"], item["tenant"], item["reason"]) for item in found]


async def test_switch_is_set_updated_and_removed(api: LiveApi) -> None:
    async with api.client.put("/v1/switches", json=TIME) as response:
        made = response.status, (await response.json())["actor"]
    async with api.client.put("/v1/switches", json=TIME | {"reason": "It still does."}):
        off = await names(api)
    async with api.client.delete("/v1/switches", params={"kind": "server", "name": "time"}) as response:
        removed = response.status

    assert (made, off, removed) == ((200, "local"), [("server", "time", "*", "It still does.")], 204)
    assert await names(api) == []


async def test_tenant_of_a_switch_of_kind_tenant_is_its_name(api: LiveApi) -> None:
    async with api.client.put("/v1/switches", json={"kind": "tenant", "name": "mill", "reason": "Closed."}):
        assert await names(api) == [("tenant", "mill", "mill", "Closed.")]
    await api.delete("/v1/switches", params={"kind": "tenant", "name": "mill"}, status=204)


async def test_removing_a_switch_that_is_not_set_is_not_found(api: LiveApi) -> None:
    async with api.client.delete("/v1/switches", params={"kind": "agent", "name": "nobody"}) as response:
        assert (response.status, (await response.json())["code"]) == (404, "not_found")
    await api.put("/v1/switches", json={**TIME, "kind": "tool"}, status=422)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def residents(api: LiveApi) -> None:
    """An agent of this machine's own tenant, a tenant with a key, and one with a run."""
    await api.post("/v1/agents", json={"id": "poet"}, status=201)
    await api.services.storage.keys.create(
        HOST_ADMIN, KeySpec("test", "holder", frozenset([Scope.RUN])), Actor.local("test")
    )
    runner = Principal("runner", key_id="", scopes=frozenset(Scope))
    await api.services.runs.acceptance.accept(runner, RunRequest(input="Hello.", thread_id="t"))


@pytest.mark.usefixtures("residents")
@pytest.mark.parametrize(
    ("kind", "name", "tenant", "known"),
    [
        ("server", "system_health", "*", True),
        ("server", "broken", "default", True),
        ("server", "sistem_health", "*", False),
        ("agent", "mcp_agent_system_health", "*", True),
        ("agent", "generalist", "default", True),
        ("agent", "generalist", "nobody", False),
        ("agent", "poet", "*", True),
        ("agent", "poet", "default", True),
        ("agent", "poet", "holder", False),
        ("agent", "generalissimo", "*", False),
        ("tenant", "*", "*", True),
        ("tenant", "default", "*", True),
        ("tenant", "holder", "*", True),
        ("tenant", "runner", "*", True),
        ("tenant", "nobody", "*", False),
    ],
)
async def test_set_switch_reports_whether_its_target_is_known(
    api: LiveApi, kind: str, name: str, tenant: str, known: bool
) -> None:
    target = {"kind": kind, "name": name, "tenant": tenant}

    answer = await api.put("/v1/switches", json=target | {"reason": "A test."})

    await api.delete("/v1/switches", params=target, status=204)
    assert (answer["name"], answer["known"]) == (name, known)
