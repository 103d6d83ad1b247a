"""The platform is killed: no process is left, nothing is asked or done again, runs continue.

`tests/integration/brain/shared/test_recovery.py` shows a crash at every other moment of a run.
"""

import asyncio
import contextlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from tests.support.model_script import Answer, Rule, Script, When
from tests.support.model_server import ModelServer
from tests.support.platform import calls, decision, task, verdict
from tests.support.platform_process import PlatformProcess
from tests.support.sse import Event

RECORDING = Path(__file__).parents[1] / "support/mcp_servers/recording.py"
TASKS = task("t1", "mcp_agent_first", "record one"), task("t2", "mcp_agent_second", "record two")


def script(*first: Rule) -> Script:
    """A model that has both agents record, approves and answers; `first` comes before all that."""
    return Script(
        *first,
        Rule(decision(*TASKS), When(schema="supervisor_decision")),
        Rule(verdict("APPROVED"), When(schema="verdict")),
        Rule(calls(("record", {"text": "one"})), When(tool="record", contains="record one</task>")),
        Rule(calls(("record", {"text": "two"})), When(tool="record", contains="record two</task>")),
        Rule(Answer("Both are recorded [1] [2].")),
    )


def servers(folder: Path, effect: str) -> dict[str, Any]:
    return {
        name: {
            "command": sys.executable,
            "args": [str(RECORDING), str(folder / f"{name}.log")],
            "x-starling": {"effect": effect, "description": f"Records on the {name} sheet."},
        }
        for name in ("first", "second")
    }


def environment(model: ModelServer) -> dict[str, str]:
    return {
        "STARLING_MODEL": "openai:scripted",
        "OPENAI_BASE_URL": model.url,
        "OPENAI_API_KEY": "none",
        "STARLING_LIMITS": json.dumps({"lease_seconds": 2}),
    }


def recorded(folder: Path, name: str) -> list[str]:
    return [line for line in (folder / f"{name}.log").read_text().splitlines() if line != "started"]


def done(events: Sequence[Event]) -> dict[str, Any]:
    assert events[-1].type == "done"
    return events[-1].data


def stream(event: Event) -> tuple[str, str]:
    return event.type, event.data.get("call_id") or event.data.get("task_id", "")


async def test_kill_leaves_no_process_and_repeats_no_model_call(open_folder: Path) -> None:
    held = Rule(Answer("never sent", hold="for ever"), When(schema="verdict", contains="record two</task>", nth=1))
    told = {("task_result", "t1"), ("tool_result", "t2.0.0")}
    async with (
        ModelServer(script(held)) as model,
        PlatformProcess.running(open_folder, servers(open_folder, "read"), environment(model)) as platform,
    ):
        async with platform.stream("record one and two") as events:
            seen = [await anext(events)]
            while not told <= {stream(event) for event in seen}:
                seen.append(await anext(events))
            await model.received(5)
            assert await platform.kill() == []

        await platform.start()
        whole = await platform.read(seen[0].data["run_id"])

        assert done(whole)["status"] == "succeeded"
        assert [event.id for event in whole] == list(range(1, len(whole) + 1))
        assert whole[: len(seen)] == seen
        assert len(model.requests) == 6 + 1  # only what was held is asked again
        assert recorded(open_folder, "first") == ["one"]
        assert recorded(open_folder, "second") == ["two"]


async def test_restart_opens_the_sessions_of_servers_that_were_called_before_without_a_request(
    open_folder: Path,
) -> None:
    first = servers(open_folder, "read")["first"]
    idle = first | {"args": [str(RECORDING), str(open_folder / "idle.log")]}
    async with (
        ModelServer(script()) as model,
        PlatformProcess.running(
            open_folder, servers(open_folder, "read") | {"idle": idle}, environment(model)
        ) as platform,
    ):
        assert done(await platform.ask("record one and two"))["status"] == "succeeded"
        await platform.end()

        await platform.start()
        opened = await sessions(platform)

    assert opened == {"first", "second"}


async def sessions(platform: PlatformProcess) -> set[str]:
    """Return the servers whose processes run, once two do."""
    async with asyncio.timeout(60):
        while True:
            found = {log.stem for process in platform.family() if (log := _log_of(process))}
            if len(found) > 1:
                return found
            await asyncio.sleep(0.05)


def _log_of(process: psutil.Process) -> Path | None:
    with contextlib.suppress(psutil.NoSuchProcess):
        return next((Path(word) for word in process.cmdline() if word.endswith(".log")), None)
    return None
