"""A run that takes its workers down with it is ended in the end, whatever it left behind."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import text

from tests.support.model_script import Answer
from tests.support.model_server import ModelServer
from tests.support.platform import ModelSays, Platform, decision, open_platform

_GARBAGE = text("INSERT INTO checkpoints (thread_id, checkpoint_id, checkpoint) VALUES (:run, 'z', '[]')")


@pytest.fixture
async def platform(database_url: str, tmp_path: Path) -> AsyncGenerator[Platform]:
    says = ModelSays()
    says.supervisor(decision(reply="Fine.", is_request_satisfied=True))
    says.qa(Answer("Fine."))
    async with ModelServer(says) as model, open_platform(database_url, model, {}, tmp_path) as platform:
        yield platform


async def test_a_parked_run_says_why_and_its_thread_goes_on(platform: Platform) -> None:
    key = await platform.accept("Take it down.")
    claim = await platform.claim(key)

    await platform.brain.park(replace(claim, run=replace(claim.run, crashes=3)))

    told = await platform.told(key)
    assert (told.status, told.codes) == ("parked", ["parked"])
    assert "3 times" in told.reply
    assert (await platform.ask("And now?")).status == "succeeded"


async def test_what_cannot_be_read_keeps_no_run_from_being_parked(platform: Platform) -> None:
    key = await platform.accept("Take it down.")
    claim = await platform.claim(key)
    async with platform.store.engine.begin() as connection:
        await connection.execute(_GARBAGE, {"run": key.id})
    with pytest.raises((TypeError, KeyError)):
        await platform.brain.park(replace(claim, run=replace(claim.run, crashes=3)))

    await platform.brain.park(replace(claim, run=replace(claim.run, crashes=4)))

    assert (await platform.told(key)).status == "parked"
