"""Claims of keys of equal calls: one call has the key at a time, and what becomes of it decides on the next one."""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import insert, text
from sqlalchemy.ext.asyncio import AsyncEngine

from starling.infra.postgres.retention import PruneSelection, Retention
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.call_claims import CallClaims, CallPlace
from starling.infra.postgres.tables.run_records import ledger
from tests.support.admission_harness import AdmissionHarness

NOW, SOON, OLD = "now()", "now() - interval '5 s'", "now() - interval '90 s'"
KEY, SECONDS = "digest", 60.0


@pytest.fixture
def admission(engine: AsyncEngine) -> AdmissionHarness:
    return AdmissionHarness(engine)


async def called(engine: AsyncEngine, run: RunKey, state: str, **columns: str) -> CallPlace:
    """Store a call of a run in the ledger; `columns` are SQL."""
    values: Mapping[str, Any] = {
        "tenant": run.tenant, "run_id": run.id, "key": "first", "path": "t1", "position": 0, "index": 0,
        "tool": "shop.order", "effect": "unsafe", "arguments": {}, "state": state, "correlation_id": "c",
        "outcome": {"status": "succeeded", "text": "ordered"},
    }  # fmt: skip
    async with engine.begin() as connection:
        await connection.execute(insert(ledger).values(values | {name: text(sql) for name, sql in columns.items()}))
    return CallPlace(run.tenant, run.id, "first")


async def end(engine: AsyncEngine, run: RunKey, moment: str = NOW) -> None:
    async with engine.begin() as connection:
        await connection.execute(text(f"UPDATE runs SET ended_at = {moment}, status = 'failed' WHERE id = '{run.id}'"))  # noqa: S608


@pytest.mark.parametrize(
    ("state", "columns", "ended", "expected"),
    [
        ("intended", {}, False, "open"),
        ("intended", {}, True, None),
        ("dispatched", {"dispatched_at": OLD}, False, "open"),
        ("dispatched", {"dispatched_at": SOON}, True, "in_doubt"),
        ("succeeded", {"dispatched_at": OLD, "settled_at": SOON}, False, "done"),
        ("succeeded", {"dispatched_at": OLD, "settled_at": OLD}, False, None),
        ("failed", {"dispatched_at": SOON, "settled_at": SOON}, False, None),
        ("in_doubt", {"dispatched_at": OLD}, False, "in_doubt"),
        ("in_doubt", {"dispatched_at": OLD, "settled_at": SOON}, False, "in_doubt"),
        ("in_doubt", {"dispatched_at": OLD, "settled_at": OLD}, False, None),
        ("unusable", {"dispatched_at": SOON, "settled_at": SOON}, False, "in_doubt"),
    ],
)
async def test_call_that_has_the_key_decides_on_an_equal_one(
    engine: AsyncEngine, admission: AdmissionHarness, state: str, columns: dict[str, str], ended: bool, expected: Any
) -> None:
    claims = CallClaims(engine)
    run, other = await admission.accept(thread="a"), await admission.accept(thread="b")
    first = await called(engine, run, state, **columns)
    assert await claims.claim(first, KEY, SECONDS) is None
    async with engine.begin() as connection:
        await connection.execute(text(f"UPDATE call_claims SET created_at = {OLD}"))  # noqa: S608
    if ended:
        await end(engine, run)

    found = await claims.claim(CallPlace(other.tenant, other.id, "second"), KEY, SECONDS)

    assert (found and found.standing) == expected
    if expected == "done":
        assert found
        assert (found.run_id, found.call_id, found.outcome) == (
            run.id,
            "t1.0.0",
            {"status": "succeeded", "text": "ordered"},
        )
    elif expected is None:  # it has the key now
        taken = await claims.claim(first, KEY, SECONDS)
        assert taken is None or taken.run_id == other.id


async def test_call_that_has_the_key_keeps_it_when_its_run_is_resumed(
    engine: AsyncEngine, admission: AdmissionHarness
) -> None:
    claims, run = CallClaims(engine), await admission.accept(thread="a")
    first = await called(engine, run, "intended")

    assert [await claims.claim(first, KEY, SECONDS) for _ in range(2)] == [None, None]


async def test_one_of_many_equal_calls_at_once_gets_the_key(engine: AsyncEngine, admission: AdmissionHarness) -> None:
    claims = CallClaims(engine)
    runs = [await admission.accept(thread=str(number)) for number in range(6)]
    places = [await called(engine, run, "intended") for run in runs]

    found = await asyncio.gather(*(claims.claim(place, KEY, SECONDS) for place in places))

    assert found.count(None) == 1
    assert {one.standing for one in found if one} == {"open"}


async def test_key_of_another_tenant_is_another_key(engine: AsyncEngine, admission: AdmissionHarness) -> None:
    claims = CallClaims(engine)
    runs = [await admission.accept(thread="a", tenant=tenant) for tenant in ("red", "blue")]

    assert [await claims.claim(await called(engine, run, "intended"), KEY, SECONDS) for run in runs] == [None, None]


async def test_claims_of_old_runs_are_pruned(engine: AsyncEngine, admission: AdmissionHarness) -> None:
    claims = CallClaims(engine)
    for thread in ("old", "open"):
        run = await admission.accept(thread=thread)
        await claims.claim(await called(engine, run, "succeeded", settled_at=NOW), thread, SECONDS)
        if thread == "old":
            await end(engine, run, "now() - interval '60 days'")
    async with engine.begin() as connection:
        await connection.execute(text("UPDATE call_claims SET created_at = now() - interval '60 days'"))

    report = await Retention(engine).prune(PruneSelection(timedelta(days=30)))

    assert report.rows["call_claims"] == 1
