"""An API with a scripted model of each role, for tests of what requests are allowed."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pydantic import SecretStr

from starling.app.container.database import Database
from starling.app.container.services import open_services
from starling.core.ids import new_id
from starling.core.principal import DEFAULT_TENANT
from starling.core.settings.schema import ProviderSettings, Settings
from tests.integration.http.conftest import LiveApi
from tests.support.brainstem_server import BrainstemServer
from tests.support.effect_recorder import AGENT, EffectRecorder
from tests.support.http_app import served_api
from tests.support.model_script import Answer, Body
from tests.support.model_server import ModelServer
from tests.support.platform import ScriptedModel, calls, decision, task
from tests.support.worker_runtime import open_worker_runtime, running_worker

OTHER: Final = "mcp_agent_other"  # the same tools as those of `effects`, of another server
ROLES: Final = {
    "model_supervisor": "big-chief",
    "model": "small",
    "model_reasoning": "big",
    "model_router": "small",
    "model_coding": "code",
}
READ: Final = calls(("read_it", {"what": "a"}))
CHARGE: Final = calls(("charge", {"what": "a"}))
type Headers = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Governed(LiveApi):
    """An API with a scripted model of each role, two servers with effects, and perhaps a brainstem."""

    script: ScriptedModel
    model: ModelServer
    effects: EffectRecorder
    brainstem: BrainstemServer = field(default_factory=BrainstemServer)

    async def govern(self, status: int = 200, **table: Any) -> Any:
        return await self.post("/v1/registry/reload", status, json={"governance": table})

    async def check(self, status: int = 200, **table: Any) -> Any:
        return await self.post("/v1/governance/check", status, json=table)

    async def row(self, cell: str, tenant: str = DEFAULT_TENANT) -> dict[str, Any]:
        return (await self.get("/v1/governance", params={"tenant": tenant}))["cells"][cell]

    async def begin(self, headers: Headers | None = None, text: str = "Do it.", **config: Any) -> str:
        body = {"input": text, "thread_id": new_id(), "config": config}
        return (await self.post("/v1/runs", 202, json=body, headers=headers))["run_id"]

    async def ended(self, run: str, headers: Headers | None = None) -> dict[str, Any]:
        async with asyncio.timeout(60), self.client.get(f"/v1/runs/{run}/events", headers=headers) as response:
            await response.read()
        return await self.get(f"/v1/runs/{run}", headers=headers)

    async def until(self, run: str, status: str) -> dict[str, Any]:
        async with asyncio.timeout(60):
            while (found := await self.get(f"/v1/runs/{run}"))["status"] != status:
                assert found["ended_at"] is None, found
                await asyncio.sleep(0.05)
        return found

    async def do(self, headers: Headers | None = None, **config: Any) -> dict[str, Any]:
        """Send a request; return what `/process` says."""
        body = {"input": "Do it.", "thread_id": new_id(), "config": config}
        async with asyncio.timeout(60), self.client.post("/process", json=body, headers=headers) as response:
            assert response.status in (200, 202), await response.text()
            return await response.json()

    def asked(self, contains: str = "") -> list[Body]:
        return [body for body in self.model.bodies if contains in str(body["messages"])]

    def forget(self) -> None:
        """Begin anew, for another test: nothing is scripted, and nothing was asked or done."""
        self.script.forget()
        self.model.forget()
        self.effects.file.unlink(missing_ok=True)
        self.brainstem.asked.clear()
        self.brainstem.answer, self.brainstem.status, self.brainstem.silent = {}, 200, False

    @property
    def models(self) -> set[str]:
        return {body["model"] for body in self.model.bodies}

    def one_task(self, *answers: Answer, agent: str = AGENT, **fields: Any) -> None:
        """Script a plan of one task."""
        self.script.run(decision(task("t1", agent), **fields), t1=answers, qa=Answer("Done [1]."))


@asynccontextmanager
async def governed_api(url: str, folder: Path, **others: Any) -> AsyncGenerator[Governed]:
    script, effects, file = ScriptedModel(), EffectRecorder(folder / "effects"), folder / "mcp.json"
    servers = {"effects": effects.as_server(), "other": effects.as_server(approval="never")}
    async with ModelServer(script) as model:
        settings = Settings.model_validate(
            {name: (f"scripted:{one}",) for name, one in ROLES.items()}
            | {"database_url": SecretStr(url), "mcp_config": file, "skills": False, "data_dir": folder}
            | {"providers": {"scripted": ProviderSettings(base_url=model.url)}}
            | {"limits": {"model_wait_seconds": 0}, **others}  # of tests whose models fail
        )
        file.write_text(json.dumps({"mcpServers": servers}))
        async with (
            open_services(settings, Database(url, url)) as services,
            open_worker_runtime(settings, services) as worker_runtime,
            running_worker(worker_runtime.worker),
            served_api(settings, services) as served,
        ):
            yield Governed(served.url, served.client, services, script, model, effects)
