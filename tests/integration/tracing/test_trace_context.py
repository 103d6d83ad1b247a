"""Traces of callers continue in requests, in runs, and in what runs ask models and services."""

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from starling.core.ids import trace_id_of
from starling.core.principal import DEFAULT_TENANT
from starling.infra.postgres.runs.acceptance import RunKey
from tests.support.brainstem_server import BrainstemServer
from tests.support.execution_service import ExecutionService
from tests.support.gateway_harness import free_port, wait_for_port
from tests.support.http_app import served_api
from tests.support.model_script import Answer
from tests.support.model_server import ModelServer
from tests.support.otlp_collector import Collector, ReceivedSpan
from tests.support.platform import BENCH, ScriptedModel, calls, decision, open_platform, task

TRACE, SPAN, OTHER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", "b7ad6b7169203331"
SENT = f"00-{TRACE}-{SPAN}-01"
SERVER = '''
import sys
from mcp.server.fastmcp import Context, FastMCP

server = FastMCP("tracing", port=int(sys.argv[2]))

@server.tool()
def look(thing: str, context: Context) -> str:
    """Look at a thing."""
    request = context.request_context
    return " ".join([request.meta.traceparent, *([request.request.headers["traceparent"]] if request.request else [])])

server.run(sys.argv[1])
'''


def header(span: ReceivedSpan) -> str:
    return f"00-{span.trace_id}-{span.id}-01"


@pytest.mark.parametrize("sent", [SENT, f"00-{TRACE}-{'0' * 16}-01", SENT * 20])
async def test_request_and_run_are_in_the_trace_of_the_caller_unless_that_is_malformed(
    sent: str,
    *,
    database_url: str,
    tmp_path: Path,
    script: ScriptedModel,
    collector: Collector,
    model: ModelServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    monkeypatch.setenv("OTEL_SERVICE_NAME", "stars")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=night%20sky,service.name=other")
    script.run(decision(task("t1", BENCH)), t1=calls(("look", {"thing": "disk"})), qa=Answer("It is fine [1]."))
    (tmp_path / "server.py").write_text(SERVER)
    server = {"command": sys.executable, "args": [str(tmp_path / "server.py"), "stdio", "0"]}
    body, to = {"input": "How is the disk?", "thread_id": "t"}, {"otlp_endpoint": collector.url}
    servers = {"bench": server | {"x-starling": {"effect": "read"}}}

    async with open_platform(database_url, model, servers, tmp_path, tracing=to) as platform:
        async with served_api(platform.settings, platform.services) as api:
            await api.post("/v1/runs", 401, json=body, headers={"traceparent": sent, "Authorization": "Bearer no"})
            await api.get("/v1/runs", headers={"traceparent": sent})
            run = await api.post("/v1/runs", 202, json=body, headers={"traceparent": sent})
        await platform.finish(RunKey(DEFAULT_TENANT, run["run_id"]))

    request, segment = collector.one("POST /v1/runs"), collector.one("run.segment")
    chats, call = collector.named("chat scripted:small"), collector.one("execute_tool bench.look")
    trace = TRACE if sent == SENT else trace_id_of(run["run_id"])
    assert {span.trace_id for span in collector.spans} == {run["trace_id"]} == {trace}
    assert (request.parent, segment.parent) == (SPAN if sent == SENT else "", request.id)
    assert {span.kind for span in (request, segment)} == {"SERVER"}
    assert (request["http.response.status_code"], request["tenant"], request.failed) == (202, "default", False)
    assert {span.kind for span in (call, *chats)} == {"CLIENT"}
    assert call["starling.output"] == header(call)
    assert {request.headers["traceparent"] for request in model.requests} == set(map(header, chats))
    named = [(span.resource["service.name"], span.resource["deployment.environment"]) for span in collector.spans]
    assert set(named) == {("stars", "night sky")}
    assert not any(name.startswith("langfuse.") for span in collector.spans for name in span.attributes)
    assert not caplog.records


async def test_services_over_http_get_the_span_in_which_they_are_asked(
    database_url: str, tmp_path: Path, script: ScriptedModel, collector: Collector, model: ModelServer
) -> None:
    script.run(
        decision(task("t1", "mcp_agent_remote"), task("t2", "mcp_agent_service")),
        t1=calls(("look", {"thing": "disk"})),
        t2=calls(("echo", {"text": "disk"})),
        qa=Answer("It is fine [1]."),
    )
    (tmp_path / "server.py").write_text(SERVER)
    port, service, brainstem = free_port(), ExecutionService(tmp_path / "asked"), BrainstemServer()
    servers = {
        "remote": {"url": f"http://127.0.0.1:{port}/mcp", "x-starling": {"effect": "read"}},
        "service": {"type": "execution_service", "url": service.url},
    }
    remote = [sys.executable, str(tmp_path / "server.py"), "streamable-http", str(port)]

    with subprocess.Popen(remote, stderr=subprocess.DEVNULL, text=True) as process, service.running():
        wait_for_port(port, process)
        async with brainstem.serving() as url:
            to = {"otlp_endpoint": collector.url, "brainstem_url": url}
            async with open_platform(database_url, model, servers, tmp_path, tracing=to) as platform:
                for _ in range(2):  # the second run uses the session that the first one opened
                    await platform.ask("How is the disk?")
        process.kill()

    looks, echos = collector.named("execute_tool remote.look"), collector.named("execute_tool service.echo")
    assert [span["starling.output"] for span in looks] == [f"{header(span)} {header(span)}" for span in looks]
    assert [asked["headers"]["traceparent"] for asked in service.requests()] == list(map(header, echos))
    assert brainstem.traces == list(map(header, collector.named("run.segment")))


async def test_forks_and_answers_have_spans_in_the_trace_of_their_caller_and_those_of_streams_end_at_once(
    database_url: str, tmp_path: Path, script: ScriptedModel, collector: Collector, model: ModelServer
) -> None:
    script.run(decision(task("t1", BENCH)), t1=Answer("It is fine."), qa=Answer("It is fine."))
    (tmp_path / "server.py").write_text(SERVER)
    servers = {"bench": {"command": sys.executable, "args": [str(tmp_path / "server.py"), "stdio", "0"]}}
    headers = {"traceparent": f"00-{TRACE}-{OTHER}-01"}

    async with open_platform(
        database_url, model, servers, tmp_path, tracing={"otlp_endpoint": collector.url}
    ) as platform:
        async with served_api(platform.settings, platform.services) as api:
            async with api.client.post("/v1/agent/run", json={"input": "How is it?", "thread_id": "t"}) as stream:
                run = stream.headers["X-Run-Id"]
                await platform.finish(RunKey(DEFAULT_TENANT, run))
                await stream.read()
            fork = await api.post(f"/v1/runs/{run}/fork", 202, json={"at": "start"}, headers=headers)
            late = [{"interruptId": run, "status": "cancelled"}]
            await api.post(f"/v1/runs/{run}/resume", 404, json=late, headers=headers)
        await platform.finish(RunKey(DEFAULT_TENANT, fork["run_id"]))

    forked, resumed = collector.one("POST /v1/runs/{run_id}/fork"), collector.one("POST /v1/runs/{run_id}/resume")
    segment = next(span for span in collector.named("run.segment") if span["starling.run_id"] == fork["run_id"])
    assert (forked.parent, resumed.parent, segment.parent) == (OTHER, OTHER, forked.id)
    assert {forked.trace_id, resumed.trace_id, segment.trace_id, fork["trace_id"]} == {TRACE}
    names = [span.name for span in collector.spans]  # in the order in which they ended
    assert names.index("POST /v1/agent/run") < names.index("run.segment")
