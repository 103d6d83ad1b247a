"""An execution service whose answers a test chooses by the tool: `execution_service.py <file> <port>`.

Each request is a line of JSON in the file: its path, its headers, and its body.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import uvicorn

_FILE, _PORT = Path(sys.argv[1]), int(sys.argv[2])
_SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}, "status": {"type": "integer"}}}
_TOOLS: list[dict[str, Any]] = [
    {"name": "echo", "description": "Say it again.", "input_schema": _SCHEMA, "effect": "read"},
    {"name": "object", "description": "Return an object.", "parameters": _SCHEMA, "effect": "idempotent"},
    *({"name": name, "description": name, "input_schema": _SCHEMA} for name in ("fail", "hang", "status", "raw")),
    {"name": "long", "description": "Return too much.", "input_schema": _SCHEMA},
]
_LISTS = {
    "/tools": (200, json.dumps({"tools": _TOOLS}).encode()),
    "/bare/tools": (200, json.dumps(_TOOLS[:1]).encode()),
    "/odd/tools": (200, b'{"tools": [{"name": 3}]}'),
    "/closed/tools": (401, b"who are you"),
}
type Message = dict[str, Any]


async def _answer(body: dict[str, Any], headers: dict[str, str]) -> tuple[int, bytes]:
    text, status = body["arguments"].get("text", ""), body["arguments"].get("status", 200)
    done: dict[str, Any] = {"status": "success", "output": text, "execution_time_ms": 1.5}
    match body["tool_name"]:
        case "object":
            done["output"] = {"said": text}
        case "fail":
            done |= {"status": "error", "output": f"no {text} for {headers.get('authorization')}"}
        case "hang":
            await asyncio.Event().wait()
        case "status":
            return status, json.dumps({"detail": text, "sent": headers.get("authorization")}).encode()
        case "raw":
            return status, text.replace("TOKEN", headers.get("authorization", "")).encode()
        case "long":
            done["output"] = "x" * (17 * 2**20)
        case _:
            pass
    return 200, json.dumps(done).encode()


async def app(
    scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
) -> None:
    if scope["type"] != "http":
        return
    raw, more = b"", True
    while more:
        message = await receive()
        raw, more = raw + message["body"], message.get("more_body", False)
    headers = {name.decode(): value.decode() for name, value in scope["headers"]}
    with _FILE.open("a") as file:
        file.write(json.dumps({"path": scope["path"], "headers": headers, "body": raw.decode()}) + "\n")
    if scope["path"] == "/execute":
        status, answer = await _answer(json.loads(raw), headers)
    else:
        status, answer = _LISTS.get(scope["path"], (404, b"there is nothing"))
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": answer})


if __name__ == "__main__":
    uvicorn.run(app, port=_PORT, log_level="critical", lifespan="off")
