"""A server that says too much: `verbose.py <file>`. Only the standard library: it starts fast.

Each call is a line in the file before it is answered. With `gate`, its answer waits until a file of that name exists
beside the other one. `recite` and `write` answer with text alone, `lines` lines of it; `draw` with an image of `lines`
bytes, `lie` with binary parts that are not what they should be; the others also with structured
content. `quote` answers with the text of the file `quote<lines>` beside the other one.
"""

import base64
import json
import sys
import time
from pathlib import Path
from typing import Any

_SCHEMA = {
    "type": "object",
    "properties": {"lines": {"type": "integer"}, "gate": {"type": "string"}},
    "required": ["lines"],
}
_TOOLS = {
    "recite": "Recite a poem.",
    "write": "Write a poem down, and say it.",
    "tabulate": "Give rows, and say only how many.",
    "repeat": "Say the same as text and as data.",
    "render": "Give rows as JSON text and as data.",
    "mix": "Say one thing and give another.",
    "garble": "Say what no database can hold.",
    "fail": "Complain at length.",
    "quote": "Quote a text.",
    "draw": "Draw a picture.",
    "lie": "Give pictures and recordings that are none.",
}

type Said = dict[str, Any]


def poem(lines: int) -> str:
    return "\n".join(f"line {number:05}: and so on" for number in range(lines))


def rows(lines: int) -> Said:
    return {"rows": [{"number": number, "name": f"row {number}"} for number in range(lines)]}


def picture(size: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + bytes(size)


def binary(kind: str, media_type: str, content: bytes) -> Said:
    return {"type": kind, "data": base64.b64encode(content).decode(), "mimeType": media_type}


def text(words: str, **more: Any) -> Said:
    return {"content": [{"type": "text", "text": words}], **more}


def act(tool: str, lines: int) -> Said:
    match tool:
        case "tabulate":
            return text(f"{lines} rows", structuredContent=rows(lines))
        case "repeat":
            return text(poem(lines), structuredContent={"result": poem(lines)})
        case "render":
            return text(json.dumps(rows(lines), indent=2), structuredContent=rows(lines))
        case "mix":
            return text(poem(lines), structuredContent=rows(lines))
        case "garble":
            return text("a\0b � " * lines)
        case "fail":
            return text(poem(lines), isError=True)
        case "draw":
            return {"content": [{"type": "text", "text": "drawn"}, binary("image", "image/png", picture(lines))]}
        case "lie":
            broken = {"type": "audio", "data": "no base64!" * lines, "mimeType": "audio/wav"}
            return {"content": [binary("image", "image/png", b"<script>\0"), broken, *[binary("image", "a", b"")] * 99]}
        case "quote":
            return text((Path(sys.argv[1]).parent / f"quote{lines}").read_text("utf-8"))
        case _:
            return text(poem(lines))


def call(params: Said) -> Said:
    arguments, file = params["arguments"], Path(sys.argv[1])
    with file.open("a") as notes:
        notes.write(f"{params['name']} {arguments['lines']}\n")
    while "gate" in arguments and not (file.parent / arguments["gate"]).exists():
        time.sleep(0.01)
    return act(params["name"], arguments["lines"])


def answer(request: Said) -> Said:
    match request["method"]:
        case "initialize":
            about: Said = {"capabilities": {"tools": {}}, "serverInfo": {"name": "verbose", "version": "1"}}
            return {"protocolVersion": "2025-06-18", **about}
        case "tools/list":
            tools = [{"name": name, "description": about, "inputSchema": _SCHEMA} for name, about in _TOOLS.items()]
            return {"tools": tools}
        case "tools/call":
            return call(request["params"])
        case _:
            return {}


if __name__ == "__main__":
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": answer(request)}) + "\n")
            sys.stdout.flush()
