"""A server whose calls are recorded as they arrive: `pizzeria.py <file>`. Only the standard library: it starts fast.

Each call is a line of JSON in the file: `{"name", "what", "key"}`. Each result has the number of its call, so that two
results of equal calls differ. With `answer`, the result is `malformed`, an error of the tool (`fail`), or `lost`: the
first of equal calls gets no answer at all.
"""

import json
import sys
from pathlib import Path
from typing import Any

_FILE = Path(sys.argv[1])
_TEXT = {"type": "string"}
_SCHEMA = {"type": "object", "properties": {"what": _TEXT, "answer": _TEXT}, "required": ["what"]}
_TOOLS: dict[str, dict[str, Any]] = {
    "order": {},
    "put": {},
    "menu": {},
    "say": {},  # without annotations; the ones below have some
    "peek": {"readOnlyHint": True},
    "wipe": {"readOnlyHint": False, "destructiveHint": True},
    "amend": {"readOnlyHint": False},
}


def tool(name: str, annotations: dict[str, Any]) -> dict[str, Any]:
    about = {"annotations": annotations} if annotations else {}
    return {"name": name, "description": f"{name.title()} a thing.", "inputSchema": _SCHEMA, **about}


def call(params: dict[str, Any]) -> dict[str, Any] | None:
    name, args = params["name"], params["arguments"]
    line = {"name": name, "what": args["what"], "key": params.get("_meta", {}).get("starling/idempotency-key")}
    with _FILE.open("a") as file:
        file.write(f"{json.dumps(line)}\n")
    lines = [json.loads(each) for each in _FILE.read_text().splitlines()]
    equal = sum((each["name"], each["what"]) == (name, args["what"]) for each in lines)
    match args.get("answer"):
        case "lost" if equal == 1:
            return None
        case "malformed":
            return {"content": 5}
        case answer:
            words = f"{name} {args['what']} is number {len(lines)}"
            return {"content": [{"type": "text", "text": words}], "isError": answer == "fail"}


def result_of(request: dict[str, Any]) -> dict[str, Any] | None:
    match request["method"]:
        case "initialize":
            about: dict[str, Any] = {"capabilities": {"tools": {}}, "serverInfo": {"name": "pizzeria", "version": "1"}}
            return {"protocolVersion": "2025-06-18", **about}
        case "tools/list":
            return {"tools": [tool(*each) for each in _TOOLS.items()]}
        case "tools/call":
            return call(request["params"])
        case _:
            return {}


if __name__ == "__main__":
    for said in sys.stdin:
        asked = json.loads(said)
        if "id" in asked and (result := result_of(asked)) is not None:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}) + "\n")
            sys.stdout.flush()
