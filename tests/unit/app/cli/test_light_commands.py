"""Commands that only ask an API import none of the libraries that run the platform."""

import json
import subprocess
import sys
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from starling.app.runtime.port_file import RunningPlatform, published

_HEAVY = {
    *("sqlalchemy", "psycopg", "procrastinate", "langgraph", "langchain", "langchain_core", "mcp", "fastmcp"),
    *("pydantic_settings", "fastapi", "starlette", "uvicorn", "opentelemetry", "aiohttp", "structlog", "brain"),
    *("mcp_gateway",),
}
_RUN = "01a1f8ac-cbf4-7cdd-97b7-5ad5f772744e"
_STATE = {"ended_at": "2026-11-20T11:12:01Z", "events": 1, "status": "succeeded", "behind": None}
_LISTED = {
    "run_id": _RUN,
    "thread_id": "t",
    "status": "succeeded",
    "created_at": "2026-11-20T11:12:01Z",
    "seconds": 1.0,
    "input": "What time is it?",
}
_DOCUMENT: dict[str, Any] = {
    "run_id": _RUN,
    "status": "succeeded",
    "thread_id": "t",
    "epoch": 1,
    "trace_id": "f",
    "correlation_id": "c",
    **{name: [] for name in ("tasks", "calls", "artifacts", "behind", "waits_for", "steps")},
    "result": None,
}
_DONE = {
    "type": "done",
    "status": "succeeded",
    "reply": "Noon.",
    "usage": {"model_calls": 1, "tool_calls": 0, "tokens": 0},
}
_ANSWERS: dict[str, Any] = {
    "/health": {"status": "ok"},
    "/ready": {"status": "ready", "epoch": 1, "servers": []},
    "/v1/runs": {"runs": [_LISTED], "next": None},
    f"/v1/runs/{_RUN}": _STATE,
    f"/v1/runs/{_RUN}/document": _DOCUMENT,
    f"/v1/runs/{_RUN}/cancel": {"run_id": _RUN, "status": "succeeded"},
    f"/v1/runs/{_RUN}/artifacts": {"artifacts": []},
    "/v1/approvals": {"interrupts": [], "next": None},
    "/v1/servers": {"servers": []},
}
_STREAMS = ("/v1/agent/run", f"/v1/runs/{_RUN}/events")


class _Api(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        path = self.path.partition("?")[0]
        stream = path in _STREAMS
        text = f"id: 1\nevent: done\ndata: {json.dumps(_DONE)}\n\n" if stream else json.dumps(_ANSWERS[path])
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if stream else "application/json")
        self.end_headers()
        self.wfile.write(text.encode())

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Say nothing."""


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Generator[Path]:
    """A data folder whose port file names an API."""
    folder = tmp_path_factory.mktemp("data")
    with ThreadingHTTPServer(("127.0.0.1", 0), _Api) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        with published(folder, RunningPlatform(address, "0", 1, "embedded", keyless=True)):
            yield folder
        server.shutdown()


@pytest.mark.parametrize(
    "command",
    [
        ("run", "list"),
        ("run", "show", "last"),
        ("run", "tail", "744e"),
        ("run", "cancel", "last"),
        ("run", "approve"),
        ("run", "artifacts", "last"),
        ("server", "list"),
        ("status",),
        ("ask", "What time is it?"),
    ],
    ids=" ".join,
)
def test_command_that_asks_a_running_platform_imports_no_platform_library(
    data_dir: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    program = (
        "import atexit, sys; from starling.app.cli import main;"
        "atexit.register(lambda: print('imported', sorted({name.partition('.')[0] for name in sys.modules})));"
        "main()"
    )

    done = subprocess.run(
        [sys.executable, "-c", program, *command],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"STARLING_DATA_DIR": str(data_dir), "PYTHONPATH": ":".join(sys.path)},
    )

    assert done.returncode == 0, done.stderr
    imported = done.stdout.splitlines()[-1]
    assert imported.startswith("imported [")
    assert {name for name in _HEAVY if f"'{name}'" in imported} == set()
