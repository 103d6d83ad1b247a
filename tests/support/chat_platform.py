"""A platform with a scripted model and a server with effects, for conversations by OpenAI's clients."""

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from openai import AsyncOpenAI, omit
from openai.types.chat import ChatCompletion
from pydantic import SecretStr

from starling.app.access.keys import KeySpec
from starling.app.container.database import Database
from starling.app.container.services import open_services
from starling.app.services import Services
from starling.core.principal import DEFAULT_TENANT, HOST_ADMIN, Grant, Scope
from starling.core.settings.schema import ProviderSettings, Settings
from starling.infra.postgres.audit import Actor
from tests.support.effect_recorder import EffectRecorder
from tests.support.http_app import served_api
from tests.support.http_client import ApiClient
from tests.support.local_access import TOKEN
from tests.support.model_server import ModelServer
from tests.support.openai_clients import openai_client
from tests.support.platform import ScriptedModel
from tests.support.worker_runtime import open_worker_runtime, running_worker


@dataclass(frozen=True, slots=True)
class ChatPlatform(ApiClient):
    """The API, its services, the model behind it and what its calls did."""

    services: Services
    script: ScriptedModel
    model: ModelServer
    effects: EffectRecorder

    @property
    def port(self) -> int:
        port = urlsplit(self.url).port
        assert port
        return port

    async def key(self, *scopes: Scope, grant: Grant | None = None, tenant: str = DEFAULT_TENANT) -> str:
        """Return a new key."""
        spec = KeySpec("test", tenant, frozenset(scopes or (Scope.RUN,)), grant)
        return (await self.services.storage.keys.create(HOST_ADMIN, spec, Actor.local("test")))[1]

    async def ended(self, run_id: str) -> dict[str, Any]:
        """Return a run once it has ended."""
        async with self.client.get(f"/v1/runs/{run_id}/events") as response:
            await response.read()
        return await self.get(f"/v1/runs/{run_id}")

    async def run_ids(self) -> list[str]:
        """Return the ids of all runs, newest first."""
        return [run["run_id"] for run in (await self.get("/v1/runs"))["runs"]]


@asynccontextmanager
async def chat_platform(database_url: str, folder: Path, **limits: Any) -> AsyncGenerator[ChatPlatform]:
    """Run a platform whose calls of the server `effects` that aren't repeatable need an approval."""
    script, effects, file = ScriptedModel(), EffectRecorder(folder / "effects"), folder / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"effects": effects.as_server(approval="unsafe")}}))
    async with ModelServer(script) as model:
        settings = Settings(
            database_url=SecretStr(database_url),
            mcp_config=file,
            model=("scripted:small",),
            providers={"scripted": ProviderSettings(base_url=model.url)},
            limits=limits,  # pyright: ignore[reportArgumentType]
        )
        async with (
            open_services(settings, Database(database_url, database_url)) as services,
            open_worker_runtime(settings, services) as worker_runtime,
            running_worker(worker_runtime.worker),
            served_api(settings, services) as served,
        ):
            yield ChatPlatform(served.url, served.client, services, script, model, effects)


class ChatDialogue:
    """A client that keeps all messages and sends them each time."""

    def __init__(self, client: AsyncOpenAI, messages: Sequence[Any] = (), thread: str = "", user: str = "") -> None:
        self.messages: list[Any] = list(messages)
        self._client, self._user = client, user or omit
        self._headers = {"X-Thread-Id": thread} if thread else {}

    async def say(self, text: str) -> ChatCompletion:
        """Send a message; keep it and its answer."""
        self.messages.append({"role": "user", "content": text})
        answer = await self._client.chat.completions.create(
            model="starling", messages=self.messages, user=self._user, extra_headers=self._headers
        )
        self.messages.append({"role": "assistant", "content": answer.choices[0].message.content})
        return answer


def text_of(completion: ChatCompletion) -> str:
    return completion.choices[0].message.content or ""


def extension_of(completion: ChatCompletion) -> dict[str, Any]:
    """Return what the completion says beside OpenAI's fields."""
    return (completion.model_extra or {})["starling"]


def platform_client(platform: ChatPlatform, key: str = TOKEN) -> AsyncOpenAI:
    """Return a client of the platform; without a key, an admin of its machine."""
    return openai_client(platform.url, key)
