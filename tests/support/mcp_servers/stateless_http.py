"""An HTTP server without session ids that records each call and answers it with 404: `stateless_http.py <file> <port>`.

Only the standard library: it starts fast. Each call is a line in the file before it is answered.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

_FILE, _PORT = Path(sys.argv[1]), int(sys.argv[2])
_TOOL = {"name": "charge", "description": "Charge somebody.", "inputSchema": {"type": "object"}}
_RESULTS: dict[str, Any] = {
    "initialize": {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "stateless", "version": "1"},
    },
    "tools/list": {"tools": [_TOOL]},
}


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if request["method"] == "tools/call":
            with _FILE.open("a") as file:
                file.write(f"{request['params']['name']}\n")
            self.answer(404)
        elif "id" not in request:  # a notification
            self.answer(202)
        else:
            result = {"jsonrpc": "2.0", "id": request["id"], "result": _RESULTS[request["method"]]}
            self.answer(200, json.dumps(result).encode())

    def do_GET(self) -> None:
        self.answer(405)

    def answer(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name in the standard library
        """Log nothing."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", _PORT), Handler).serve_forever()
