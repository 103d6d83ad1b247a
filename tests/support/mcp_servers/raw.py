"""A server that answers calls with given bytes: `raw.py <rows> [<port>]`. Only the standard library.

`rows` is a file of JSON lines `{"name", "raw"}`; there is a tool for each row, which answers with its `raw` ($ID is the
id of the request), and the tool `good`, which answers `good <pid>`. Rows may have `base64` instead, or `python`: an
expression for bytes, in which `ID` is the id. With a port it listens there: `/mcp` answers with
JSON, `/events` with events, both gzipped where the row has `gzip`; else it speaks on its standard streams.
"""

import base64
import gzip
import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ROWS: dict[str, dict[str, Any]] = {
    row["name"]: row for row in map(json.loads, Path(sys.argv[1]).read_text().splitlines())
}


def answer(request: dict[str, Any]) -> bytes:
    """Return the raw answer to a request, without the end of its line; empty for a notification."""
    if "id" not in request or "method" not in request:
        return b""
    result: dict[str, Any]
    match request["method"]:
        case "initialize":
            info = {"name": "raw", "version": "1"}
            result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            result = {"tools": [tool("good", {}), *(tool(name, row) for name, row in ROWS.items())]}
        case "tools/call" if request["params"]["name"] != "good":
            return raw(ROWS[request["params"]["name"]], request["id"])
        case _:
            result = {"content": [{"type": "text", "text": f"good {os.getpid()}"}]}
    return json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}).encode()


def tool(name: str, row: dict[str, Any]) -> dict[str, Any]:
    given = {key: row[key] for key in ("outputSchema", "description") if key in row}
    return {"name": name, "inputSchema": {"type": "object"}, **given}


def raw(row: dict[str, Any], number: int) -> bytes:
    if "base64" in row:
        return base64.b64decode(row["base64"]).replace(b'"id":1,', b'"id":%d,' % number)
    if "python" in row:
        return eval(row["python"], {"ID": str(number).encode()})  # noqa: S307 - written by the test
    return row["raw"].replace("$ID", str(number)).encode()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        body = answer(request)
        row = ROWS.get(request.get("params", {}).get("name", ""), {})
        events = self.path == "/events"
        if events:
            body = b"".join(b"event: message\ndata: " + line + b"\n\n" for line in body.split(b"\n"))
        encoding = row.get("encoding") or ("gzip" if row.get("gzip") else None)
        body = gzip.compress(body) if row.get("gzip") else body
        self.send_response(200 if "id" in request else 202)
        self.send_header("content-type", row.get("type", "text/event-stream" if events else "application/json"))
        if encoding:
            self.send_header("content-encoding", encoding)
        self.send_header("content-length", str(len(body) if "id" in request else 0))
        self.end_headers()
        if "id" in request:
            self.wfile.write(body)

    def do_GET(self) -> None:
        self.send_error(405)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass


if __name__ == "__main__":
    if len(sys.argv) > 2:
        ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()
    for line in sys.stdin:
        sys.stdout.buffer.write(answer(json.loads(line)) + b"\n")
        sys.stdout.flush()
