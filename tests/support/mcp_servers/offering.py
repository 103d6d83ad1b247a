"""A server that offers the tools of a file: `offering.py <tools.json> <record>`. Only the standard library.

The file has a list of tools, or an object with `tools` and `instructions`, and is read at each listing. The record
gets a line for each listing and call; the tool `announce` makes the server say a thousand times that its tools changed.
"""

import json
import sys
from pathlib import Path
from typing import Any

_TOOLS, _RECORD = Path(sys.argv[1]), Path(sys.argv[2])


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def note(entry: object) -> None:
    with _RECORD.open("a") as file:
        file.write(json.dumps(entry) + "\n")


def offered() -> dict[str, Any]:
    text = _TOOLS.read_text("utf-8")
    return json.loads(text if text.startswith("{") else f'{{"tools": {text}}}')


def result_of(request: dict[str, Any]) -> dict[str, Any]:
    match request["method"]:
        case "initialize":
            info = {"name": "offering", "version": "1"}
            said = {"instructions": text} if (text := offered().get("instructions")) else {}
            return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info, **said}
        case "tools/list":
            note("listed")
            return {"tools": offered()["tools"]}
        case "tools/call":
            name = request["params"]["name"]
            note([name, request["params"].get("arguments", {})])
            for _ in range(1_000 if name == "announce" else 0):
                say({"method": "notifications/tools/list_changed"})
            return {"content": [{"type": "text", "text": "done"}]}
        case _:
            return {}


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        say({"id": request["id"], "result": result_of(request)})
