"""Commands that only ask an API import none of the libraries that run the platform."""

import json
import pkgutil
import subprocess
import sys
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from starling.app import cli
from starling.app.access.port_file import RunningPlatform, published

_HEAVY = {
    *("sqlalchemy", "psycopg", "procrastinate", "langgraph", "langchain", "langchain_core", "mcp", "fastmcp"),
    *("pydantic_settings", "fastapi", "starlette", "uvicorn", "opentelemetry", "aiohttp", "brain"),
    *("mcp_gateway",),
}
_OF_THE_DATABASE = ("command_settings", "database_api", "server.changes", "server.effects")
_OF_SERVICES = (
    "up",
    "serve",
    "worker",
    "doctor",
    "model_choice",
    "db",
    "key",
    "signals",
    "process_",
    "gc_tuning",
    "startup_report",
)
_DONE: dict[str, Any] = {"type": "done", "status": "succeeded", "reply": "Noon.", "usage": {}}
_RUN = {
    "run_id": "01a1f8ac-cbf4-7cdd-97b7-5ad5f772744e",
    "status": "succeeded",
    "tenant": "default",
    "thread_id": "t",
    "input": "Hi.",
}
_ANSWERS: dict[str, Any] = {
    "/health": {"status": "ok"},
    "/v1/runs": {"runs": [{**_RUN, "created_at": "2026-11-20T11:12:01Z", "seconds": 1.0}], "next": None},
    "/v1/registry/plan": {
        "epoch": 2,
        "changed": False,
        "changes": {**{key: {} for key in ("servers", "agents", "teams", "prompts")}, "tools": {}, "details": {}},
        **{key: {} for key in ("warnings", "broken_agents", "broken_teams", "tool_settings", "quarantined")},
        **{key: {} for key in ("prompts", "prompt_warnings")},
    },
}
_PROGRAM = """
import json, sys
from starling.app.cli import main
sys.argv = ["starling", *sys.argv[1:]]
try:
    main()
finally:
    print("imported", json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


class _Api(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        path = self.path.partition("?")[0]
        stream = path == "/v1/agent/run"
        text = f"id: 1\nevent: done\ndata: {json.dumps(_DONE)}\n\n" if stream else json.dumps(_ANSWERS[path])
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if stream else "application/json")
        self.end_headers()
        self.wfile.write(text.encode())

    do_POST = do_GET  # noqa: N815 - the name that http.server calls

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


def test_modules_of_commands_that_ask_the_api_import_no_platform_library() -> None:
    names = [module.name for module in pkgutil.walk_packages(cli.__path__, f"{cli.__name__}.")]
    light = [name for name in names if not name.removeprefix("starling.app.cli.").startswith(_OF_SERVICES)]
    light = [name for name in light if not name.endswith((*_OF_THE_DATABASE, "startup_report"))]
    program = f"import sys, {', '.join(light)}; print({_HEAVY} & sys.modules.keys())"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert len(light) > 30
    assert done.stdout == "set()\n"


@pytest.mark.parametrize(
    ("command", "needed"),
    [
        (("run", "list"), set[str]()),
        (("ask", "What time is it?", "--json"), set[str]()),
        (("registry", "plan"), {"mcp_gateway"}),  # reads the file of servers
    ],
    ids=" ".join,
)
def test_command_that_asks_a_running_platform_imports_no_platform_library(
    data_dir: Path, tmp_path: Path, command: tuple[str, ...], needed: set[str]
) -> None:
    (tmp_path / "mcp.json").write_text('{"mcpServers": {}}')
    environment = {"STARLING_DATA_DIR": str(data_dir), "PYTHONPATH": ":".join(sys.path)}

    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *command],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    imported = json.loads(done.stdout.splitlines()[-1].removeprefix("imported "))
    assert _HEAVY & set(imported) == needed
