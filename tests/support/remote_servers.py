"""MCP servers over HTTP that keep every request, and a resolver whose answers a test decides."""

import json
import socket
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import pytest

ORDER: Final[dict[str, Any]] = {"name": "order", "description": "Orders a thing.", "inputSchema": {"type": "object"}}
FIND: Final[dict[str, Any]] = ORDER | {"name": "find", "description": "Finds a thing."}


@dataclass(slots=True)
class RemoteServer:
    """An MCP server without sessions. What a path in `raw` is asked for is answered as it says there."""

    host: str = "127.0.0.1"
    port: int = 0
    tools: Sequence[dict[str, Any]] = (ORDER, FIND)
    raw: dict[str, tuple[int, dict[str, str], bytes]] = field(default_factory=dict[str, Any])
    requests: list[str] = field(default_factory=list[str])  # method, path, headers and body of each
    called: list[str] = field(default_factory=list[str])  # names of tools

    @contextmanager
    def serving(self) -> Generator["RemoteServer"]:
        """Answer until the block ends."""
        handler = type("Handler", (_Handler,), {"remote": self})
        with ThreadingHTTPServer((self.host, self.port), handler) as server:
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
            self.port = server.server_port
            yield self
            server.shutdown()

    @property
    def origin(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.origin}/mcp"

    def redirect(self, path: str, status: int, to: str) -> str:
        """Redirect a path; return its address."""
        self.raw[path] = status, {"Location": to}, b""
        return self.origin + path

    def result_of(self, request: dict[str, Any]) -> dict[str, Any]:
        match request["method"]:
            case "initialize":
                info = {"name": "remote", "version": "1"}
                return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
            case "tools/list":
                return {"tools": list(self.tools)}
            case "tools/call":
                self.called.append(request["params"]["name"])
                return {"content": [{"type": "text", "text": "done"}]}
            case _:
                return {}


class _Handler(BaseHTTPRequestHandler):
    remote: RemoteServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"] or 0))
        self.remote.requests.append(f"{self.command} {self.path}\n{self.headers}\n{body.decode(errors='replace')}")
        if found := self.remote.raw.get(self.path.partition("?")[0]):
            self.answer(*found)
        elif self.command == "GET":
            self.answer(405, {}, b"")
        elif "id" not in (request := json.loads(body)):
            self.answer(202, {}, b"")
        else:
            result = {"jsonrpc": "2.0", "id": request["id"], "result": self.remote.result_of(request)}
            self.answer(200, {}, json.dumps(result).encode())

    do_GET = do_DELETE = do_PUT = do_HEAD = do_CONNECT = do_POST  # noqa: N815 - the names in the standard library

    def answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in ({"Content-Type": "application/json", "Content-Length": str(len(body))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Say nothing."""


@dataclass(slots=True)
class Names:
    """Answers of the resolver for names that only a test knows: in this order, the last one again and again."""

    answers: dict[str, list[Sequence[str]]] = field(default_factory=dict[str, list[Sequence[str]]])
    lookups: list[str] = field(default_factory=list[str])

    @classmethod
    def installed(cls, patch: pytest.MonkeyPatch) -> "Names":
        """Answer instead of the machine's resolver; addresses are resolved as always."""
        names, real = cls(), socket.getaddrinfo

        def resolve(host: str | bytes | None, port: Any, family: int = 0, *others: Any, **more: Any) -> Any:
            name = host.decode() if isinstance(host, bytes) else host or ""
            answers = names.answers.get(name.lower().rstrip("."))
            if answers is None or more.get("flags", 0) & socket.AI_NUMERICHOST:
                return real(host, port, family, *others, **more)
            names.lookups.append(name)
            found = answers.pop(0) if len(answers) > 1 else answers[0]
            return [
                (kind, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", address)
                for kind, address in (_socket_address(each, int(port or 0)) for each in found)
                if family in (0, kind)
            ]

        patch.setattr(socket, "getaddrinfo", resolve)
        return names

    def add(self, name: str, *answers: Sequence[str]) -> None:
        self.answers[name] = list(answers)


def _socket_address(address: str, port: int) -> tuple[socket.AddressFamily, Any]:
    if ":" in address:
        return socket.AF_INET6, (address, port, 0, 0)
    return socket.AF_INET, (address, port)
