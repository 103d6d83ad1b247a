"""A team that one worker process builds and activates is used by another one that was started before."""

import json
import signal
from pathlib import Path

from sqlalchemy import select

from starling.app.container.database import Database
from starling.app.container.services import open_services
from starling.app.runs.acceptance import RunRequest
from starling.app.services import Services
from starling.core.settings.schema import Settings
from starling.core.teams.building import BuildCase, BuildRequest
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.tables.run_records import runs
from tests.support.command_line import SYSTEM_HEALTH, new_workspace
from tests.support.platform import CALLER, RunStream


def case(request: str, value: str) -> BuildCase:
    said = {"id": "said", "text": "It is said.", "kind": "text_contains", "value": value}
    return BuildCase.model_validate({"input": request, "criteria": [said]})


WANTED = BuildRequest(
    goal="Show the disk and the memory of this machine",
    name="watch",
    cases=(case("How full is the disk?", "used bytes"), case("How much memory is free?", "available bytes")),
)


async def process_of(services: Services, key: RunKey) -> int:
    """Return the process that has begun a run."""
    async for _ in services.runs.reader.follow(key):
        async with services.storage.engine.connect() as connection:
            if worker := await connection.scalar(select(runs.c.worker).where(runs.c.id == key.id)):
                return int(worker.split(":")[1])
    raise AssertionError("the run has ended")


async def stream_of(services: Services, key: RunKey) -> RunStream:
    return RunStream(key, [event async for event in services.runs.reader.follow(key)])


async def test_team_that_one_worker_built_is_used_by_another_that_was_started_before(
    database_url: str, tmp_path: Path
) -> None:
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"system_health": SYSTEM_HEALTH}}))
    async with open_services(Settings(), Database(database_url, database_url)) as services:
        with (
            new_workspace(DATABASE_URL=database_url, STARLING_MCP_CONFIG=str(config)) as workspace,
            workspace.running("worker") as one,
            workspace.running("worker") as two,
        ):
            workers = {worker.process.pid: worker for worker in (one, two)}
            build = (await services.builds.team(CALLER, WANTED)).key
            builder = workers[await process_of(services, build)]
            built = await stream_of(services, build)
            builder.stopped_by(signal.SIGTERM)
            request = RunRequest("Use watch: How full is the disk?", "thread")
            used = await stream_of(services, (await services.runs.acceptance.accept(CALLER, request)).key)

    assert [one["state"] for one in built.of("published")] == ["active"], built.reply
    assert [one["agent"] for one in used.of("task_start")] == ["watch", "system_health"]
    assert used.status == "succeeded"
