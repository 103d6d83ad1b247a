"""Feedback on runs over HTTP."""

from http import HTTPStatus

import pytest
from sqlalchemy import select

from starling.core.ids import new_id
from starling.core.principal import Scope
from starling.infra.postgres.audit import latest
from starling.infra.postgres.tables.run_records import feedback
from tests.integration.http.conftest import LiveApi
from tests.support.sse import Event

pytestmark = pytest.mark.asyncio(loop_scope="module")


def run_of(events: list[Event]) -> str:
    return str(events[0].data["run_id"])


async def test_newest_feedback_of_each_key_is_shown_with_the_run(api: LiveApi) -> None:
    run = run_of(await api.ask("How full is this disk?"))
    path, other = f"/v1/runs/{run}/feedback", await api.key(Scope.RUN)
    secret = "sk-proj-" + "a1B2c3D4e5" * 4

    for body, headers in (
        ({"score": 0, "comment": f"Wrong, {secret}"}, {}),
        ({"score": 1}, other),
        ({"score": 0.5}, other),
    ):
        given = await api.post(path, json=body, headers=headers)
    shown = (await api.get(f"/v1/runs/{run}?include=feedback"))["feedback"]

    assert [(one["by"] == "local", one["score"]) for one in shown] == [(True, 0), (False, 0.5)]
    assert shown[1] == given
    assert shown[0]["comment"].startswith("Wrong, ")
    assert secret not in shown[0]["comment"]
    audited = await latest(api.services.storage.engine, "default", limit=3)
    assert {(entry.action, entry.target) for entry in audited} == {("run.feedback", run)}


@pytest.mark.parametrize("body", [{}, {"score": 1.1}, {"score": -0.1}, {"score": 1, "stars": 5}, {"score": "good"}])
async def test_feedback_outside_its_schema_is_refused(api: LiveApi, body: dict[str, object]) -> None:
    await api.post(f"/v1/runs/{new_id()}/feedback", json=body, status=HTTPStatus.UNPROCESSABLE_ENTITY)


async def test_run_of_another_tenant_takes_no_feedback(api: LiveApi) -> None:
    run = run_of(await api.ask("How full is this disk?"))
    stranger = await api.key(Scope.RUN, tenant="other")

    await api.post(f"/v1/runs/{run}/feedback", json={"score": 1}, headers=stranger, status=HTTPStatus.NOT_FOUND)

    async with api.services.storage.engine.connect() as connection:
        assert not (await connection.execute(select(feedback).where(feedback.c.run_id == run))).all()
