"""The platform is killed: no process is left, nothing is asked or done again, runs continue.

`tests/integration/brain/test_recovery.py` shows a crash at every other moment of a run.
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
from tests.support.platform_process import PlatformProcess
from tests.support.sse import Event

RECORDING = Path(__file__).parents[1] / "support/mcp_servers/recording.py"
DECISION: dict[str, Any] = {
    "thought_process": "Two records, side by side.",
    "plan": ["record one", "record two"],
    "selected_agents": [
        {"task_id": "t1", "agent": "mcp_agent_first", "task": "record one", "depends_on": []},
        {"task_id": "t2", "agent": "mcp_agent_second", "task": "record two", "depends_on": []},
    ],
    "reply": "",
    "assumptions": [],
    "unserved": [],
    "is_request_satisfied": False,
    "is_in_loop": False,
    "is_progress_being_made": True,
}
APPROVED = {"status": "APPROVED", "refined_output": "", "reasons": ["fits"], "evidence": [], "changed": []}


def call(text: str) -> list[dict[str, Any]]:
    return [{"name": "record", "arguments": {"text": text}}]


def script(*first: Rule) -> Script:
    """A model that has both agents record, approves and answers; `first` comes before all that."""
    return Script(
        *first,
        Rule(Answer(json.dumps(DECISION)), When(schema="supervisor_decision")),
        Rule(Answer(json.dumps(APPROVED)), When(schema="verdict")),
        Rule(Answer(tool_calls=call("one")), When(tool="record", contains="record one</task>")),
        Rule(Answer(tool_calls=call("two")), When(tool="record", contains="record two</task>")),
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


async def test_queued_run_survives_a_kill(open_folder: Path) -> None:
    held = Rule(Answer("{}", hold="never"), When(schema="supervisor_decision", nth=1))
    async with (
        ModelServer(script(held)) as model,
        PlatformProcess.running(open_folder, servers(open_folder, "read"), environment(model)) as platform,
    ):
        async with platform.stream("record one and two", "same") as first, platform.stream("again", "same") as second:
            runs = [(await anext(first)).data["run_id"], (await anext(second)).data["run_id"]]
            await model.received(1)
            assert await platform.kill() == []

        await platform.start()
        ended = [done(await platform.read(run_id))["status"] for run_id in runs]

        assert ended == ["succeeded", "succeeded"]


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
