"""The query by which KEDA scales workers, on the schema of this version."""

import psycopg
import yaml

from starling.app.container.database import Database
from starling.app.container.services import open_services
from starling.app.runs.acceptance import RunRequest
from starling.core.settings.schema import Settings
from tests.support.documented_commands import ROOT
from tests.support.platform import CALLER

FILE = ROOT / "deploy/kubernetes/autoscaling/worker-scaler.yaml"


async def test_scaling_query_counts_runs_that_need_a_slot_and_none_that_ended_or_waits_for_its_thread(
    database_url: str,
) -> None:
    _, scaler = yaml.safe_load_all(FILE.read_text("utf-8"))
    query = scaler["spec"]["triggers"][0]["metadata"]["query"]
    database = Database(database_url, database_url)
    async with open_services(Settings(), database) as services:
        ended = await services.runs.acceptance.accept(CALLER, RunRequest(input="Hi.", thread_id="ended"))
        await services.runs.acceptance.accept(CALLER, RunRequest(input="Hi.", thread_id="queued"))
        await services.runs.acceptance.accept(CALLER, RunRequest(input="Hi.", thread_id="queued"))
        async with await psycopg.AsyncConnection.connect(database_url) as connection:
            before = await (await connection.execute(query)).fetchone()
            await connection.execute(
                "UPDATE runs SET status = 'cancelled', ended_at = now() WHERE id = %s", [ended.key.id]
            )
            after = await (await connection.execute(query)).fetchone()

    assert (before, after) == ((2,), (1,))
