"""A server that does one thing wrong: `misbehaving.py <how> [<file>]`. Only the standard library: it starts fast."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

_HOW = sys.argv[1]
INFINITE = "the number 1e999"  # as JSON can have it
_HELD: list[bytes] = []
_OBJECT = {"type": "object"}
_TOOL = {"name": "act", "description": "Does it.", "inputSchema": _OBJECT}


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}).replace(f'"{INFINITE}"', "1e999") + "\n")
    sys.stdout.flush()


def note(text: str) -> None:
    with Path(sys.argv[2]).open("a") as file:
        file.write(f"{text}\n")


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": words}], **more}


def endless(request: dict[str, Any]) -> dict[str, Any]:
    page = int(request.get("params", {}).get("cursor", "0"))
    return {"tools": [_TOOL | {"name": f"act{page}"}], "nextCursor": str(page + 1)}


def die(_: dict[str, Any]) -> dict[str, Any]:
    note("called")
    print("out of luck", file=sys.stderr, flush=True)
    os._exit(7)


def die_once(_: dict[str, Any]) -> dict[str, Any]:
    note("called")
    if Path(sys.argv[2]).read_text().count("called") == 1:
        os._exit(7)
    return text("done")


def die_often(_: dict[str, Any]) -> dict[str, Any]:
    """End in each second call."""
    note("called")
    if Path(sys.argv[2]).read_text().count("called") % 2 == 1:
        os._exit(7)
    return text("done")


def hold(_: dict[str, Any]) -> dict[str, Any]:
    """Keep 150 MiB of memory, half of them in a child that shares the other half."""
    _HELD.append(b"x" * (75 * 2**20))
    if os.fork() == 0:
        _HELD.append(b"y" * (75 * 2**20))
        while True:
            signal.pause()
    return text(str(os.getpid()))


def grow(request: dict[str, Any]) -> dict[str, Any]:
    note("called")
    hold(request)
    while True:
        signal.pause()


def kill_platform(_: dict[str, Any]) -> dict[str, Any]:
    """Ask the test to kill the process that has started this server's shim: a server can't reach it by signals."""
    pid = os.getppid()
    while b"shim.py" in Path(f"/proc/{pid}/cmdline").read_bytes():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    note(str(pid))
    while True:
        signal.pause()


def same_names(_: dict[str, Any]) -> dict[str, Any]:
    return {"tools": [_TOOL, _TOOL]}


def one_bad_schema(_: dict[str, Any]) -> dict[str, Any]:
    bad = {"name": "bad", "inputSchema": {"type": "object", "properties": {"x": {"type": "whatever"}}}}
    worse = {"name": "worse", "inputSchema": 5}
    return {"tools": [_TOOL, bad, worse]}


def only_bad_schemas(_: dict[str, Any]) -> dict[str, Any]:
    return {"tools": [{"name": "bad", "inputSchema": {"type": "whatever"}}, {"name": "worse", "inputSchema": 5}]}


def changing(_: dict[str, Any]) -> dict[str, Any]:
    return {"tools": [_TOOL | {"description": Path(sys.argv[2]).read_text()}]}


def promising(_: dict[str, Any]) -> dict[str, Any]:
    promised = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    return {"tools": [_TOOL | {"outputSchema": promised}]}


def contents(_: dict[str, Any]) -> dict[str, Any]:
    parts = [
        {"type": "text", "text": "look:"},
        {"type": "image", "data": "AAAA" * 100, "mimeType": "image/png"},
        {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
        {"type": "resource_link", "uri": "file:///a.txt", "name": "a.txt"},
        {"type": "resource", "resource": {"uri": "file:///b.txt", "text": "inside"}},
        {"type": "resource", "resource": {"uri": "file:///c.bin", "blob": "AAAA", "mimeType": "x/y"}},
    ]
    return {"content": parts}


def unstorable(_: dict[str, Any]) -> dict[str, Any]:
    data = {"nul\0": "a\0b", "inf": INFINITE, "big": 10**30}
    return text("a\0b", structuredContent=data)


LISTS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "endless": endless,
    "same-names": same_names,
    "one-bad-schema": one_bad_schema,
    "only-bad-schemas": only_bad_schemas,
    "changing": changing,
    "promising": promising,
    "breaking-promise": promising,
    "no-list": lambda _: {"tools": "none"},
    "huge-list": lambda _: {"tools": [_TOOL | {"name": f"act{n}"} for n in range(2_500)]},
    "long-line": lambda _: {"tools": [_TOOL | {"description": "x" * (17 * 2**20)}]},
}
CALLS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "dying": die,
    "dying-once": die_once,
    "dying-often": die_often,
    "killing": kill_platform,
    "holding": hold,
    "growing": grow,
    "failing": lambda _: text("the disk is on fire", isError=True),
    "breaking-promise": lambda _: text("n is four", structuredContent={"n": "four"}),
    "promising": lambda _: text("n is 4", structuredContent={"n": 4}),
    "contents": contents,
    "unstorable": unstorable,
    "long": lambda _: text("x" * 50_000, structuredContent={"x": "y" * 50_000}),
    "no-result": lambda _: {"content": 5},
}


def answer(request: dict[str, Any]) -> None:
    result: dict[str, Any]
    match request["method"]:
        case "initialize":
            info = {"name": _HOW, "version": "1"}
            result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            result = LISTS.get(_HOW, lambda _: {"tools": [_TOOL]})(request)
        case "tools/call" if _HOW == "hanging":
            note("called")
            return
        case "tools/call" if _HOW == "refusing":
            say({"id": request["id"], "error": {"code": -32603, "message": "not today"}})
            return
        case "tools/call":
            result = CALLS.get(_HOW, lambda _: text("done"))(request)
        case "resources/read":
            note(f"read {request['params']['uri']}")
            result = {"contents": [{"uri": request["params"]["uri"], "text": "its own words"}]}
        case other:
            if _HOW in ("hanging", "noting"):
                note(other)
            if _HOW == "noting" and "id" in request:
                say({"id": request["id"], "error": {"code": -32601, "message": f"no {other} here"}})
            return
    say({"id": request["id"], "result": result})


def begin() -> None:
    match _HOW:
        case "crashing":
            print("reading settings\nno such database: prod", file=sys.stderr, flush=True)
            os._exit(3)
        case "crashing-once" | "crashing-later":
            crash_after_listing()
        case "garbage":
            garbage()
        case "flood":
            while True:
                sys.stdout.write("y\n" * 1_000)
        case "chatty":
            sys.stdout.write("Welcome!\n\n{}\n\xff\n")
        case "silent":
            sys.stdin.read()
        case "late":
            wait_for_permission()
        case "deaf":
            deaf()
        case _:
            pass


def crash_after_listing() -> None:
    """Exit at the first start after the one at which the tools are listed, or at each."""
    note("started")
    starts = Path(sys.argv[2]).read_text().count("started")
    if starts == 2 or (_HOW == "crashing-later" and starts > 2):
        os._exit(3)


def garbage() -> None:
    for number in count():
        sys.stdout.write(f"loading {number}\n")
        sys.stdout.flush()
        time.sleep(0.01)


def wait_for_permission() -> None:
    while not Path(sys.argv[2]).exists():
        time.sleep(0.01)


def deaf() -> None:
    """Ignore SIGTERM, have a child that did all to get away, and go on after the end of stdin."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ready, tell = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        note(str(os.getpid()))
        os.write(tell, b".")
    else:
        note(str(os.getpid()))
        os.read(ready, 1)
        for line in sys.stdin:
            answer(json.loads(line))
    while True:
        signal.pause()


if __name__ == "__main__":
    begin()
    for line in sys.stdin:
        answer(json.loads(line))
