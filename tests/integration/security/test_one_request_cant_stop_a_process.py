"""Bodies that are costly to read and to refuse: the process goes on answering other requests meanwhile."""

import asyncio
import io
import json
import re
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import psutil
import pytest
import pytest_asyncio

from tests.support.command_line import new_workspace, server_file

pytestmark = pytest.mark.asyncio(loop_scope="module")

_SECONDS: Final = (
    1.0  # of the process's own time for a light request; it takes milliseconds, a stalled loop many seconds
)
_ANSWER_BYTES: Final = 64 * 1024
_NOBODYS: Final = "01a1f8ac-cbf4-7cdd-97b7-5ad5f772744e"
_BYTES: Final = 1_400_000  # about what any route takes
_RUN: Final = b'{"input":"x","thread_id":"t",'


def keys(count: int) -> bytes:
    return b",".join(b'"k%d":0' % number for number in range(count)) + b"}"


def servers(count: int, server: bytes) -> bytes:
    return b'{"mcpServers":{' + b",".join(b'"s%d":%s' % (number, server) for number in range(count)) + b"}}"


BODIES: Final = {
    "600,000 unknown keys": ("/v1/runs", _RUN + keys(600_000)),
    "unknown keys": ("/v1/runs", _RUN + keys(120_000)),
    "80,000 wrong lines": ("/v1/skills/import", b"{}\n" * 80_000),
    "lines that aren't JSON": ("/v1/skills/import", b"[\n" * 500_000),
    "60,000 servers": ("/v1/registry/plan", servers(60_000, b'{"command":"x"}')),
    "wrong servers": ("/v1/registry/reload", servers(120_000, b"{}")),
    "wrong answers": (f"/v1/runs/{_NOBODYS}/resume", b"[" + b"{}," * (_BYTES // 3) + b"{}]"),
    "wrong cases": ("/v1/teams", b'{"goal":"x","cases":[' + b"1," * (_BYTES // 2) + b"1]}"),
    "wrong tools": ("/v1/agents", b'{"name":"a","tools":[' + b"1," * (_BYTES // 2) + b"1]}"),
    "nested lists": ("/v1/runs", b"[" * _BYTES),
    "nested objects": ("/v1/runs", _RUN + b'"config":' + b'{"a":' * 200_000 + b"0" + b"}" * 200_001),
    "closed lists": ("/v1/teams/check", b'{"spec":' + b"[" * 700_000 + b"]" * 700_000 + b"}"),
    "a long text": ("/process", _RUN + b'"config":"' + b"x" * _BYTES + b'"}'),
    "escapes": ("/v1/agents", b'{"name":"' + b"\\u0000" * (_BYTES // 6) + b'"}'),
    "a huge number": ("/v1/registry/rollback", b'{"number":' + b"9" * _BYTES + b"}"),
    "a huge exponent": ("/v1/registry/rollback", b'{"number":1e' + b"9" * 1_000 + b"}"),
    "long numbers": ("/v1/registry/rollback", b'{"number":[' + b",".join([b"9" * 4_000] * 350) + b"]}"),
    "long decimals": ("/v1/registry/rollback", b'{"number":0.' + b"9" * _BYTES + b"}"),
}


@dataclass(frozen=True, slots=True)
class Api:
    """An API in a process of its own, and a client of it with all scopes."""

    client: aiohttp.ClientSession
    process: psutil.Process

    def used(self) -> float:
        """Return the seconds of processor time that the process has used: other processes don't change these."""
        times = self.process.cpu_times()
        return times.user + times.system


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(module_database_url: str) -> AsyncGenerator[Api]:
    with new_workspace(DATABASE_URL=module_database_url, STARLING_RATE_PER_MINUTE="1000000") as workspace:
        scopes = ("--scope", "run", "--scope", "teams", "--scope", "admin")
        file: Path = server_file(workspace)
        with workspace.running("up", "--port", "0", "--mcp-config", file) as service:
            key = workspace.json("key", "create", "all", *scopes)["key"]
            async with aiohttp.ClientSession(service.url, headers={"Authorization": f"Bearer {key}"}) as client:
                async with client.get("/openapi.json") as described:  # imports that a start goes on with are over then
                    assert described.status == 200
                yield Api(client, psutil.Process(service.process.pid))


async def send(api: Api, method: str, path: str, body: bytes) -> tuple[int, int, Any]:
    """Return the status, the length and the content of an answer."""
    lines = "application/jsonl" if path.endswith("/import") else "application/json"
    async with api.client.request(method, path, data=io.BytesIO(body), headers={"content-type": lines}) as response:
        return response.status, len(await response.read()), await response.json()


async def slowest_beside(api: Api, answer: asyncio.Task[Any]) -> float:
    """Return the process's seconds during the slowest light request that was sent before an answer came."""
    slowest = 0.0
    while not answer.done():
        began = api.used()
        async with api.client.get("/health") as response:
            assert response.status == 200
        slowest = max(slowest, api.used() - began)
    return slowest


@pytest.mark.parametrize("name", BODIES)
async def test_costly_body_is_refused_while_other_requests_are_answered(api: Api, name: str) -> None:
    path, body = BODIES[name]

    answer = asyncio.create_task(send(api, "POST", path, body))
    slowest = await slowest_beside(api, answer)
    status, length, problem = await answer

    assert slowest < _SECONDS
    assert length < _ANSWER_BYTES
    assert status in (400, 403, 413, 422)
    assert problem["detail"]
    assert problem["remedy"]


@pytest.mark.parametrize("content", [[{"type": "text", "text": "x" * 950}], "x" * 950, None])
async def test_longest_conversation_is_answered_while_other_requests_are(api: Api, content: object) -> None:
    messages = [{"role": role, "content": content} for _ in range(1_499) for role in ("user", "assistant")]
    messages.append({"role": "user", "content": "hello"})
    body = json.dumps({"model": "starling", "messages": messages}).encode()

    answer = asyncio.create_task(send(api, "POST", "/v1/chat/completions", body))
    slowest = await slowest_beside(api, answer)

    assert slowest < _SECONDS
    assert (await answer)[0] == 200


async def test_every_route_refuses_unknown_keys_while_other_requests_are_answered(
    api: Api,
) -> None:
    async with api.client.get("/openapi.json") as response:
        paths: dict[str, dict[str, Any]] = (await response.json())["paths"]
    routes = [(m, path) for path, methods in paths.items() for m, it in methods.items() if "requestBody" in it]
    stalled: dict[str, float] = {}
    accepted: list[str] = []

    for method, path in routes:
        sent = send(api, method, re.sub(r"\{.*?\}", _NOBODYS, path), b"{" + keys(50_000))
        answer = asyncio.create_task(sent)
        if (slowest := await slowest_beside(api, answer)) >= _SECONDS:
            stalled[f"{method} {path}"] = slowest
        accepted += [path] * (not 400 <= (await answer)[0] < 500)

    assert (stalled, accepted) == ({}, [])


async def test_thousands_of_secrets_of_a_server_are_taken_in_while_other_requests_are_answered(
    api: Api,
) -> None:
    headers = {f"{number}-Token": f'secret-{number}%3D"</&+' for number in range(6_000)}
    body = json.dumps({"mcpServers": {"a": {"url": "http://nobody.invalid/mcp", "headers": headers}}}).encode()

    for path in ("/v1/registry/reload", "/v1/registry/plan"):  # the second one begins with what the first one stored
        answer = asyncio.create_task(send(api, "POST", path, body))
        assert await slowest_beside(api, answer) < _SECONDS
        assert (await answer)[0] == 200
