"""A stand-in of Langfuse for tests: serves prompts as its public API does.

Requests are checked against what Langfuse publishes, and answers are made with the models of its own client, so that
neither can drift from the API.
"""

import asyncio
import base64
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web
from langfuse.api import Prompt_Chat, Prompt_Text
from pydantic import TypeAdapter

from tests.support import http_server
from tests.support.otlp_collector import Collector

PUBLIC_KEY: Final = "pk-lf-test"
SECRET_KEY: Final = "sk-lf-test"
_PARAMETERS: Final = {"version", "label", "resolve"}
_ADAPTER: TypeAdapter[Prompt_Chat | Prompt_Text] = TypeAdapter(Prompt_Chat | Prompt_Text)

type Messages = Sequence[Mapping[str, Any]]


@dataclass(slots=True)
class _Version:
    content: str | Messages
    labels: set[str]


class LangfuseServer(Collector):
    """Serves `GET /api/public/v2/prompts/{name}`, and takes traces and scores as the collector does.

    With an `answer`, a status and a body, all requests for prompts get it; while `silent` they get none. Requests that
    come while there is a gate `held` get what there was then, once it is open.
    """

    def __init__(self) -> None:
        super().__init__()
        self.requested: list[str] = []
        self.answer: tuple[int, str] | None = None
        self.silent = False
        self.held: asyncio.Event | None = None
        self._prompts: dict[str, list[_Version]] = {}
        self._runner.app.router.add_get("/api/public/v2/prompts/{name}", self._get)

    @property
    def settings(self) -> dict[str, str]:
        """The settings that a platform reaches it with."""
        return {"langfuse_host": self.url, "langfuse_public_key": PUBLIC_KEY, "langfuse_secret_key": SECRET_KEY}

    async def stop(self) -> None:
        """Be away from now on."""
        await http_server.stop(self._runner, self._listening)

    def publish(self, name: str, content: str | Messages, *labels: str) -> int:
        """Add a version of a prompt, with labels that it takes from other versions; return its number."""
        versions = self._prompts.setdefault(name, [])
        for other in versions:
            other.labels -= {*labels, "latest"}
        versions.append(_Version(content, {*labels, "latest"}))
        return len(versions)

    def unpublish(self, name: str) -> None:
        """Delete a prompt."""
        del self._prompts[name]

    async def _get(self, request: web.Request) -> web.Response:
        if self.silent:
            await asyncio.Event().wait()
        if self.answer is not None:
            return web.Response(status=self.answer[0], text=self.answer[1], content_type="text/html")
        wrong = _wrong(request)
        if wrong is not None:
            return wrong
        name, label = request.match_info["name"], request.query.get("label", "production")
        self.requested.append(name)
        answer = self._found(name, label)
        if self.held is not None:
            await self.held.wait()
        return answer

    def _found(self, name: str, label: str) -> web.Response:
        for number, version in enumerate(self._prompts.get(name, ()), start=1):
            if label in version.labels:
                return web.json_response(_document(name, number, version))
        told = f"Prompt not found: '{name}' with label '{label}'"
        return web.json_response({"message": told, "error": "LangfuseNotFoundError"}, status=404)


@contextmanager
def langfuse_in_a_thread() -> Generator[LangfuseServer]:
    """Run the stand-in until the block ends, for tests without an event loop of their own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    server = LangfuseServer()
    try:
        asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result(10)
        yield server
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(10)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def _wrong(request: web.Request) -> web.Response | None:
    """Return the answer to a request that isn't one of the API, or without the keys."""
    keys = base64.b64encode(f"{PUBLIC_KEY}:{SECRET_KEY}".encode()).decode()
    if request.headers.get("Authorization") != f"Basic {keys}":
        return web.json_response({"message": "Invalid credentials.", "error": "UnauthorizedError"}, status=401)
    if unknown := request.query.keys() - _PARAMETERS:
        return web.json_response({"message": f"Unknown: {unknown}", "error": "InvalidRequestError"}, status=400)
    if {"version", "label"} <= request.query.keys():
        return web.json_response({"message": "Version or label", "error": "InvalidRequestError"}, status=400)
    return None


def _document(name: str, number: int, version: _Version) -> Any:
    chat = not isinstance(version.content, str)
    document: dict[str, Any] = {
        "type": "chat" if chat else "text",
        "prompt": version.content,
        "name": name,
        "version": number,
        "config": {},
        "labels": sorted(version.labels),
        "tags": [],
        "commitMessage": None,
        "resolutionGraph": None,
    }
    return _ADAPTER.dump_python(_ADAPTER.validate_python(document), mode="json", by_alias=True)
