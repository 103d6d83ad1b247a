"""The platform is killed at each write to the journal of a run that learns: its skill is stored once."""

import asyncio
from pathlib import Path

import pytest

from starling.infra.postgres.engine import connected
from tests.support.effect_recorder import AGENT, EffectRecorder
from tests.support.model_script import Answer, Rule, Script, When
from tests.support.model_server import ModelServer
from tests.support.platform import calls, decision, task, verdict
from tests.support.platform_process import PlatformProcess

LOCK = 7
_STALL = f"""
CREATE SEQUENCE writes;
CREATE FUNCTION stall() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF nextval('writes') % 2 = 1 THEN PERFORM pg_advisory_xact_lock({LOCK}); END IF; RETURN NULL; END $$;
CREATE TRIGGER stall AFTER INSERT ON journal FOR EACH STATEMENT EXECUTE FUNCTION stall()"""
_STALLED = "SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
_ENDED = "SELECT FROM runs WHERE id = %(run)s AND ended_at IS NOT NULL"
_LOSE = "SELECT count(pg_terminate_backend(pid)) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


def script() -> Script:
    return Script(
        Rule(decision(task("t1", AGENT), plan=["read"]), When(schema="supervisor_decision")),
        Rule(verdict("APPROVED"), When(schema="verdict")),
        Rule(calls(("read_it", {"what": "list"})), When(tool="read_it")),
        Rule(Answer("It is read [1].")),
    )


@pytest.mark.soak
async def test_kill_at_each_journal_write_stores_a_skill_once(open_folder: Path, database_url: str) -> None:
    """Each second write waits for a lock that the test has; the platform is killed, and that write is lost."""
    effects, kills = EffectRecorder(open_folder / "effects"), 0
    async with ModelServer(script()) as model, connected(database_url) as connection:
        variables = model.variables | {
            "STARLING_LIMITS": '{"lease_seconds": 2, "crashes_per_run": 50}',
            "DATABASE_URL": database_url,
        }
        await connection.execute(_STALL.encode())
        await connection.execute(f"SELECT pg_advisory_lock({LOCK})".encode())
        async with PlatformProcess.running(open_folder, {"effects": effects.as_server()}, variables) as platform:
            async with (
                platform.client() as client,
                client.post("/v1/runs", json={"input": "Read the list.", "thread_id": "t"}) as sent,
            ):
                run = (await sent.json())["run_id"]
            while not (await (await connection.execute(_ENDED, {"run": run})).fetchall()):
                if await (await connection.execute(_STALLED)).fetchall():
                    await platform.kill()
                    await connection.execute(_LOSE)
                    kills += 1
                    await platform.start()
                await asyncio.sleep(0.05)
        query = "SELECT state, source_run::text, source_path FROM skills"
        skills = await (await connection.execute(query)).fetchall()

    assert kills >= 4
    assert skills == [("active", run, "t1")]
