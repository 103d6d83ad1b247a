"""How long a hostile server stops the event loop: malformed, huge, deep and compressed answers, floods, costly schemas.

`python -m bench.loop_stall` measures in a process of its own, and prints JSON: milliseconds by kind of answer.
"""

import asyncio
import json
import logging
import sys
import tempfile
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from time import perf_counter
from typing import Any, Final, cast

from bench.figures import Figure
from bench.harness import BenchSetup
from bench.line_process import line_of, python, running
from mcp_gateway.configuration.servers import server_of
from mcp_gateway.path.attempts import Timeout
from mcp_gateway.path.dispatch import Dispatch
from mcp_gateway.path.result_size_limit import SizeLimit
from mcp_gateway.path.schema_checks import SchemaCheck
from mcp_gateway.path.stage import Stage
from mcp_gateway.registration.approved_tools import LiveReview
from mcp_gateway.registration.discovery import list_once
from mcp_gateway.registration.known_servers import Directory
from mcp_gateway.registration.listed_tools import definition_hash
from mcp_gateway.registration.live_check import LiveCheck
from mcp_gateway.schemas.validation import Validators
from mcp_gateway.sessions.breakers import ServerBreakers
from mcp_gateway.sessions.call_queue import CallQueues
from mcp_gateway.sessions.checked_connections import CheckedConnections
from mcp_gateway.sessions.pool import SessionPool
from starling.app.cli.process_setup import freeze_startup_objects
from starling.core.clock import Deadline, SystemClock
from starling.core.ids import new_id
from starling.core.settings.schema import Limits
from starling.core.tool_calls import Effect
from starling.core.tools import ServerListing, ToolCall, ToolDefinition
from tests.support.absent_services import DISABLED_ARTIFACT_STORE, NO_HALTS
from tests.support.gateway_harness import SERVERS, free_port

NAMES: Final = ("gateway.loop_stall_ms",)
_CORPUS: Final = Path(__file__).parents[1] / "tests/data/security/malformed_jsonrpc.jsonl"
_SILENT: Final = frozenset({"number", "wrong-id", "server-request-elicit", "progress-flood"})  # nothing answers them
_SECONDS: Final = 0.3  # for these
_LONGEST: Final = 60.0
_SLOW: Final = 50.0  # milliseconds
_ANSWER: Final = (
    b'{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"x"}],"structuredContent":{"a":%s}}}'
)
_NOTE: Final = b'{"jsonrpc":"2.0","method":"notifications/%s","params":{"progressToken":1,"progress":1,"data":1}}\n'


def _content(value: str) -> str:
    return f"{_ANSWER!r} % (ID, {value})"


_ROWS: Final = {
    "80_MB": _content("b'\"' + b'x' * 80 * 2**20 + b'\"'"),
    "15_MB_of_text": _content("b'\"' + b'x' * 15 * 2**20 + b'\"'"),
    "15_MB_of_numbers": _content("b'[' + b','.join([b'1'] * 7_500_000) + b']'"),
    "10_MB_of_objects": _content("b'[' + b','.join([b'{\"n\":[1,\"a\"]}'] * 700_000) + b']'"),
    "5000_levels": _content("b'[' * 5000 + b']' * 5000"),
    "5_million_levels": _content("b'[' * 5_000_000 + b']' * 5_000_000"),
    "5000_digits": _content("b'9' * 5000"),
    "250_KiB_of_numbers": _content("b'[' + b','.join([b'1'] * 125_000) + b']'"),
    "50000_notifications": f"{_NOTE!r} % b'progress' * 50_000 + {_content('b"1"')}",
    "50000_messages_of_its_log": f"{_NOTE!r} % b'message' * 50_000 + {_content('b"1"')}",
    "50000_lists_that_changed": f"{_NOTE!r} % b'tools/list_changed' * 50_000 + {_content('b"1"')}",
    "100000_lines_of_another_kind": f"b'y\\n' * 9_000 + {_content('b"1"')}",
    "50_MB_on_stderr": f"__import__('sys').stderr.write('e\\n' * 25_000_000) and {_content('b"1"')}",
}
_PATTERN: Final = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}
_COSTLY: Final = {  # rows that promise what takes long to check
    "a_pattern": (_content("b'\"' + b'a' * 200_000 + b'!\"'"), _PATTERN),
    "a_pattern_for_10_MB": (_content("b'\"' + b'a' * 10_000_000 + b'!\"'"), _PATTERN),
    "wrong_items": (
        _content("b'[' + b','.join([b'1'] * 100_000) + b']'"),
        {"type": "object", "properties": {"a": {"items": {"type": "string"}}}},
    ),
}


async def measure(setup: BenchSetup) -> list[Figure]:
    """Measure the longest of all stalls, next to the longest of well-behaved calls."""
    setup.say("What servers send, and the event loop")
    async with running(python("-m", "bench.loop_stall")) as process:
        stalls: dict[str, float] = json.loads(await line_of(process))
    worst = max(stalls, key=lambda kind: stalls[kind])
    return [Figure(NAMES[0], stalls[worst], "ms", stalls["good"], f"calls of a good server (worst: {worst})")]


async def _measured() -> dict[str, float]:
    freeze_startup_objects()  # as workers do
    logging.disable()
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        rows = _rows()
        (Path(folder) / "rows").write_text("\n".join(map(json.dumps, rows)))
        async with _server(Path(folder) / "rows", "") as ask:
            await ask("good")
            for name in ("good", *(row["name"] for row in rows)):
                found[name] = await _stall(lambda name=name: ask(name))
        for path in ("mcp", "events"):
            async with _server(Path(folder) / "rows", path) as ask:
                await ask("good")
                for row in rows:
                    found[f"{row['name']} ({path})"] = await _stall(lambda name=row["name"]: ask(name))
    return found


def _rows() -> list[dict[str, Any]]:
    corpus = [json.loads(line) for line in _CORPUS.read_text().splitlines()]
    rows = [{"name": row["name"], "raw": row["raw"]} for row in corpus if not row["name"].endswith("b64")]
    rows += [{"name": name, "python": program} for name, program in _ROWS.items()]
    rows += [
        {"name": f"{name}_compressed", "python": _ROWS[name], "gzip": True} for name in ("80_MB", "10_MB_of_objects")
    ]
    return rows + [
        {"name": name, "python": program, "outputSchema": schema} for name, (program, schema) in _COSTLY.items()
    ]


@asynccontextmanager
async def _server(rows: Path, path: str) -> AsyncGenerator[Callable[[str], Awaitable[object]]]:
    """Yield what calls a tool of the scripted server: as a process, or over HTTP under a path."""
    port, limits, directory = free_port(), Limits(), Directory()
    command = [sys.executable, str(SERVERS / "raw.py"), str(rows)]
    config = server_of(
        {"command": command[0], "args": command[1:]} if not path else {"url": f"http://127.0.0.1:{port}/{path}"}
    )
    async with SessionPool(limits, {}, CheckedConnections()) as sessions:
        process = await asyncio.create_subprocess_exec(*command, str(port), stderr=DEVNULL) if path else None
        try:
            if process is not None:
                await _listening(port)
            listed = await list_once(sessions, "a", config, limits.server_start_seconds)
            tools = tuple(_tool(name, definition) for name, definition in listed.tools.items())
            directory.replace({"a": config}, [ServerListing("a", "", config.hash, "ready", tools)])
            stage = _stage(directory, sessions, limits)
            by_name = {tool.name: tool for tool in tools}

            async def ask(name: str) -> object:
                call = ToolCall(new_id(), "run", "t1", by_name[name], {})
                seconds = _SECONDS if name in _SILENT else _LONGEST
                outcome = await stage(call, Deadline(SystemClock(), seconds), None)
                if outcome.code == "server_unavailable" or (name == "good" and outcome.status != "succeeded"):
                    raise RuntimeError(f"nothing to measure, {name} gave no answer: {outcome.text}")
                return outcome

            yield ask
        finally:
            if process is not None:
                process.kill()
                await process.wait()


def _stage(directory: Directory, sessions: SessionPool, limits: Limits) -> Stage:
    """Return the stages of a call's path that see what the server sends."""
    validators = Validators()
    live = LiveCheck(cast("LiveReview", _AllApproved(directory)), limits.server_start_seconds)
    sent = Dispatch(directory, sessions, validators, NO_HALTS, live)
    stage: Stage = Timeout(directory, ServerBreakers(), CallQueues(), limits, sent)
    return SchemaCheck(directory, validators, SizeLimit(limits.tool_result_chars, DISABLED_ARTIFACT_STORE, stage))


class _AllApproved:
    """Takes whatever a server offers for what was approved."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    async def followed(self, name: str, *_: object) -> Mapping[str, str]:
        server = self._directory.server(name)
        return server.tools if server is not None else {}


async def _listening(port: int) -> None:
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionRefusedError:
            await asyncio.sleep(0.02)
        else:
            writer.close()
            return


def _tool(name: str, definition: Mapping[str, Any]) -> ToolDefinition:
    schemas = definition["inputSchema"], definition.get("outputSchema")
    return ToolDefinition("a", name, "", *schemas, Effect.READ, definition_hash(definition))


async def _stall(act: Callable[[], Awaitable[object]]) -> float:
    """Return the longest time, in milliseconds, that the loop did nothing else: in the best of three for the slow."""
    stall = await _stall_once(act)
    for _ in range(2 if stall > _SLOW else 0):  # on a machine with other work, some are the machine's
        stall = min(stall, await _stall_once(act))
    return stall


async def _stall_once(act: Callable[[], Awaitable[object]]) -> float:
    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        last = perf_counter()
        while True:
            await asyncio.sleep(0)
            now = perf_counter()
            longest, last = max(longest, now - last), now

    watching = asyncio.get_running_loop().create_task(watch())
    try:
        await act()
    finally:
        watching.cancel()
    return longest * 1_000


if __name__ == "__main__":
    with suppress(BrokenPipeError):
        print(json.dumps(asyncio.run(_measured())), flush=True)
