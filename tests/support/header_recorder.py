"""An HTTP server that keeps the headers of every request, for tests of what must not be sent to it."""

import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(slots=True)
class HeaderRecorder:
    """The address, and the paths and headers of all requests so far as one text."""

    url: str = ""
    received: list[str] = field(default_factory=list[str])

    @contextmanager
    def serving(self) -> Generator["HeaderRecorder"]:
        """Answer every request with 404 until the block ends."""
        with ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"recorder": self})) as server:
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
            self.url = f"http://127.0.0.1:{server.server_port}"
            yield self
            server.shutdown()


class _Handler(BaseHTTPRequestHandler):
    recorder: HeaderRecorder

    def do_POST(self) -> None:
        self.recorder.received.append(f"{self.path}\n{self.headers}")
        self.rfile.read(int(self.headers["content-length"] or 0))
        self.send_error(404)

    def do_GET(self) -> None:
        self.do_POST()

    def log_message(self, *_: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Say nothing."""
