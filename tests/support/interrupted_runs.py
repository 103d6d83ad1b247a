"""Execute runs that wait for an answer, and answer them."""

import asyncio
from collections.abc import Callable, Collection
from typing import Any

from sqlalchemy import text

from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.interrupts import InterruptAnswer, StoredInterrupt
from tests.support.platform import Platform

ANSWERER = "somebody"

# Whoever lets a call leave waits at an advisory lock first.
HOLD_DISPATCH = """
CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN NEW; END $$;
CREATE TRIGGER hold BEFORE INSERT ON ledger FOR EACH ROW WHEN (NEW.state = 'dispatched') EXECUTE FUNCTION hold()"""

_TAKE_JOB = text("DELETE FROM procrastinate_jobs WHERE queueing_lock = :run AND status = 'todo'")


async def execute_run(platform: Platform, key: RunKey) -> None:
    """Claim and execute a run until it ends or waits."""
    await platform.brain.execute(await platform.claim(key))


async def open_interrupts(platform: Platform, key: RunKey) -> list[StoredInterrupt]:
    """Return the open interrupts of a run."""
    return await platform.services.runs.interrupts.waiting(key.tenant, run=key.id)


async def take_job(platform: Platform, key: RunKey) -> None:
    """Take the job of a run, as a worker would have done: it can be queued again then."""
    async with platform.services.storage.engine.begin() as connection:
        await connection.execute(_TAKE_JOB, {"run": key.id})


async def answer_interrupts(platform: Platform, key: RunKey, **payload: Any) -> None:
    """Give all open interrupts of a run the same answer."""
    answers = [InterruptAnswer(item.id, "resolved", payload) for item in await open_interrupts(platform, key)]
    assert answers
    await take_job(platform, key)
    await platform.services.runs.interrupts.answer(key, answers, ANSWERER)


async def wait_for_event(platform: Platform, key: RunKey, kind: str, count: int = 1) -> None:
    """Return when the run's stream has so many durable events of a kind."""
    async for event in platform.services.runs.reader.follow(key):
        count -= event.type == kind
        if count == 0:
            return


async def wait_until_noted(what: str, where: Callable[[], Collection[str]], count: int = 1) -> None:
    """Return once another process has recorded `what` so many times."""
    async with asyncio.timeout(60):
        while list(where()).count(what) < count:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.01)
