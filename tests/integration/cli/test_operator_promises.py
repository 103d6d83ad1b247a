"""A call whose worker lost its lease, decided with `starling run approve` by somebody who has only the command line."""

import asyncio
import json
from pathlib import Path
from typing import Any

from sqlalchemy import text

from starling.core.ids import new_id
from starling.core.principal import DEFAULT_TENANT
from starling.infra.postgres.runs.acceptance import RunKey
from tests.support.command_line import new_workspace
from tests.support.effect_recorder import EffectRecorder
from tests.support.http_app import served_api
from tests.support.interrupted_runs import execute_run
from tests.support.local_access import TOKEN
from tests.support.model_server import ModelServer
from tests.support.platform import Platform, ScriptedModel, open_platform

LOSE_LEASE = text("UPDATE runs SET lease_until = now() - interval '1 second'")
PASS_LIMIT = text("""
UPDATE interrupts SET response_schema = jsonb_set(response_schema, '{notDoneFrom}', to_jsonb(now()))""")
CALL = {"tool_name": "effects.charge", "arguments": {"what": "a", "stall": "before", "gate": "gate"}, "timeout": 0.1}


async def execute(platform: Platform, statement: Any) -> None:
    async with platform.services.storage.engine.begin() as connection:
        await connection.execute(statement)


async def test_single_call_of_a_lost_lease_is_decided_as_not_done_only_after_its_time_limit(
    database_url: str, tmp_path: Path
) -> None:
    effects, once = EffectRecorder(tmp_path / "effects"), {"Idempotency-Key": new_id()}
    servers = {"effects": effects.as_server(timeout=200)}
    async with (
        ModelServer(ScriptedModel()) as model,
        open_platform(database_url, model, servers, tmp_path) as platform,
        served_api(platform.settings, platform.services) as api,
    ):
        accepted = await api.post("/execute", json=CALL, headers=once)
        key = RunKey(DEFAULT_TENANT, accepted["run_id"])
        alive = asyncio.ensure_future(platform.brain.execute(await platform.claim(key)))
        await effects.until("arrived", "a")
        await execute(platform, LOSE_LEASE)
        await execute_run(platform, key)
        asked = await api.post("/execute", json=CALL, headers=once)

        with new_workspace(STARLING_URL=api.url, STARLING_API_KEY=TOKEN) as workspace:

            def decide(resolution: str) -> Any:
                payload = json.dumps({"resolution": resolution})
                return workspace.starling("run", "approve", key.id, "--payload", payload)

            early = await asyncio.to_thread(decide, "not_done")
            await execute(platform, PASS_LIMIT)
            later = await asyncio.to_thread(decide, "not_done")
        effects.open("gate")
        alive.cancel()
        await asyncio.gather(alive, return_exceptions=True)
        await platform.finish(key)
        made = await api.post("/execute", json=CALL, headers=once)

    assert (accepted["status"], asked["status"], made["status"]) == ("waiting", "in_doubt", "success")
    assert early.returncode == 1
    assert "`not_done` is accepted from" in early.stderr
    assert "may still be going on" in early.stderr
    assert later.returncode == 0, later.stderr
    assert [line["fence"] for line in effects.lines("arrived")] == [1, 3]
