"""Pruning removes the details of ended runs and writes an audit entry."""

from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import SecretStr

from starling.app.container.database import find_database
from starling.app.container.storage import open_storage
from starling.infra.postgres.audit import Actor, latest
from starling.infra.postgres.retention import PruneSelection
from tests.support.model_server import ModelServer
from tests.support.platform import Platform, ScriptedModel, decision, open_platform


@pytest.fixture
async def platform(database_url: str, tmp_path: Path) -> AsyncGenerator[Platform]:
    script = ScriptedModel()
    script.supervisor(decision(reply="Fine."))
    async with ModelServer(script) as model, open_platform(database_url, model, {}, tmp_path) as platform:
        yield platform


async def test_pruning_is_audited(platform: Platform, database_url: str) -> None:
    await platform.ask("How are you?")
    settings = platform.settings.model_copy(update={"database_url": SecretStr(database_url)})

    async with open_storage(settings, find_database(settings)) as storage:
        forgotten = await storage.retention.prune(PruneSelection(timedelta(microseconds=1)), Actor.local("cli"))

    actor = Actor.local("cli")
    (entry,) = await latest(platform.services.storage.engine, actor.tenant, limit=1)
    assert forgotten.runs == 1
    assert (entry.action, entry.detail["rows"]) == ("db.prune", forgotten.rows)
