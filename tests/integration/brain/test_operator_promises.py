"""Workers of one database with different configurations: a start takes no tools away, an admin does."""

import asyncio
import re
import sys
from pathlib import Path

import pytest

from mcp_gateway.registration import catalog
from starling.infra.postgres.audit import Actor
from tests.integration.brain.conftest import Open
from tests.support.gateway_harness import wait_for
from tests.support.http_app import served_api
from tests.support.model_script import Answer
from tests.support.model_server import ModelServer
from tests.support.platform import (
    BENCH,
    ScriptedModel,
    Workbench,
    calls,
    decision,
    open_platform,
    task,
    verdict,
)
from tests.support.worker_runtime import running_worker

LOOK = calls(("look", {"thing": "disk"}))
SILENT = {"command": sys.executable, "args": ["-c", "import signal; signal.pause()"], "x-starling": {"effect": "read"}}


async def test_starting_worker_whose_changed_server_is_silent_leaves_its_tools_to_runs_until_an_admin_removes_it(
    database_url: str,
    model: ModelServer,
    script: ScriptedModel,
    workbench: Workbench,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(catalog, "GRACE_SECONDS", 0.1)
    script.run(decision(task("t1", BENCH)), t1=LOOK, qa=Answer("It is fine [1]."))
    bench = workbench.as_server("read")
    for name in ("old", "new"):
        (tmp_path / name).mkdir()

    async with open_platform(database_url, model, {"bench": bench, "other": bench}, tmp_path / "old") as old:
        accepted = [await old.accept("How is the disk?", thread="before")]
        async with open_platform(database_url, model, {"bench": SILENT, "other": bench}, tmp_path / "new") as new:
            both = (old, new)
            accepted += [await each.accept("How is the disk?", thread=str(n)) for n, each in enumerate(both)]
            async with running_worker(old.worker_runtime.worker), running_worker(new.worker_runtime.worker):
                streams = await asyncio.gather(*(old.stream(key) for key in accepted))
            epochs = {each.worker_runtime.epoch_follower.epoch for each in both}

            removed = await old.services.registry.reload({}, Actor.local("test"))
            await wait_for(lambda: all(each.worker_runtime.gateway.listing("bench") is None for each in both))
            late = await new.ask("How is the disk?", thread="late")

    assert [(stream.status, stream.done["degraded"]) for stream in streams] == [("succeeded", [])] * 3
    assert workbench.done() == ["look disk"] * 3
    assert {stream.of("run_started")[0]["epoch"] for stream in streams} == epochs == {removed.epoch - 1}
    assert late.status == "failed"


async def test_degraded_run_is_counted_once_by_the_code_of_its_failed_task(opened: Open, script: ScriptedModel) -> None:
    name = r'^starling_runs_degraded_total\{reason="(\w+)"\} (\d+)'
    script.supervisor(decision(task("t1", BENCH), task("t2", BENCH), task("t3", BENCH)), decision())
    script.agent("t1", LOOK)
    for failing in ("t2", "t3"):
        script.agent(failing, LOOK)
        script.reviewer(verdict("REJECTED", "Of another disk."), of=failing)
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("It is fine [1]."))

    async with opened() as platform, served_api(platform.settings, platform.services) as api:

        async def counted() -> dict[str, int]:
            async with api.client.get("/metrics") as response:
                return {reason: int(n) for reason, n in re.findall(name, await response.text(), re.MULTILINE)}

        before = await counted()
        key = await platform.accept("How are the disks?")
        async with running_worker(platform.worker_runtime.worker):
            stream = await platform.stream(key)
            while (after := await counted()) == before:
                pass  # it is counted right after the last event

    grown = {reason: count - before.get(reason, 0) for reason, count in after.items()}
    assert len(stream.done["degraded"]) == 2
    assert {reason: count for reason, count in grown.items() if count} == {"rejected": 1}
