"""A server whose effects can be counted: `EFFECTS_FILE=<file> effects.py`. Only the standard library: it starts fast.

Each effect is a line of JSON in the file, on the disk before the tool answers: `{"at", "tool", "what", "key", "fence",
"pid", "time"}`. `at` is `arrived` when a call comes in, `done` when its effect is there; `key` and `fence` are what the
call was offered in `_meta`, `time` the seconds since 1970.

Every tool but `find_charge` takes `what` and these, all optional: `stall` (`before` or `after` the effect) waits until
the file named `gate` exists beside the record; `answer` is one of `odd` (what a database can't hold), `long` (a
thousand characters), `image` (no text), `fail` (an error after the effect), `malformed` (no MCP result), `internal` (a
JSON-RPC error -32603), `refuse` (the same, and no effect), `number` (see `invoice`); `found` (`garbage`, `fail`) spoils
what `find_charge` says about the call. `pay` remembers keys: its effect is there once for each, and a fence lower than
an earlier one of the same key is refused. `invoice` promises a `number`, and gives one only where `answer` is `number`.
Calls wait side by side. With `EFFECTS_START_GATE`, the server itself starts once that file exists.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

_FILE = Path(os.environ["EFFECTS_FILE"])
_START = os.environ.get("EFFECTS_START_GATE")
_KEY, _FENCE = "starling/idempotency-key", "starling/fence"
_OUT = threading.Lock()

_TEXT = {"type": "string"}
_PROPERTIES = dict.fromkeys(("what", "stall", "gate", "answer", "found"), _TEXT)
_SCHEMA = {"type": "object", "properties": _PROPERTIES, "required": ["what"]}
_NUMBER = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
_FIND = {"type": "object", "properties": {"key": _TEXT, "arguments": {"type": "object"}}, "required": ["key"]}
_TOOLS = [
    {"name": "read_it", "description": "Read a thing.", "inputSchema": _SCHEMA},
    {"name": "put", "description": "Put a thing; again makes no difference.", "inputSchema": _SCHEMA},
    {"name": "pay", "description": "Pay somebody, once for each key.", "inputSchema": _SCHEMA},
    {"name": "charge", "description": "Charge somebody.", "inputSchema": _SCHEMA},
    {"name": "invoice", "description": "Invoice somebody.", "inputSchema": _SCHEMA, "outputSchema": _NUMBER},
    {"name": "find_charge", "description": "Say whether a charge was made.", "inputSchema": _FIND},
]
_ODD = {"nul\0": "a\0b", "big": 10**400}

type Said = dict[str, Any]


def note(at: str, tool: str, what: str, key: str | None, fence: int | None = None) -> None:
    noted = {"at": at, "tool": tool, "what": what, "key": key, "fence": fence, "pid": os.getpid(), "time": time.time()}
    line = json.dumps(noted) + "\n"
    with _FILE.open("a") as file:
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


def say(message: Said) -> None:
    with _OUT:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def text(words: str, **more: Any) -> Said:
    return {"content": [{"type": "text", "text": words}], **more}


def stall(arguments: Said, moment: str) -> None:
    if arguments.get("stall") == moment:
        gate = _FILE.parent / arguments["gate"]
        while not gate.exists():
            time.sleep(0.01)


def act(tool: str, arguments: Said, key: str | None, fence: int | None) -> Said:
    what = arguments["what"]
    note("arrived", tool, what, key, fence)
    stall(arguments, "before")
    if tool == "pay" and any(
        line["fence"] > fence for line in _lines() if (line["at"], line["key"]) == ("arrived", key)
    ):
        return text("The call is outdated: its run is in other hands.", isError=True)
    repeated = tool == "pay" and bool(_done(key))
    if not repeated and arguments.get("answer") != "refuse":
        note("done", tool, what, key, fence)
    stall(arguments, "after")
    match arguments.get("answer"):
        case "odd":
            return text("a\0b", structuredContent=_ODD)
        case "long":
            return text(f"{tool} {what}: {'fine ' * 200}")
        case "fail":
            return text(f"{tool} {what} went wrong", isError=True)
        case "image":
            return {"content": [{"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}]}
        case "malformed":
            return {"content": 5}
        case "number":
            return text("4711", structuredContent={"number": 4711})
        case _:
            return text(f"{tool} {what}: fine")


def find_charge(arguments: Said) -> Said:
    asked: Said = arguments.get("arguments", {})
    note("arrived", "find_charge", asked.get("what", ""), arguments["key"])
    match asked.get("found"):
        case "garbage":
            return text("who knows", structuredContent={"weather": "fine"})
        case "fail":
            return text("the books are burnt", isError=True)
        case _:
            done = _done(arguments["key"])
            found = {"done": bool(done), "result": f"found: charge {done[0]['what']}" if done else ""}
            return text(json.dumps(found), structuredContent=found)


def _done(key: str | None) -> list[Said]:
    return [line for line in _lines() if (line["at"], line["key"]) == ("done", key)]


def _lines() -> list[Said]:
    return [json.loads(line) for line in _FILE.read_text().splitlines()] if _FILE.exists() else []


def answer_call(request: Said) -> None:
    params = request["params"]
    name: str = params["name"]
    arguments: Said = params.get("arguments") or {}
    meta: Said = params.get("_meta") or {}
    result = find_charge(arguments) if name == "find_charge" else act(name, arguments, meta.get(_KEY), meta.get(_FENCE))
    if arguments.get("answer") in ("internal", "refuse"):
        say({"id": request["id"], "error": {"code": -32603, "message": "out of paper"}})
    else:
        say({"id": request["id"], "result": result})


def answer(request: Said) -> None:
    match request["method"]:
        case "initialize":
            about: Said = {"capabilities": {"tools": {}}, "serverInfo": {"name": "effects", "version": "1"}}
            say({"id": request["id"], "result": {"protocolVersion": "2025-06-18", **about}})
        case "tools/list":
            say({"id": request["id"], "result": {"tools": _TOOLS}})
        case "tools/call":
            threading.Thread(target=answer_call, args=[request], daemon=True).start()
        case _ if "id" in request:
            say({"id": request["id"], "result": {}})
        case _:
            pass  # a notification


if __name__ == "__main__":
    while _START and not Path(_START).exists():
        time.sleep(0.01)
    for said in sys.stdin:
        answer(json.loads(said))
