"""A worker is killed at each record of a build's journal; another one ends the build, and stores one version."""

import asyncio
import json
from pathlib import Path

import pytest
from psycopg import AsyncConnection

from starling.app.container.database import Database
from starling.app.container.services import open_services
from starling.app.services import Services
from starling.core.settings.schema import Settings
from starling.core.teams.building import BuildRequest
from starling.infra.postgres.runs.acceptance import RunKey
from tests.support.command_line import Service, new_workspace
from tests.support.model_documents import design_json
from tests.support.model_script import Answer
from tests.support.model_server import ModelServer
from tests.support.platform import CALLER, RunStream, ScriptedModel, calls, decision, running_workbench, task
from tests.support.run_factories import wait_for_lock_waiter

# The record of the given number, counted over all attempts to write one, waits at an advisory lock first.
_HOLD = """
CREATE SEQUENCE records;
CREATE FUNCTION hold_record() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN IF nextval('records') = {} THEN PERFORM pg_advisory_xact_lock_shared(7); END IF; RETURN NEW; END $$;
CREATE TRIGGER hold_record BEFORE INSERT ON journal FOR EACH ROW EXECUTE FUNCTION hold_record()"""
_MOST = 60  # records


@pytest.mark.soak
@pytest.mark.parametrize("record", [pytest.param(number, id=str(number)) for number in range(1, _MOST)])
async def test_build_whose_worker_is_killed_at_a_record_is_ended_by_another_and_stored_once(
    database_url: str, tmp_path: Path, record: int
) -> None:
    script = ScriptedModel()
    design = json.loads(design_json("bench"))
    examples = [{**one, "contains": ["fine"]} for one in design["examples"]]
    script.designer(Answer(json.dumps({**design, "examples": examples})))
    script.run(decision(task("t1", "looker")), t1=calls(("look", {"thing": "disk"})), qa=Answer("The disk is fine."))
    config = tmp_path / "mcp.json"
    with running_workbench(tmp_path / "done") as workbench:
        config.write_text(json.dumps({"mcpServers": {"bench": workbench.as_server("read")}}))
        async with ModelServer(script) as model, await AsyncConnection.connect(database_url, autocommit=True) as holder:
            await holder.execute(_HOLD.format(record).encode())
            await holder.execute("SELECT pg_advisory_lock(7)")
            variables = {
                "DATABASE_URL": database_url,
                "STARLING_MCP_CONFIG": str(config),
                **model.variables,
                "STARLING_LIMITS": json.dumps({"lease_seconds": 2}),
            }
            async with open_services(Settings(), Database(database_url, database_url)) as services:
                with new_workspace(**variables) as workspace, workspace.started("worker", "--json") as first:
                    await asyncio.to_thread(Service.ready, first)
                    key = (
                        await services.builds.team(CALLER, BuildRequest(goal="Look at the disks.", name="watch"))
                    ).key
                    held = asyncio.create_task(wait_for_lock_waiter(database_url))
                    end = asyncio.create_task(_stream(services, key))
                    await asyncio.wait({held, end}, return_when=asyncio.FIRST_COMPLETED)
                    first.kill()
                    await holder.execute("SELECT pg_advisory_unlock(7)")
                    if not held.done():
                        pytest.skip("the build has fewer records")
                    with workspace.started("worker", "--json"):
                        stream = await end
                assert stream.status == "succeeded", stream.reply
                versions = await services.teams.versions(CALLER.tenant, "watch")
    assert (stream.status, [one.version for one in versions]) == ("succeeded", [1])
    assert [len(stream.of(kind)) for kind in ("design", "checks", "proof", "published")] == [1, 1, 2, 1]


async def _stream(services: Services, key: RunKey) -> RunStream:
    return RunStream(key, [event async for event in services.runs.reader.follow(key)])
