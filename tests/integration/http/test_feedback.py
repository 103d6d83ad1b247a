"""Feedback on runs over HTTP."""

from http import HTTPStatus

import pytest
from sqlalchemy import select

from starling.app.access.keys import KeySpec
from starling.core.ids import new_id
from starling.core.principal import Scope
from starling.infra.postgres.audit import Actor, latest
from starling.infra.postgres.tables.run_records import feedback
from tests.integration.http.conftest import LiveApi
from tests.support.sse import Event

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def headers_of_key(api: LiveApi, tenant: str) -> dict[str, str]:
    spec = KeySpec("test", tenant, frozenset([Scope.RUN]))
    _, key = await api.services.storage.keys.create(spec, Actor.local("test"))
    return {"Authorization": f"Bearer {key}"}


def run_of(events: list[Event]) -> str:
    return str(events[0].data["run_id"])


async def test_newest_feedback_of_each_key_is_shown_with_the_run(api: LiveApi) -> None:
    run = run_of(await api.ask("How full is this disk?"))
    path, other = f"/v1/runs/{run}/feedback", await headers_of_key(api, "default")
    secret = "sk-proj-" + "a1B2c3D4e5" * 4

    for body, headers in (
        ({"score": 0, "comment": f"Wrong, {secret}"}, {}),
        ({"score": 1}, other),
        ({"score": 0.5}, other),
    ):
        async with api.client.post(path, json=body, headers=headers) as response:
            assert response.status == HTTPStatus.OK, await response.text()
            given = await response.json()
    async with api.client.get(f"/v1/runs/{run}?include=feedback") as response:
        shown = (await response.json())["feedback"]

    assert [(one["by"] == "local", one["score"]) for one in shown] == [(True, 0), (False, 0.5)]
    assert shown[1] == given
    assert shown[0]["comment"].startswith("Wrong, ")
    assert secret not in shown[0]["comment"]
    audited = await latest(api.services.storage.engine, "default", limit=3)
    assert {(entry.change.action, entry.change.target) for entry in audited} == {("run.feedback", run)}


@pytest.mark.parametrize("body", [{}, {"score": 1.1}, {"score": -0.1}, {"score": 1, "stars": 5}, {"score": "good"}])
async def test_feedback_outside_its_schema_is_refused(api: LiveApi, body: dict[str, object]) -> None:
    async with api.client.post(f"/v1/runs/{new_id()}/feedback", json=body) as response:
        assert response.status == HTTPStatus.UNPROCESSABLE_ENTITY


async def test_run_of_another_tenant_takes_no_feedback(api: LiveApi) -> None:
    run = run_of(await api.ask("How full is this disk?"))
    stranger = await headers_of_key(api, "other")

    async with api.client.post(f"/v1/runs/{run}/feedback", json={"score": 1}, headers=stranger) as response:
        assert response.status == HTTPStatus.NOT_FOUND

    async with api.services.storage.engine.connect() as connection:
        assert not (await connection.execute(select(feedback).where(feedback.c.run_id == run))).all()
