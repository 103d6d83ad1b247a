"""The tokens that a run may use by default: over them it asks a person for more."""

from dataclasses import replace
from pathlib import Path

from starling.core.runs import RunStatus
from starling.infra.postgres.runs.interrupts import InterruptAnswer
from tests.support.interrupted_runs import execute_run, open_interrupts
from tests.support.model_script import Answer, Body
from tests.support.model_server import ModelServer
from tests.support.platform import (
    BENCH,
    ScriptedModel,
    Workbench,
    calls,
    decision,
    open_platform,
    task,
)


class Unmetered:
    """A model whose endpoint reports no tokens."""

    def __init__(self, script: ScriptedModel) -> None:
        self._script = script

    async def __call__(self, body: Body) -> Answer:
        return replace(await self._script(body), usage=())


async def test_run_whose_endpoint_reports_no_usage_reaches_its_ceiling_with_one_warning(
    database_url: str, workbench: Workbench, script: ScriptedModel, tmp_path: Path
) -> None:
    script.supervisor(decision(task("t1", BENCH)))
    script.agent("t1", calls(("look", {"thing": "disk"})))
    script.agent("t1", Answer("It is half full."))
    servers = {"bench": workbench.as_server("read")}

    async with (
        ModelServer(Unmetered(script)) as model,
        open_platform(database_url, model, servers, tmp_path, run_tokens=1_200) as platform,
    ):
        key = await platform.accept("How is the disk?")
        await execute_run(platform, key)
        waiting = (await platform.services.runs.documents.row(key)).status
        [asked] = await open_interrupts(platform, key)
        await platform.services.runs.interrupts.answer(key, [InterruptAnswer(asked.id, "cancelled", {})], "me")
        stream = await platform.finish(key)

    assert (waiting, stream.status) == (RunStatus.WAITING, "budget_exhausted")
    assert stream.done["usage"]["estimated"]
    assert stream.done["usage"]["tokens"] >= 1_200
    assert stream.codes.count("usage_estimated") == 1
