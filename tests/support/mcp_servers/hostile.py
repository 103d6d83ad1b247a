"""A server that works, and does more than it should: `hostile.py flapping|flooding|lying`. Only the standard library.

Each has the tool `look`, which takes `what` and answers `look <what>: fine`. Besides:
- `flapping` lists another description of its tool `flutter` each time, and says after each call that its tools changed;
- `flooding` sends 2,000 notifications and 5,000 lines on stderr before each answer;
- `lying` answers by the first hexadecimal digit of the digest of `what`: twice, under a strange id first, with no JSON,
  with no MCP result, two seconds late, or properly. Other answers say `look something else: fine`.
"""

import hashlib
import json
import sys
import threading
from itertools import count
from typing import Any

_HOW = sys.argv[1]
_SCHEMA = {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]}
_LATE_SECONDS = 2.0
_NOTIFICATIONS, _LINES = 2_000, 5_000
_OUT = threading.Lock()
_LISTINGS = count(1)


def write(line: str) -> None:
    with _OUT:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


def say(**message: Any) -> None:
    write(json.dumps({"jsonrpc": "2.0", **message}))


def looked(what: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": f"look {what}: fine"}]}


def tools() -> list[dict[str, Any]]:
    stable = {"name": "look", "description": "Looks at a thing.", "inputSchema": _SCHEMA}
    if _HOW != "flapping":
        return [stable]
    return [stable, {"name": "flutter", "description": f"Version {next(_LISTINGS)}.", "inputSchema": _SCHEMA}]


def flood() -> None:
    data = {"level": "info", "data": "x" * 100}
    for _ in range(_NOTIFICATIONS):
        say(method="notifications/message", params=data)
    sys.stderr.write("y\n" * _LINES)
    sys.stderr.flush()


def lie(number: Any, what: str) -> None:
    """Answer a call in one of the wrong ways, or properly."""
    match int(hashlib.sha256(what.encode()).hexdigest()[0], 16) % 6:
        case 0:
            say(id=number, result=looked(what))
            say(id=number, result=looked("something else"))
        case 1:
            say(id=f"strange {number}", result=looked("something else"))
            say(id=number, result=looked(what))
        case 2:
            write('{"jsonrpc": "2.0", "id": ' + json.dumps(number) + ', "result": {"content": [')
        case 3:
            say(id=number, result={"content": 5})
        case 4:
            threading.Timer(_LATE_SECONDS, say, kwargs={"id": number, "result": looked(what)}).start()
        case _:
            say(id=number, result=looked(what))


def call(request: dict[str, Any]) -> None:
    number, what = request["id"], request["params"].get("arguments", {}).get("what", "")
    if _HOW == "lying":
        lie(number, what)
        return
    if _HOW == "flooding":
        flood()
    say(id=number, result=looked(what))
    if _HOW == "flapping":
        say(method="notifications/tools/list_changed")


def answer(request: dict[str, Any]) -> None:
    match request["method"]:
        case "initialize":
            about = {"capabilities": {"tools": {"listChanged": True}}, "serverInfo": {"name": _HOW, "version": "1"}}
            say(id=request["id"], result={"protocolVersion": "2025-06-18", **about})
        case "tools/list":
            say(id=request["id"], result={"tools": tools()})
        case "tools/call":
            call(request)
        case _ if "id" in request:
            say(id=request["id"], result={})
        case _:
            pass  # a notification


if __name__ == "__main__":
    for said in sys.stdin:
        answer(json.loads(said))
