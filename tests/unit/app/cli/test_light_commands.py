"""Commands that only ask an API import none of the libraries that run the platform.

Each command runs in a fork of one process that has imported what nearly all of them import.
"""

import json
import subprocess
import sys
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from starling.app.access.port_file import RunningPlatform, published

_HEAVY = {
    *("sqlalchemy", "psycopg", "procrastinate", "langgraph", "langchain", "langchain_core", "mcp", "fastmcp"),
    *("pydantic_settings", "fastapi", "starlette", "uvicorn", "opentelemetry", "aiohttp", "structlog", "brain"),
    *("mcp_gateway",),
}
_RUN = "01a1f8ac-cbf4-7cdd-97b7-5ad5f772744e"
_STATE: dict[str, Any] = {
    "run_id": _RUN,
    "thread_id": "t",
    "trace_id": "f",
    "correlation_id": "c",
    "epoch": 1,
    "status": "succeeded",
    "input": "Hi.",
    "config": {},
    "created_at": "2026-11-20T11:12:01Z",
    "started_at": "2026-11-20T11:12:01Z",
    "ended_at": "2026-11-20T11:12:01Z",
    "events": 1,
    "result": None,
    "why": None,
    "behind": None,
}
_LISTED = {
    "run_id": _RUN,
    "thread_id": "t",
    "status": "succeeded",
    "created_at": "2026-11-20T11:12:01Z",
    "seconds": 1.0,
    "input": "What time is it?",
}
_DONE = {
    "type": "done",
    "status": "succeeded",
    "reply": "Noon.",
    "usage": {"model_calls": 1, "tool_calls": 0, "tokens": 0},
}
_AGENT: dict[str, Any] = {
    "name": "poet",
    "kind": "custom",
    "state": "ready",
    "reason": "",
    "description": "Writes.",
    "tools": [],
}
_VERSION: dict[str, Any] = {
    "version": "3f1c7a52d8e9",
    "created_at": "2026-11-20T11:12:01Z",
    "active": True,
    "config": {"id": "poet"},
}
_FOUND = {**_AGENT, "score": 1.5, "parts": {"words_card": 1.5}, "tool": ""}
_SWITCH = {"kind": "server", "name": "time", "tenant": "*", "reason": "Stop.", "actor": "local"}
_CHANGES: dict[str, Any] = {
    name: {"added": [], "changed": [], "removed": []} for name in ("servers", "agents", "teams", "prompts")
}
_REPORT: dict[str, Any] = {
    "epoch": 2,
    "changed": False,
    "changes": {**_CHANGES, "tools": {}, "details": {}, "broken_teams": []},
    "warnings": {},
    "broken_agents": {},
    "broken_teams": {},
}
_EPOCH: dict[str, Any] = {
    "number": 2,
    "active": True,
    "actor": "local",
    "origin": "cli",
    "runs": 0,
    "changes": _REPORT["changes"],
}
_TEAM: dict[str, Any] = {
    "name": "crew",
    "purpose": "Works.",
    "state": "active",
    "version": 1,
    "hash": "3f1c7a52d8e9",
    "star": "3f1c7a52d8e9",
    "reason": "",
    "degraded_members": {},
    "created": True,
    "created_at": "2026-11-20T11:12:01Z",
    "created_by": "local",
    "epoch": 2,
    "left_out": [],
    "used_in": [],
    "members": [],
    "spec": {"version": 1, "name": "crew", "purpose": "Works.", "members": []},
}
_PROOF: dict[str, Any] = {
    "state": "proven",
    "score": 1.0,
    "threshold": 1.0,
    "cases": [],
    "run_id": _RUN,
    "trace_id": "f",
}
_WORDING: dict[str, Any] = {
    "name": "qa",
    "hash": "3f1c7a52d8e9",
    "source": "langfuse",
    "version": 2,
    "label": "production",
    "remote_name": "agent_qa",
    "since": 1,
    "text": "Answer.",
    "variables": [],
    "in_force": True,
}
_EXPLANATION: dict[str, Any] = {
    "run_id": _RUN,
    "status": "succeeded",
    "cause": None,
    "asked": {"text": "Hi."},
    "planned": {"text": "Nothing.", "versions": []},
    "cost": {"text": "Nothing."},
    **{
        name: []
        for name in ("causes", "failures", "verdicts", "passed_over", "retried", "degraded", "waited", "pruned")
    },
}
_COMPARISON: dict[str, Any] = {
    **{name: {"run_id": _RUN, "status": "succeeded", "epoch": 1} for name in ("a", "b")},
    "same_request": True,
    "text": "Nothing differs.",
    "differences": [],
    "parts": [],
    "unread": [],
}
_NOTHING_NEW: dict[str, Any] = {"changes": {}, "warnings": {"qa": "It is empty."}}
_ANSWERS: dict[str, Any] = {
    "/v1/teams": {"epoch": 1, "teams": [_TEAM], "run_id": _RUN},
    "/v1/teams/crew": _TEAM,
    "/v1/teams/crew/versions": {"name": "crew", "versions": [_TEAM], **_TEAM, "run_id": _RUN},
    "/v1/teams/crew/prove": {"run_id": _RUN, "status": "queued"},
    "/v1/teams/crew/history": {"name": "crew", "changes": []},
    "/v1/teams/crew/diff": {"name": "crew", "from": 1, "to": 2, "diff": "-a\n+b\n", "paths": ["a"]},
    "/v1/teams/crew/versions/1/proof": _PROOF,
    "/v1/teams/crew/activate": _TEAM,
    "/v1/teams/crew/archive": _TEAM,
    "/v1/teams/crew/graph": {"nodes": [], "edges": []},
    "/v1/teams/check": {"valid": True, "findings": []},
    "/v1/agents": {"epoch": 1, "agents": [_FOUND], "total": 1, "warning": "", **_VERSION, **_AGENT},
    "/v1/agents/poet": {"agent": _AGENT, "versions": [_VERSION], "name": "poet", "epoch": 2},
    "/v1/switches": {
        "switches": [{**_SWITCH, "created_at": "2026-11-20T11:12:01Z"}],
        **_SWITCH,
        "known": False,
        "missing": {"kind": "server", "name": "time", "tenant": "*"},
    },
    "/v1/registry": {"epochs": [{**_EPOCH, "created_at": "2026-11-20T11:12:01Z"}]},
    **dict.fromkeys(("/v1/registry/plan", "/v1/registry/reload", "/v1/registry/rollback"), _REPORT),
    "/v1/prompts": {"epoch": 2, "prompts": [_WORDING]},
    "/v1/prompts/qa": _WORDING,
    "/v1/prompts/diff": _NOTHING_NEW,
    "/v1/prompts/pull": _NOTHING_NEW,
    "/health": {"status": "ok"},
    "/ready": {"status": "ready", "epoch": 1, "servers": []},
    "/v1/runs": {"runs": [_LISTED], "next": None},
    f"/v1/runs/{_RUN}": _STATE,
    f"/v1/runs/{_RUN}/explanation": _EXPLANATION,
    f"/v1/runs/{_RUN}/comparison/{_RUN}": _COMPARISON,
    f"/v1/runs/{_RUN}/cancel": {"run_id": _RUN, "status": "succeeded"},
    f"/v1/runs/{_RUN}/feedback": {"score": 1.0, "comment": "", "by": "local"},
    f"/v1/runs/{_RUN}/artifacts": {"artifacts": []},
    "/v1/approvals": {"interrupts": [], "next": None},
    "/v1/servers": {"servers": []},
    "/v1/skills": {"skills": [], "next": None},
    "/v1/skills/search": {"skills": [], "total": 0, "certainty": None, "cut": None, "warning": ""},
}
_SPEC = """
name: crew
purpose: Works.
members: [{name: writer, role: Writer, goal: Write.}]
"""
_STREAMS = ("/v1/agent/run", f"/v1/runs/{_RUN}/events")
# Reads commands, a line of JSON each; writes the exit code of each, its output, and the packages that it has imported.
_FORKS = """
import json, os, sys, tempfile
import starling.app.cli.platform.api, starling.app.cli.terminal.output
from starling.app.cli import main

def run(folder, arguments, output):
    os.chdir(folder)
    sys.argv = ["starling", *arguments]
    os.dup2(output.fileno(), 1)
    os.dup2(output.fileno(), 2)
    code = 0
    try:
        main()
    except SystemExit as end:
        code = end.code or 0
    finally:
        print("\\nimported", json.dumps(sorted({name.partition(".")[0] for name in sys.modules})), flush=True)
    os._exit(code)

for line in sys.stdin:
    with tempfile.TemporaryFile("w+") as output:
        if (pid := os.fork()) == 0:
            run(*json.loads(line), output)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        output.seek(0)
        print(json.dumps([code, output.read()]), flush=True)
"""


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

    do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815 - the names that http.server calls

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


@pytest.fixture(scope="module")
def forks(data_dir: Path) -> Generator[subprocess.Popen[str]]:
    environment = {"STARLING_DATA_DIR": str(data_dir), "PYTHONPATH": ":".join(sys.path)}
    command = [sys.executable, "-c", _FORKS]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        yield process


@pytest.mark.parametrize(
    "command",
    [
        ("run", "list"),
        ("run", "show", "last"),
        ("run", "show", "last", "--tree"),
        ("run", "explain", "last"),
        ("run", "compare", "last", "744e"),
        ("run", "tail", "744e"),
        ("run", "cancel", "last"),
        ("run", "feedback", "last", "--score", "1"),
        ("run", "approve"),
        ("run", "artifacts", "last"),
        ("server", "list"),
        ("agent", "list"),
        ("agent", "find", "writes poems"),
        ("agent", "show", "poet"),
        ("agent", "create", "--name", "poet"),
        ("agent", "archive", "poet"),
        ("team", "import", "team.yaml", "--activate"),
        ("team", "check", "team.yaml"),
        ("team", "list"),
        ("team", "show", "crew"),
        ("team", "show", "crew@1", "--graph"),
        ("team", "export", "crew", "--json"),
        ("team", "activate", "crew@1"),
        ("team", "archive", "crew"),
        ("team", "show", "crew", "--proof"),
        ("team", "history", "crew"),
        ("team", "diff", "crew", "1", "2"),
        ("team", "build", "Watch the disk.", "--case", "case.yaml"),
        ("team", "build", "Watch it.", "--change", "crew"),
        ("team", "prove", "crew", "--background"),
        ("team", "schema"),
        ("skill", "list"),
        ("skill", "search", "What time is it?"),
        ("switch", "list"),
        ("switch", "off", "server", "time", "--reason", "Stop."),
        ("switch", "on", "server", "time"),
        ("registry", "list"),
        ("registry", "rollback"),
        ("registry", "plan"),
        ("registry", "reload"),
        ("prompt", "list"),
        ("prompt", "show", "qa"),
        ("prompt", "diff"),
        ("prompt", "pull"),
        ("status",),
        ("ask", "What time is it?"),
    ],
    ids=" ".join,
)
def test_command_that_asks_a_running_platform_imports_no_platform_library(
    forks: subprocess.Popen[str], tmp_path: Path, command: tuple[str, ...]
) -> None:
    assert forks.stdin is not None
    assert forks.stdout is not None
    (tmp_path / "mcp.json").write_text('{"mcpServers": {}}')
    (tmp_path / "team.yaml").write_text(_SPEC)
    (tmp_path / "case.yaml").write_text("input: Watch it.\n")

    print(json.dumps([str(tmp_path), command]), file=forks.stdin, flush=True)
    code, output = json.loads(forks.stdout.readline())

    assert code == 0, output
    imported = output.splitlines()[-1]
    assert imported.startswith("imported [")
    reads_servers = {"mcp_gateway"} if command[1:] in (("plan",), ("reload",)) else set[str]()
    assert {name for name in _HEAVY if f'"{name}"' in imported} == reads_servers
