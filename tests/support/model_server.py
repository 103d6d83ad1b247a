"""A model server for tests, over real HTTP: answered by a script, a function or `offline:rules`.

It speaks chat completions and responses; scripts see both kinds of requests as chat completions.

In a test:        async with ModelServer(Script(Rule(Answer("hello")))) as server: ... server.url, server.requests
As a process:     python -m tests.support.model_server --script file.json   (or --rules, or both; prints its URL)

A script file is a list of rules: [{"when": {"schema": "verdict", "nth": 2}, "answer": {"status": 503}}, ...]
with the fields of `When` and `Answer` in `model_script`. GET /requests gives what was asked, POST /release/<gate>
lets go what is held.
"""

import argparse
import asyncio
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import orjson
from aiohttp import web

from starling.core.llm import Message, ModelRequest, ModelRole, ModelToolCall, ResponseSchema, ToolSpec
from tests.support import http_server, responses_api
from tests.support.model_script import Answer, Body, Responder, Rule, Script, completion, no_rule, parts


async def offline_rules(body: Body) -> Answer:
    """Answer as `offline:rules` does, over HTTP."""
    from starling.infra.llm.offline_model import OfflineModel  # noqa: PLC0415 - scripts need nothing of it

    reply = await OfflineModel().respond(_model_request(body))
    calls = [
        {"id": call.id, "name": call.name, "arguments": call.raw_arguments or call.arguments}
        for call in reply.tool_calls
    ]
    return Answer(reply.content, calls)


def model_variables(url: str) -> dict[str, str]:
    """Return the environment variables of processes whose models are at this address."""
    return {"STARLING_MODEL": "openai:scripted", "OPENAI_BASE_URL": url, "OPENAI_API_KEY": "none"}


@contextmanager
def model_process(folder: Path, *rules: Rule, offline_rules: bool = False) -> Generator[str]:
    """Run a model server in a process of its own; give its address. `folder` gets its script."""
    script = folder / "model_script.json"
    script.write_bytes(orjson.dumps([{"answer": asdict(rule.answer), "when": asdict(rule.when)} for rule in rules]))
    command = [sys.executable, "-m", __name__, "--script", script, *(["--rules"] if offline_rules else [])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()


@dataclass(frozen=True, slots=True)
class Received:
    body: Body
    headers: Mapping[str, str]
    connection: str  # the client's address and port


class ModelServer:
    """Serves one responder and keeps all that it was asked."""

    def __init__(
        self, responder: Responder, *, latency: float = 0.0, pulled: Sequence[str] | None = None, port: int = 0
    ) -> None:
        self.requests: list[Received] = []
        self.response_requests: list[Body] = []  # those to /responses, as they were sent
        self._responder = responder
        self._latency = latency
        self._pulled = pulled  # the models of an Ollama; None: this is no Ollama
        self._port = port
        self._gates: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._news = asyncio.Condition()
        app = web.Application(client_max_size=64 * 1024**2)
        app.router.add_post("/v1/chat/completions", self._complete)
        app.router.add_post("/v1/responses", self._respond)
        app.router.add_get("/requests", self._asked)
        app.router.add_post("/release/{gate}", self._release)
        app.router.add_get("/api/tags", self._tags)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)

    async def __aenter__(self) -> Self:
        self._listening = await http_server.start(self._runner, self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Answer nothing any more, as a server that is away."""
        for gate in self._gates.values():
            gate.set()
        await http_server.stop(self._runner, self._listening)

    @property
    def root(self) -> str:
        """The address without a path, as OLLAMA_BASE_URL wants it."""
        host, port, *_ = self._runner.addresses[0]
        return f"http://{host}:{port}"

    @property
    def url(self) -> str:
        """The base URL of the chat completions API."""
        return f"{self.root}/v1"

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables of processes whose models this is."""
        return model_variables(self.url)

    @property
    def bodies(self) -> list[Body]:
        return [request.body for request in self.requests]

    def forget(self) -> None:
        """Begin anew, for another test: nothing was asked, and every gate is closed."""
        self.requests.clear()
        self.response_requests.clear()
        for gate in self._gates.values():
            gate.set()
        self._gates.clear()

    def release(self, gate: str) -> None:
        self._gates[gate].set()

    async def received(self, count: int) -> None:
        """Wait until `count` requests have come."""
        async with self._news:
            await self._news.wait_for(lambda: len(self.requests) >= count)

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body: Body = orjson.loads(await request.read())
        answer = await self._answer(request, body)
        if answer.body is not None or not body.get("stream"):
            return await _whole(request, answer, completion(body, answer))
        return await self._stream(request, answer, parts(body, answer), end=b"data: [DONE]\n\n")

    async def _respond(self, request: web.Request) -> web.StreamResponse:
        sent: Body = orjson.loads(await request.read())
        self.response_requests.append(sent)
        body = responses_api.chat_body(sent)
        answer = await self._answer(request, body)
        if answer.body is not None or not body.get("stream"):
            return await _whole(request, answer, responses_api.response(body, answer))
        return await self._stream(request, answer, responses_api.events(body, answer), end=b"")

    async def _answer(self, request: web.Request, body: Body) -> Answer:
        """Return the answer once its gate is open."""
        peer = request.transport.get_extra_info("peername") if request.transport else None
        self.requests.append(Received(body, {str(name): value for name, value in request.headers.items()}, str(peer)))
        async with self._news:
            self._news.notify_all()
        if self._latency:
            await asyncio.sleep(self._latency)
        answer = await self._responder(body)
        if answer.hold and not answer.hold_after:
            await self._gates[answer.hold].wait()
        return answer

    async def _stream(
        self, request: web.Request, answer: Answer, parts: Iterable[Body], *, end: bytes
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", **answer.headers})
        await response.prepare(request)
        for sent, part in enumerate(parts):
            if answer.hold_after and sent == answer.hold_after:
                await self._gates[answer.hold].wait()
            if sent == answer.cut_after:
                return _cut(request, response)
            if answer.part_seconds:
                await asyncio.sleep(answer.part_seconds)
            event = f"event: {part['type']}\n".encode() if "type" in part else b""
            await response.write(event + b"data: " + orjson.dumps(part) + b"\n\n")
        await response.write(end)
        return response

    async def _asked(self, _: web.Request) -> web.Response:
        return _json([{"body": request.body, "headers": request.headers} for request in self.requests])

    async def _release(self, request: web.Request) -> web.Response:
        self.release(request.match_info["gate"])
        return web.Response(status=204)

    async def _tags(self, _: web.Request) -> web.Response:
        if self._pulled is None:
            raise web.HTTPNotFound
        return _json({"models": [{"name": name} for name in self._pulled]})


async def _whole(request: web.Request, answer: Answer, content: Body) -> web.StreamResponse:
    text = answer.body if answer.body is not None else orjson.dumps(content).decode()
    headers = {"Content-Type": answer.content_type, **answer.headers}
    if answer.cut_after is None:
        return web.Response(body=text.encode(), status=answer.status, headers=headers)
    response = web.StreamResponse(status=answer.status, headers={**headers, "Content-Length": str(len(text.encode()))})
    await response.prepare(request)
    await response.write(text.encode()[: answer.cut_after])
    return _cut(request, response)


def _cut(request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
    if request.transport is not None:
        request.transport.close()  # what was written is still sent
    return response


def _json(value: object) -> web.Response:
    return web.Response(body=orjson.dumps(value), content_type="application/json")


def _model_request(body: Body) -> ModelRequest:
    """Return the request that a client made this body from."""
    schema = body.get("response_format", {}).get("json_schema")
    return ModelRequest(
        role=ModelRole.ROUTER,
        messages=tuple(_message(message) for message in body["messages"]),
        tools=tuple(ToolSpec(**tool["function"]) for tool in body.get("tools", ())),
        response=ResponseSchema(schema["name"], schema["schema"]) if schema else None,
    )


def _message(message: Body) -> Message:
    calls = [(call["id"], call["function"]) for call in message.get("tool_calls", ())]
    return Message(
        role=message["role"],
        content=message["content"] or "",
        tool_calls=tuple(
            ModelToolCall(identity, asked["name"], orjson.loads(asked["arguments"]), asked["arguments"])
            for identity, asked in calls
        ),
        tool_call_id=message.get("tool_call_id"),
    )


async def _serve(options: argparse.Namespace) -> None:
    otherwise = offline_rules if options.rules else no_rule
    responder = Script.read(options.script, otherwise) if options.script else otherwise
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with ModelServer(responder, latency=options.latency_ms / 1000, port=options.port) as server:
        print(server.url, flush=True)
        await stopped.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve chat completions for tests.")
    parser.add_argument("--script", type=Path, help="a JSON file with the rules")
    parser.add_argument("--rules", action="store_true", help="answer what no rule fits as offline:rules does")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--latency-ms", type=float, default=0.0, help="before each answer")
    asyncio.run(_serve(parser.parse_args()))


if __name__ == "__main__":
    main()
