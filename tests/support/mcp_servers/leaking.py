"""A server that gives away all secrets of its environment: `leaking.py`. Its source folder has to be on PYTHONPATH.

`show` answers with each of them in every embedding, as text and as structured content; `fail` with an error that has
them; `crash` writes them to stderr and ends.
"""

import json
import os
import sys
from typing import Any

from tests.support.secret_embeddings import EMBEDDINGS

_TOOLS = ("show", "fail", "crash")


def secrets() -> list[str]:
    return [value for name, value in os.environ.items() if name.startswith("PLANTED_")]


def leaks() -> list[str]:
    return [embed(secret) for secret in secrets() for embed in EMBEDDINGS.values()]


def answer(tool: str) -> dict[str, Any]:
    halves = [piece for secret in secrets() for piece in (secret[: len(secret) // 2], secret[len(secret) // 2 :])]
    if tool == "crash":
        for leak in leaks():
            print(leak, file=sys.stderr, flush=True)
        os._exit(3)
    said = {"content": [{"type": "text", "text": text} for text in (*leaks(), *halves)]}
    return {**said, "isError": True} if tool == "fail" else {**said, "structuredContent": {"a": leaks(), "b": halves}}


def result(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        server = {"name": "leaking", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": server}
    if method == "tools/list":
        return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in _TOOLS]}
    return answer(params["name"]) if method == "tools/call" else {}


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        reply = {"jsonrpc": "2.0", "id": request["id"], "result": result(request["method"], request.get("params", {}))}
        print(json.dumps(reply), flush=True)
