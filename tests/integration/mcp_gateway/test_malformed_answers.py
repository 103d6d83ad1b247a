"""Answers that are no MCP: an error of their own call, at once where they can be told from silence."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from mcp_gateway.configuration.servers import ServerConfig, server_of
from mcp_gateway.gateway import Gateway
from starling.core.tools import ServerListing
from tests.support.gateway_harness import (
    SERVERS,
    GatewayHarness,
    call,
    free_port,
    listed,
    python,
    running_shims,
    wait_for,
    wait_for_port,
)

CORPUS = Path(__file__).parents[2] / "data/security/malformed_jsonrpc.jsonl"
SILENT = {"number", "wrong-id", "server-request-elicit", "progress-flood"}  # of a process: nothing answers the call
RESULTS = {"double-answer": "first", "resource-file-uri": "[resource file:///etc/passwd, unknown type: x]"}
TRANSPORTS = ("stdio", "http", "events")
CONTENT = b'{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"x"}],"structuredContent":%s}}'


def corpus() -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in CORPUS.read_text().splitlines()]
    return [{"name": row["name"], "base64": row["raw"]} if row["name"].endswith("-b64") else row for row in rows]


def structured(value: str) -> dict[str, str]:
    return {"python": f"{CONTENT!r} % (ID, {value})"}


@contextmanager
def scripted(folder: Path, rows: Sequence[dict[str, Any]], transport: str, **options: Any) -> Generator[ServerConfig]:
    """A server that answers the call of each row's name with the row."""
    file = folder / "rows.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    if transport == "stdio":
        yield python(SERVERS / "raw.py", str(file), **options)
        return
    port = free_port()
    with ExitStack() as stack:
        process = stack.enter_context(subprocess.Popen([sys.executable, SERVERS / "raw.py", file, str(port)]))
        stack.callback(process.kill)
        wait_for_port(port, process)
        path = "mcp" if transport == "http" else "events"
        yield server_of({"url": f"http://127.0.0.1:{port}/{path}", "x-starling": options})


@asynccontextmanager
async def opened(
    harness: GatewayHarness, rows: Sequence[dict[str, Any]], transport: str, **options: Any
) -> AsyncGenerator[tuple[Gateway, ServerListing]]:
    with scripted(harness.folder, rows, transport, **options) as config:
        async with harness.gateway() as gateway:
            yield gateway, await listed(gateway, config)


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_malformed_answer_is_an_error_of_its_call_and_the_next_call_is_right(
    harness: GatewayHarness, transport: str
) -> None:
    wrong: list[str] = []
    async with opened(harness, corpus(), transport) as (gateway, listing):
        for row in corpus():
            name = row["name"]
            if name == "invalid-utf8-b64":  # answers the request 1: the first call of a session
                continue
            at_once = name not in SILENT or transport != "stdio"
            outcome = await call(gateway, listing, name, seconds=10 if at_once else 0.3)
            following = await call(gateway, listing, "good")
            expected = ("succeeded", "") if name in RESULTS else ("failed", "invalid_result" if at_once else "timeout")
            found = outcome.status, outcome.code.replace("tool_error", "invalid_result")
            if found != expected or not following.text.startswith("good"):
                wrong.append(f"{name}: {found} {outcome.text[:200]}; then {following.text[:100]}")
            if name in RESULTS and outcome.text != RESULTS[name]:
                wrong.append(f"{name}: {outcome.text}")
        pids = {(await call(gateway, listing, "good")).text for _ in range(2)}

    assert wrong == []
    assert len(pids) == 1


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(
    ("row", "reason"),
    [
        pytest.param(structured("b'{\"a\":' + b'9' * 5000 + b'}'"), "number out of range", id="5,000 digits"),
        pytest.param(structured("b'[' * 3000 + b']' * 3000"), "recursion limit", id="3,000 levels"),
        pytest.param(structured("b'[' * 300000 + b']' * 300000"), "nested too deeply", id="300,000 levels"),
        pytest.param(structured('b\'{"a":"\\xff\\xfe"}\''), "invalid unicode", id="invalid UTF-8"),
        pytest.param(structured("b'{\"a\":\"' + b'x' * 17 * 2**20 + b'\"}'"), "longer than 16 MiB", id="17 MiB"),
        pytest.param(
            {"raw": '{"jsonrpc":"2.0","result":{"x":[{},{"id":5}]},,"id":$ID}'}, "not JSON", id="id at the end"
        ),
    ],
)
async def test_answer_that_can_not_be_read_is_reported_at_once(
    harness: GatewayHarness, row: dict[str, Any], reason: str, transport: str
) -> None:
    async with opened(harness, [{"name": "act", **row}], transport) as (gateway, listing):
        outcome, other = await asyncio.gather(
            call(gateway, listing, "act", seconds=60), call(gateway, listing, "good", seconds=60)
        )

    assert (outcome.status, outcome.code) == ("failed", "invalid_result")
    assert "The answer of a.act is unreadable: it is" in outcome.text
    assert reason in outcome.text
    assert other.status == "succeeded"


async def test_answer_in_invalid_utf8_is_an_error_at_once(harness: GatewayHarness) -> None:
    rows = [row for row in corpus() if row["name"] == "invalid-utf8-b64"]
    async with opened(harness, rows, "stdio") as (gateway, listing):
        outcome = await call(gateway, listing, "invalid-utf8-b64")

    assert "is unreadable: it is not JSON that can be read: invalid unicode" in outcome.text


async def test_late_answer_is_not_that_of_the_next_call(harness: GatewayHarness) -> None:
    late = {"name": "late", "python": f"__import__('time').sleep(0.5) or {CONTENT!r} % (ID, b'{{}}')"}
    async with opened(harness, [late], "stdio") as (gateway, listing):
        gateway.warm("a")
        await call(gateway, listing, "good")
        slow = await call(gateway, listing, "late", seconds=0.2)
        following = await call(gateway, listing, "good")

    assert (slow.code, following.status) == ("timeout", "succeeded")
    assert following.text.startswith("good")


async def test_abandoned_call_does_not_keep_its_server_alive(harness: GatewayHarness) -> None:
    endless = {"name": "endless", "python": "__import__('time').sleep(60)"}
    with scripted(harness.folder, [endless], "stdio") as config:
        async with harness.listing(config, session_idle_seconds=0.2) as (gateway, listing):
            await call(gateway, listing, "good")
            abandoned = await call(gateway, listing, "endless", seconds=0.3)
            await wait_for(lambda: not running_shims())

    assert abandoned.code == "timeout"


@pytest.mark.parametrize("method", ["sampling/createMessage", "elicitation/create", "roots/list"])
async def test_request_of_a_server_is_refused_at_once(harness: GatewayHarness, method: str) -> None:
    wishes: dict[str, Any] = {
        "sampling/createMessage": {"messages": [], "maxTokens": 5},
        "elicitation/create": {"message": "Your key?", "requestedSchema": {"type": "object", "properties": {}}},
        "roots/list": {},
    }
    asked = json.dumps({"jsonrpc": "2.0", "id": 8, "method": method, "params": wishes[method]})
    row = {
        "name": "act",
        "python": f"print({asked!r}, flush=True) or {CONTENT!r} % "
        "(ID, __import__('json').dumps({'said': __import__('sys').stdin.readline()}).encode())",
    }
    async with opened(harness, [row], "stdio") as (gateway, listing):
        outcome = await call(gateway, listing, "act")

    said = json.loads(str((outcome.data or {})["said"]))
    assert (said["id"], said["error"]["code"]) == (8, -32600)
