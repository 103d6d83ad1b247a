"""Traces of callers continue in runs, and in what runs ask models and MCP servers."""

import sys
from pathlib import Path

import pytest

from starling.core.ids import trace_id_of
from starling.core.principal import DEFAULT_TENANT
from starling.infra.postgres.runs.acceptance import RunKey
from tests.support.http_app import served_api
from tests.support.model_script import Answer
from tests.support.model_server import ModelServer
from tests.support.otlp_collector import Collector
from tests.support.platform import BENCH, ScriptedModel, calls, decision, open_platform, task

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
LOOK = calls(("look", {"thing": "disk"}))
SERVER = '''
from mcp.server.fastmcp import Context, FastMCP

server = FastMCP("tracing")

@server.tool()
def look(thing: str, context: Context) -> str:
    """Look at a thing."""
    return context.request_context.meta.traceparent

server.run()
'''


@pytest.mark.parametrize("sent", [f"00-{TRACE}-{SPAN}-01", f"00-{TRACE}-{'0' * 16}-01"])
async def test_run_is_in_the_trace_of_its_caller_unless_that_is_malformed(
    sent: str,
    *,
    database_url: str,
    tmp_path: Path,
    script: ScriptedModel,
    collector: Collector,
    model: ModelServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "stars")
    script.run(decision(task("t1", BENCH)), t1=LOOK, qa=Answer("It is fine [1]."))
    (tmp_path / "server.py").write_text(SERVER)
    server = {"command": sys.executable, "args": [str(tmp_path / "server.py")], "x-starling": {"effect": "read"}}
    body, to = {"input": "How is the disk?", "thread_id": "t"}, {"otlp_endpoint": collector.url}

    async with open_platform(database_url, model, {"bench": server}, tmp_path, tracing=to) as platform:
        async with served_api(platform.settings, platform.services) as api:
            run = await api.post("/v1/runs", 202, json=body, headers={"traceparent": sent})
        await platform.finish(RunKey(DEFAULT_TENANT, run["run_id"]))

    segment, call = collector.one("run.segment"), collector.one("execute_tool bench.look")
    chats = collector.named("chat scripted:small")
    continued = SPAN in sent
    trace = TRACE if continued else trace_id_of(run["run_id"])
    assert {span.trace_id for span in collector.spans} == {run["trace_id"]} == {trace}
    assert segment.parent == (SPAN if continued else "")
    assert segment.kind == "SERVER"
    assert {span.kind for span in (call, *chats)} == {"CLIENT"}
    assert call["starling.output"] == f"00-{trace}-{call.id}-01"
    assert {request.headers["traceparent"] for request in model.requests} == {f"00-{trace}-{c.id}-01" for c in chats}
    assert {span.service for span in collector.spans} == {"stars"}
    assert not any(name.startswith("langfuse.") for span in collector.spans for name in span.attributes)
