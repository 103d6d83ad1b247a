"""A worker is killed at each record of a build's journal; another one ends the build, and stores one version."""

import asyncio
import json
from pathlib import Path

import pytest
from psycopg import AsyncConnection

from architect.spec_format import team_of
from starling.app.container.database import Database
from starling.app.container.services import open_services
from starling.app.services import Services
from starling.core.run_document.rows import EventRow
from starling.core.settings.schema import Settings
from starling.core.teams.building import BuildRequest
from starling.infra.postgres.audit import Actor
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.interrupts import InterruptAnswer
from tests.support.command_line import Service, new_workspace
from tests.support.model_documents import design_json
from tests.support.model_script import Answer
from tests.support.model_server import ModelServer
from tests.support.platform import CALLER, RunStream, ScriptedModel, calls, decision, running_workbench, task

# The record of the given number, counted over all attempts to write one, waits at an advisory lock first.
_HOLD = """
CREATE SEQUENCE records;
CREATE FUNCTION hold_record() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN IF nextval('records') = {} THEN PERFORM pg_advisory_xact_lock_shared(7); END IF; RETURN NEW; END $$;
CREATE TRIGGER hold_record BEFORE INSERT ON journal FOR EACH ROW EXECUTE FUNCTION hold_record()"""
_MOST = 52  # every build has ended before this record
_ALL, _ENDS = range(1, _MOST + 1), (*range(1, 9), *range(40, _MOST + 1))  # other builds differ at both ends only
_RECORDS = {"read": _ALL, "idempotent": _ENDS, "version": _ENDS}
_TEAM = {
    "name": "watch",
    "purpose": "Looks.",
    "members": [{"name": "looker", "role": "Looker", "goal": "Look.", "server": "bench"}],
}


@pytest.mark.soak
@pytest.mark.parametrize(
    ("build", "record"), [(build, record) for build, tried in _RECORDS.items() for record in tried]
)
async def test_build_whose_worker_is_killed_at_a_record_is_ended_by_another_and_stored_once(
    database_url: str, tmp_path: Path, build: str, record: int
) -> None:
    script = ScriptedModel()
    design = json.loads(design_json("bench"))
    examples = [{**one, "contains": ["fine"]} for one in design["examples"]]
    script.designer(Answer(json.dumps({**design, "examples": examples})))
    script.run(decision(task("t1", "looker")), t1=calls(("look", {"thing": "disk"})), qa=Answer("The disk is fine."))
    config = tmp_path / "mcp.json"
    with running_workbench(tmp_path / "done") as workbench:
        effect = "idempotent" if build == "idempotent" else "read"
        config.write_text(json.dumps({"mcpServers": {"bench": workbench.as_server(effect)}}))
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
                    key = await _accepted(services, is_new=build != "version")
                    held = asyncio.create_task(_held(holder))
                    end = asyncio.create_task(_stream(services, key))
                    await asyncio.wait({held, end}, return_when=asyncio.FIRST_COMPLETED)
                    first.kill()
                    is_held = held.done()
                    held.cancel()
                    await asyncio.wait({held})
                    await holder.execute("SELECT pg_advisory_unlock(7)")
                    if not is_held:
                        pytest.skip("the build has fewer records")
                    assert record < _MOST, "a build has more records than are tried: raise _MOST"
                    with workspace.started("worker", "--json"):
                        stream = await end
                assert stream.status == "succeeded", stream.reply
                versions = await services.teams.versions(CALLER.tenant, "watch")
    before = ["superseded"] if build == "version" else []
    assert [one.state for one in versions] == [*before, "active"]
    published = ["unproven", "active"] if build == "idempotent" else ["active"]
    assert [one["state"] for one in stream.of("published")] == published
    assert [len(stream.of(kind)) for kind in ("design", "checks", "proof")] == [1, 1, 2]


async def _held(connection: AsyncConnection) -> None:
    """Return once a record waits."""
    query = "SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = 7 AND NOT granted"
    while await (await connection.execute(query)).fetchone() is None:  # noqa: ASYNC110 - another process
        await asyncio.sleep(0.01)


async def _accepted(services: Services, *, is_new: bool) -> RunKey:
    """Have a team built, or a version of one that is imported first."""
    if is_new:
        return (await services.builds.team(CALLER, BuildRequest(goal="Look at the disks.", name="watch"))).key
    await services.teams.add(CALLER, "watch", team_of(_TEAM), Actor.local("test"))
    await services.teams.activate(CALLER, "watch", None, Actor.local("test"))
    wanted = BuildRequest(kind="version", goal="Look at the disks.")
    return (await services.builds.version(CALLER, "watch", wanted)).key


async def _stream(services: Services, key: RunKey) -> RunStream:
    """Return the events of a build, once the activation that it asks about was approved and it has ended."""
    events = list[EventRow]()
    async for event in services.runs.reader.follow(key):
        events.append(event)
        if event.type == "approval_required":
            (asked,) = await services.runs.interrupts.waiting(key.tenant, run=key.id)
            answer = InterruptAnswer(asked.id, "resolved", {"approved": True})
            await services.runs.interrupts.answer(key, [answer], "local")
    return RunStream(key, events)
