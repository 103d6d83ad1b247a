"""What is promised of the service that decides on requests: it only narrows; without it CONSERVATIVE holds."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from pydantic import SecretStr

from starling.core.principal import Scope
from tests.support.brainstem_server import BrainstemServer
from tests.support.gateway_harness import free_port
from tests.support.governed_platform import CHARGE, OTHER, READ, Governed, governed_api
from tests.support.platform import decision
from tests.support.sse import Event

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(database_server: Any, database_copy: str, tmp_path_factory: Any) -> AsyncGenerator[Governed]:
    brainstem = BrainstemServer()
    with database_server.database(database_copy) as url:
        async with (
            brainstem.serving() as address,
            governed_api(
                url, tmp_path_factory.mktemp("served"), brainstem_url=address, brainstem_token=SecretStr("secret")
            ) as api,
        ):
            yield replace(api, brainstem=brainstem)


@pytest_asyncio.fixture(loop_scope="module")
async def beside(served: Governed) -> AsyncGenerator[Governed]:
    """A platform with a service that allows all, until a test gives it another answer."""
    served.forget()
    yield served
    await served.govern()


def warned(events: list[Event]) -> bool:
    return any(event.type == "warning" and event.data["code"] == "governance" for event in events)


async def test_service_is_asked_once_with_what_it_is_promised(beside: Governed) -> None:
    beside.one_task(READ)
    key = await beside.key(Scope.RUN, tenant="acme")
    body = {"input": "Read.", "thread_id": "mine", "config": {"mode": "EXPLORATORY", "channel": "SYSTEM_HEALTH"}}

    done = await beside.post("/process", json=body, headers=key)

    assert done["status"] == "succeeded"
    [asked] = beside.brainstem.asked
    wanted = {"session_id": "mine", "channel": "SYSTEM_HEALTH", "mode": "EXPLORATORY", "user_message": "Read."}
    assert asked == wanted | {"tenant": "acme"}
    assert beside.brainstem.tokens == {"Bearer secret"}


async def test_service_narrows_and_what_allows_more_has_no_effect(beside: Governed) -> None:
    await beside.govern(modes={"MODERATE": {"approval": "unsafe", "max_tokens": 100, "roles": ["router"]}})
    beside.brainstem.answer = {
        "max_tokens": 4000, "approval": "never", "roles": ["router", "reasoning", "coding"], "tools": ["effects.*"],
        "review": "never", "iterations": 40,
    }  # fmt: skip
    beside.one_task(CHARGE)

    done = await beside.do()
    kept = (await beside.get(f"/v1/runs/{done['run_id']}"))["governance"]

    assert (done["status"], beside.models, beside.effects.done()) == ("waiting", {"small"}, []), (done, kept)
    assert {body["max_tokens"] for body in beside.model.bodies} == {100}
    assert OTHER not in str(beside.asked("<agents>")[0]["messages"])
    assert kept["source"] == "service"


async def test_decision_holds_for_the_resumed_run_and_its_fork_without_being_asked_again(beside: Governed) -> None:
    beside.brainstem.answer = {"approval": "unsafe", "max_tokens": 60}
    beside.one_task(CHARGE)
    run = await beside.begin()
    [question] = (await beside.until(run, "waiting"))["interrupts"]
    beside.brainstem.answer = {"max_tokens": 3000}
    answer = {"interruptId": question["id"], "status": "resolved", "payload": {"approved": True}}
    await beside.post(f"/v1/runs/{run}/resume", 202, json=[answer])
    ended = await beside.ended(run)
    fork = (await beside.post(f"/v1/runs/{run}/fork", 202, json={"at": "start"}))["run_id"]
    forked = await beside.ended(fork)

    assert (ended["status"], beside.effects.done()) == ("succeeded", ["charge a"])
    assert len(beside.brainstem.asked) == 1
    assert {body["max_tokens"] for body in beside.model.bodies} == {60}
    assert forked["governance"]["source"] == ended["governance"]["source"] == "service"


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (500, "{}"),
        (200, "garbage"),
    ],
)
async def test_answer_that_is_not_valid_means_conservative_and_a_warning(
    beside: Governed, status: int, answer: str
) -> None:
    beside.brainstem.status, beside.brainstem.answer = status, answer
    beside.one_task(CHARGE)

    events = await beside.ask("Charge.")
    run = await beside.get(f"/v1/runs/{events[0].data['run_id']}")

    assert warned(events), [event.data for event in events]
    assert (beside.effects.done(), run["governance"]["source"]) == ([], "fallback")
    assert run["governance"]["row"]["effects"] == ["read"]


async def test_service_that_is_away_means_conservative_within_the_row_of_the_mode(
    database_url: str, tmp_path: Path
) -> None:
    async with governed_api(database_url, tmp_path, brainstem_url=f"http://127.0.0.1:{free_port()}") as api:
        await api.govern(modes={"EXPLORATORY": {"max_tokens": 33}})
        api.one_task(CHARGE)

        events = await api.ask("Charge.", config={"mode": "EXPLORATORY"})
        run = await api.get(f"/v1/runs/{events[0].data['run_id']}")

        assert (api.effects.done(), run["governance"]["source"]) == ([], "fallback")
        assert warned(events), [event.data for event in events]
        assert {body["max_tokens"] for body in api.model.bodies} == {33}


@pytest.mark.parametrize("member", ["effects", "tools"])
async def test_service_that_allows_no_tool_is_obeyed(beside: Governed, member: str) -> None:
    beside.brainstem.answer = {member: []}
    beside.one_task(READ)

    done = await beside.do()

    assert beside.effects.done() == [], done
    assert done["reply"]


@pytest.mark.parametrize("roles", [[], ["coding"]])
async def test_service_that_leaves_no_role_gave_no_valid_answer_and_the_table_still_holds(
    beside: Governed, roles: list[str]
) -> None:
    await beside.govern(modes={"MODERATE": {"roles": ["router"], "max_tokens": 90}})
    beside.brainstem.answer = {"roles": roles}
    beside.one_task(CHARGE)

    done = await beside.do()

    run = await beside.get(f"/v1/runs/{done['run_id']}")
    assert (run["governance"]["source"], beside.models, beside.effects.done()) == ("fallback", {"small"}, [])
    assert {body["max_tokens"] for body in beside.model.bodies} == {90}


async def test_fallback_lifts_nothing_of_the_mode_where_conservative_has_no_role_in_common_with_it(
    beside: Governed,
) -> None:
    bounds = {"tools": ["effects.read_it"], "max_tokens": 90, "approval": "always"}
    await beside.govern(modes={"MODERATE": {"roles": ["coding"], **bounds}})
    beside.brainstem.status = 500
    beside.one_task(READ)

    done = await beside.do()

    assert done["status"] == "waiting"
    assert {body["max_tokens"] for body in beside.model.bodies} == {90}


async def test_service_has_a_request_planned_but_no_other_agent_do_it(beside: Governed) -> None:
    beside.brainstem.answer = {"direct_agent": ""}
    beside.script.supervisor(decision(reply="Planned."))

    done = await beside.do(channel="CODE_TASK")

    assert (done["status"], done["reply"]) == ("succeeded", "Planned.")
