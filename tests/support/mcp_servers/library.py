"""A server that shows what a library has: `library.py books films …` has a tool for each of these words.

Only the standard library: it starts fast.
"""

import json
import sys
from typing import Any

_TOOLS: dict[str, Any] = {
    f"show_{thing}": {
        "name": f"show_{thing}",
        "description": f"Show the {thing} of the library.",
        "inputSchema": {"type": "object", "properties": {}},
    }
    for thing in sys.argv[1:]
}


def result_of(request: dict[str, Any]) -> dict[str, Any]:
    match request["method"]:
        case "initialize":
            info = {"name": "library", "version": "1"}
            return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            return {"tools": [*_TOOLS.values()]}
        case "tools/call":
            thing = request["params"]["name"].removeprefix("show_")
            return {"content": [{"type": "text", "text": f"All {thing} are there."}]}
        case _:
            return {}


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result_of(request)}), flush=True)
