"""Forks over HTTP: accepted as runs, by callers who may ask for what they change."""

from typing import Any

import pytest

from starling.app.access.keys import KeySpec
from starling.core.principal import DEFAULT_TENANT, HOST_ADMIN, Scope
from starling.infra.postgres.audit import Actor
from tests.integration.http.conftest import LiveApi
from tests.support.sse import read_events

pytestmark = pytest.mark.asyncio(loop_scope="module")

EPOCH = {"changes": {"epoch": 1}}


async def ended(api: LiveApi) -> str:
    [started, *_] = await api.ask("How full is this disk?")
    return started.data["run_id"]


async def send(api: LiveApi, run: str, body: dict[str, Any], **headers: str) -> tuple[int, dict[str, Any], str]:
    async with api.client.post(f"/v1/runs/{run}/fork", json=body, headers=headers) as response:
        return response.status, await response.json(), response.headers.get("Location", "")


async def test_fork_is_accepted_once_for_a_key_and_can_be_followed(api: LiveApi) -> None:
    run = await ended(api)

    status, accepted, location = await send(api, run, {"at": "t1"}, **{"Idempotency-Key": "fork-1"})
    again = await send(api, run, {"at": "t1"}, **{"Idempotency-Key": "fork-1"})
    other = await send(api, run, {"at": "start"}, **{"Idempotency-Key": "fork-1"})

    assert (status, location) == (202, f"/v1/runs/{accepted['run_id']}")
    assert (again[0], again[1]["run_id"], other[0]) == (202, accepted["run_id"], 422)
    async with api.client.get(f"{location}/events") as response:
        events = [event async for event in read_events(response)]
    assert events[-1].data["status"] == "succeeded"
    async with api.client.get(f"{location}/explanation") as response:
        assert response.status == 200


@pytest.mark.parametrize(
    ("tenant", "scope", "body", "status", "code"),
    [
        (DEFAULT_TENANT, Scope.RUN, {}, 202, None),
        (DEFAULT_TENANT, Scope.RUN, {"changes": {"input": "How full is it now?"}}, 202, None),
        (DEFAULT_TENANT, Scope.RUN, EPOCH, 403, "forbidden"),
        (DEFAULT_TENANT, Scope.ADMIN, EPOCH, 403, "forbidden"),
        ("elsewhere", Scope.RUN, {}, 404, "not_found"),
        (DEFAULT_TENANT, Scope.RUN, {"at": "t1/t1"}, 422, "invalid_request"),
        (DEFAULT_TENANT, Scope.RUN, {"at": "d9"}, 422, "invalid_request"),
        (DEFAULT_TENANT, Scope.RUN, {"at": "t1", "changes": {"input": "Else?"}}, 422, "invalid_request"),
    ],
)
async def test_what_a_caller_may_ask_for(
    api: LiveApi, tenant: str, scope: Scope, body: dict[str, Any], status: int, code: str | None
) -> None:
    run = await ended(api)
    keys = api.services.storage.keys
    _, key = await keys.create(HOST_ADMIN, KeySpec("test", tenant, frozenset({scope})), Actor.local("test"))

    found = await send(api, run, body, Authorization=f"Bearer {key}")

    assert (found[0], found[1].get("code")) == (status, code)
