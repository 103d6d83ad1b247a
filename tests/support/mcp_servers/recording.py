"""A well-behaved server that leaves a line in a file for each start and each `record`: `recording.py <file>`.

Only the standard library: it starts fast. Calls are answered side by side.
"""

import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

type Said = dict[str, Any]

_FILE = Path(sys.argv[1])
_OUT = threading.Lock()
_ARRIVED = threading.Condition()
_waiting: list[int] = []


def note(text: str) -> None:
    with _FILE.open("a") as file:
        file.write(f"{text}\n")


def record(text: str) -> Said:
    note(text)
    return result(f"recorded {text}")


def pid() -> Said:
    return result(os.getpid())


def environment() -> Said:
    return data(dict(os.environ))


def meet(others: int) -> Said:
    with _ARRIVED:
        _waiting.append(others)
        _ARRIVED.notify_all()
        _ARRIVED.wait_for(lambda: len(_waiting) >= others)
    return result("met")


def add(first: int, second: int = 1) -> Said:
    return data({"sum": first + second})


def result(value: str | int) -> Said:
    return {"content": [{"type": "text", "text": str(value)}], "structuredContent": {"result": value}}


def data(value: Said) -> Said:
    return {"content": [{"type": "text", "text": json.dumps(value)}], "structuredContent": value}


def tool(name: str, description: str, output: Said, *required: str, optional: str = "", **more: Any) -> Said:
    kinds = {"text": "string"}
    properties = {each: {"type": kinds.get(each, "integer")} for each in (*required, *filter(None, [optional]))}
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return {"name": name, "description": description, "inputSchema": schema, "outputSchema": output, **more}


def returning(kind: str) -> Said:
    return {"type": "object", "properties": {"result": {"type": kind}}, "required": ["result"]}


_OBJECT: Said = {"type": "object", "additionalProperties": True}
_TOOLS = [
    tool("record", "Write a line.", returning("string"), "text"),
    tool("pid", "Return the process id of the server.", returning("integer"), annotations={"readOnlyHint": True}),
    tool("environment", "Return the environment that the server sees.", _OBJECT),
    tool("meet", "Wait until so many calls wait here at once.", returning("string"), "others"),
    tool("add", "Add two whole numbers.", _OBJECT, "first", optional="second"),
]
_CALLS: dict[str, Callable[..., Said]] = {
    "record": record,
    "pid": pid,
    "environment": environment,
    "meet": meet,
    "add": add,
}
_ABOUT: Said = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "recording", "version": "1"},
    "instructions": "Keeps a record of every call.\n\nNothing else.",
}


def say(request: Said, result: Said) -> None:
    with _OUT:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}) + "\n")
        sys.stdout.flush()


def call(request: Said) -> None:
    params = request["params"]
    say(request, _CALLS[params["name"]](**params.get("arguments") or {}))


def answer(request: Said) -> None:
    match request["method"]:
        case "initialize":
            say(request, _ABOUT)
        case "tools/list":
            say(request, {"tools": _TOOLS})
        case "tools/call":
            threading.Thread(target=call, args=[request], daemon=True).start()
        case _ if "id" in request:
            say(request, {})
        case _:
            pass  # a notification


if __name__ == "__main__":
    note("started")
    for line in sys.stdin:
        answer(json.loads(line))
