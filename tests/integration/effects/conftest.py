"""Whole runs against a server that records the calls that it receives; an API shows what is said of them."""

import json
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from sqlalchemy import text

from starling.infra.postgres.runs.acceptance import RunKey
from tests.support.gateway_harness import SERVERS
from tests.support.http_app import served_api
from tests.support.interrupted_runs import answer_interrupts, execute_run, open_interrupts
from tests.support.model_script import Answer
from tests.support.model_server import ModelServer
from tests.support.platform import Platform, RunStream, ScriptedModel, calls, decision, open_platform, task, verdict

# The same tools; unsafe ones of the second need an approval, and the third is given up after two seconds.
PIZZERIA, STRICT, SLOW = "mcp_agent_pizzeria", "mcp_agent_strict", "mcp_agent_slow"
CODE = "repeat_after_rejection"
REASON = "It is without olives."
REJECTED, APPROVED = verdict("REJECTED", REASON), verdict("APPROVED")
_EFFECTS = {"order": "unsafe", "put": "idempotent", "menu": "read"}
_TEXTS = ("system", "user")
_EXPIRE = text("UPDATE interrupts SET expires_at = now() - interval '1 second'")


def ask_for(*wanted: str, more: bool = False) -> Answer:
    """The answer of an agent that calls for `order tofu`, `put salt lost` and so on; `more`: it sees the results."""
    asked: list[tuple[str, dict[str, Any] | str]] = []
    for name, *args in map(str.split, wanted):
        asked.append((name, dict[str, Any](zip(("what", "answer"), args, strict=False))))
    return calls(*asked, *([("continue", dict[str, Any]())] if more else []))


@dataclass(frozen=True, slots=True)
class Kitchen:
    """A platform with its API, the record of its servers, and the script of its model."""

    platform: Platform
    client: aiohttp.ClientSession
    url: str
    script: ScriptedModel
    record: Path

    @property
    def received(self) -> list[str]:
        """The calls that the servers received, as `order tofu`."""
        return [f"{line['name']} {line['what']}" for line in self._lines()]

    @property
    def keys(self) -> list[str]:
        """The idempotency keys of these calls."""
        return [line["key"] for line in self._lines()]

    def plan(self, *agent: Answer, verdicts: Sequence[Answer] = (REJECTED, APPROVED), of: str = PIZZERIA) -> None:
        """Script one task, whose agent gives these answers."""
        self.script.supervisor(decision(task("t1", of)), decision())
        self.script.agent("t1", *agent)
        self.script.reviewer(*verdicts)
        self.script.qa(Answer("It is done [1]."))

    async def run(self, *said: str, key: RunKey | None = None) -> RunStream:
        """Execute a run to its end, and answer its questions so: `approve`, `refuse` or `expire`."""
        key, left = key or await self.platform.accept("Get what is needed."), list(said)
        await execute_run(self.platform, key)
        while asked := await open_interrupts(self.platform, key):
            assert left, f"nobody should be asked: {[(one.kind, one.message) for one in asked]}"
            if (said_now := left.pop(0)) == "expire":
                await self.expire()
            else:
                await answer_interrupts(self.platform, key, approved=said_now == "approve")
            await execute_run(self.platform, key)
        return await self.platform.stream(key)

    async def expire(self) -> None:
        async with self.platform.services.storage.engine.begin() as connection:
            await connection.execute(_EXPIRE)
        await self.platform.services.runs.interrupts.expire()

    async def read(self, path: str) -> Any:
        async with self.client.get(path) as response:
            assert response.status == 200, await response.text()
            return await response.json()

    def shown(self, contains: str) -> list[str]:
        """What the model was shown in each request that contains these words, without calls of tools and results."""
        bodies = self.platform.requests_containing(contains)
        return ["\n".join(one["content"] for one in body["messages"] if one["role"] in _TEXTS) for body in bodies]

    def _lines(self) -> list[dict[str, Any]]:
        text = self.record.read_text() if self.record.exists() else ""
        return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def opened(database_url: str, tmp_path: Path) -> Any:
    """Open a kitchen, with other limits than the default ones."""

    @asynccontextmanager
    async def open_with(**limits: Any) -> AsyncGenerator[Kitchen]:
        script, record = ScriptedModel(), tmp_path / "received"
        command = {"command": sys.executable, "args": [str(SERVERS / "pizzeria.py"), str(record)]}
        about = {"description": "Orders things.", "tools": {name: {"effect": it} for name, it in _EFFECTS.items()}}
        servers = {
            "pizzeria": command | {"x-starling": about},
            "strict": command | {"x-starling": about | {"approval": "unsafe"}},
            "slow": command | {"x-starling": about | {"timeout": 2}},
        }
        async with (
            ModelServer(script) as model,
            open_platform(database_url, model, servers, tmp_path, **limits) as platform,
            served_api(platform.settings, platform.services) as served,
        ):
            yield Kitchen(platform, served.client, served.url, script, record)

    return open_with


@pytest.fixture
async def kitchen(opened: Any) -> AsyncGenerator[Kitchen]:
    async with opened() as kitchen:
        yield kitchen
