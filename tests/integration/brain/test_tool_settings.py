"""Settings of tools in whole runs: deduplication across runs, events, and kept results in several processes."""

import asyncio
from pathlib import Path

from starling.infra.postgres.runs.ledger import LedgerReader
from tests.integration.brain.conftest import Open
from tests.support.effect_recorder import AGENT, EffectRecorder
from tests.support.gateway_harness import call
from tests.support.model_script import Answer
from tests.support.model_server import ModelServer
from tests.support.platform import ScriptedModel, calls, decision, open_platform, task, verdict


async def test_equal_call_of_another_run_gets_the_first_ones_result_and_a_row_of_its_own(
    opened: Open, script: ScriptedModel, effects: EffectRecorder
) -> None:
    server = effects.as_server()
    server["x-starling"]["tools"]["charge"] |= {"dedup_ttl": 600, "post_effects": [{"event": "charge.made"}]}
    script.supervisor(decision(task("t1", AGENT)), decision(), decision(task("t1", AGENT)), decision())
    script.agent("t1", calls(("charge", {"what": "a"})))
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("Charged [1]."))

    async with opened(servers={"effects": server}) as platform:
        keys = [await platform.accept("Charge a.", thread=f"thread {number}") for number in range(2)]
        streams = [await platform.finish(key) for key in keys]
        rows = [row for key in keys for row in await LedgerReader(platform.services.storage.engine).calls(key)]

    assert effects.done() == ["charge a"]
    assert [row.state for row in rows] == ["succeeded", "reused"]
    assert [(row.outcome or {})["observation"] for row in rows] == ["completed", "reused"]
    assert streams[0].of("tool_result")[0]["result"] in streams[1].of("tool_result")[0]["result"]
    assert [[event["name"] for event in stream.of("tool_event")] for stream in streams] == [["charge.made"], []]


async def test_invalidation_reaches_the_kept_results_of_every_process(
    opened: Open, database_url: str, model: ModelServer, effects: EffectRecorder, tmp_path: Path
) -> None:
    server = effects.as_server()
    server["x-starling"]["tools"]["read_it"] |= {"cache_ttl": 600}
    server["x-starling"]["tools"]["put"] |= {"post_effects": [{"invalidate": "read_it"}]}
    folder = tmp_path / "second"
    folder.mkdir()
    async with (
        opened(servers={"effects": server}) as first,
        open_platform(database_url, model, {"effects": server}, folder) as second,
    ):
        reader, writer = first.worker_runtime.gateway, second.worker_runtime.gateway
        listing = reader.listing("effects")
        assert listing
        for _ in range(2):
            await call(reader, listing, "read_it", what="a")
        assert len(effects.lines("arrived")) == 1

        await call(writer, listing, "put", what="a")

        reads = len(effects.lines("arrived"))
        async with asyncio.timeout(60):
            while len(effects.lines("arrived")) == reads:
                await call(reader, listing, "read_it", what="a")
                await asyncio.sleep(0.01)  # a kept result is given at once: without a pause the notice is never read
