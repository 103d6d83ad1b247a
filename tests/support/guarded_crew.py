"""Executes agents with CrewAI under an audit hook: `python -m tests.support.guarded_crew MODEL_URL REPORT`.

The report, JSON, has what was done to the outside: connections, files written, programs started.
"""

import asyncio
import json
import os
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

from brain.state import TaskOutcome
from starling.core.clock import SystemClock
from starling.core.errors import SuspendedError
from starling.core.settings.schema import Settings
from starling.core.tool_calls import Observation
from starling.core.tools import ToolCall, ToolOutcome
from starling.infra.llm.factory import open_models
from tests.support.in_memory_run import make_execution, tool_calls
from tests.support.runtime_harness import RuntimeHarness, dispatch
from tests.support.scripted_gateway import ScriptedGateway

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_CHANGES = {"os.mkdir", "os.rename", "os.symlink", "os.link", "sqlite3.connect", "shutil.move"}
_PROGRAMS = {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork"}


def _watch() -> dict[str, list[str]]:
    seen: defaultdict[str, list[str]] = defaultdict(list)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str) and arguments[2] & _WRITING:
            seen["written"].append(arguments[0])
        elif event in _CHANGES:
            seen["written"].append(str(arguments[0]))
        elif event in _PROGRAMS:
            seen["started"].append(str(arguments[:2]))
        elif event == "socket.connect":
            seen["connected"].append(str(arguments[1]))
        elif event in ("socket.getaddrinfo", "socket.sendto"):
            seen["looked_up"].append(str(arguments[:2]))

    sys.addaudithook(hook)
    return seen


def _answer(call: ToolCall) -> ToolOutcome:
    if call.arguments.get("item") == "doubt":
        return ToolOutcome(Observation.TIMED_OUT, "No answer.", code="timeout")
    return ToolOutcome(Observation.COMPLETED, f"{call.tool.name} of {call.arguments} is done")


async def _run(url: str) -> list[str]:
    settings = Settings.model_validate(
        {"model": "openai:scripted", "openai_base_url": url, "openai_api_key": "none", "data_dir": Path.cwd()}
    )
    agent = RuntimeHarness("crewai", ScriptedGateway(_answer))
    async with open_models(settings, SystemClock()) as models:
        ended: list[str] = []
        for task in ("buy tea", "buy nothing", "fail", "doubt", "tireless"):
            begun = make_execution(agents=[agent.card])
            model = replace(begun.context.model, models=models)
            begun = replace(begun, context=replace(begun.context, model=model))
            try:
                ended.append((await agent.run(begun, task))["status"])
            except SuspendedError:
                ended.append("suspended")
        working = await _busy()
        assert working  # until the process exits
        return ended


class _Unanswered(ScriptedGateway):
    """Answers no call."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = asyncio.Event()

    async def call(self, call: ToolCall, deadline: Any, record: Any = None) -> ToolOutcome:
        self.reached.set()
        return await asyncio.get_running_loop().create_future()


async def _busy() -> set[asyncio.Task[TaskOutcome]]:
    """Return agents of which some wait for calls, some compute, and some have not begun."""
    gateway = _Unanswered()
    agent = RuntimeHarness("crewai", gateway)
    pipeline = agent.pipeline()
    looks = tool_calls(*[("look", {"thing": "tea"})] * 8)
    begun = [make_execution(looks, agents=[agent.card]) for _ in range(16)]
    loop = asyncio.get_running_loop()
    working = {loop.create_task(pipeline.run(one.context, dispatch())) for one in begun}
    await gateway.reached.wait()
    return working


def main() -> None:
    """Run and report."""
    url, report = sys.argv[1:]
    before = dict(os.environ)
    seen = _watch()
    ended = asyncio.run(_run(url))
    changed = {name: value for name, value in os.environ.items() if before.get(name) != value}
    folder = changed.pop("CREWAI_STORAGE_DIR")
    found = {"ended": ended, "changed": changed, "folder": folder, **seen}
    Path(report).write_text(json.dumps(found), "utf-8")


if __name__ == "__main__":
    main()
