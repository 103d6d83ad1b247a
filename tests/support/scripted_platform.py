"""An API that gives scripted answers, for commands that are tried without a platform.

It accepts runs, streams their events, and waits with what follows an interrupt until that is answered.
"""

import json
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

_SECONDS: Final = 60
_RUN: Final = "01a1f8ac-cbf4-7cdd-97b7-5ad5f772744e"

type Document = Mapping[str, Any]


@dataclass(slots=True)
class ScriptedPlatform:
    """The events of the run that is accepted, answers by path, with or without the query, and what was sent to it.

    What is sent to a path that has an answer gets it, with its `status` if it has one: that of a refusal.
    """

    events: Sequence[Document] = ()
    answers: Mapping[str, Document] = field(default_factory=dict[str, Document])
    url: str = ""
    sent: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])
    answered: threading.Event = field(default_factory=threading.Event)

    @property
    def accepted(self) -> Document:
        """What a request for a run is answered with."""
        return {"run_id": _RUN, "status": "queued", "thread_id": _RUN}

    @property
    def waiting(self) -> Document:
        """The open interrupts of the run."""
        asked = () if self.answered.is_set() else [event for event in self.events if "responseSchema" in event]
        return {"interrupts": [{**event, "kind": "approval", "createdAt": ""} for event in asked], "next": None}

    @contextmanager
    def serving(self) -> Generator["ScriptedPlatform"]:
        """Serve on a free port until the block ends."""
        with ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"platform": self})) as server:
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
            self.url = f"http://127.0.0.1:{server.server_port}"
            yield self
            self.answered.set()
            server.shutdown()


class _Handler(BaseHTTPRequestHandler):
    platform: ScriptedPlatform

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == f"/v1/runs/{_RUN}/events":
            with suppress(ConnectionError):  # a command that doesn't wait for an answer goes
                self._stream()
        elif path == "/v1/approvals":
            self._answer(200, self.platform.waiting)
        elif answer := self.platform.answers.get(self.path, self.platform.answers.get(path)):
            self._answer(200, answer)
        else:
            self._answer(404, {"detail": f"There is no {path}.", "remedy": "", "code": "not_found"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])) or "null")
        self.platform.sent.append((self.path, body))
        if answer := self.platform.answers.get(self.path):
            self._answer(answer.get("status", 200), answer)
        elif self.path.endswith("/resume"):
            self.platform.answered.set()
            self._answer(202, {})
        else:
            self._answer(202, self.platform.accepted)

    def _stream(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for number, event in enumerate(self.platform.events, start=1):
            self.wfile.write(f"id: {number}\nevent: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
            if "responseSchema" in event:
                assert self.platform.answered.wait(_SECONDS)

    def _answer(self, status: int, document: Document) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(document).encode())

    def log_message(self, *_: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Say nothing."""
