"""What a run's trace looks like to the collector that receives it."""

import json
import logging
import re
import subprocess
import sys
from dataclasses import dataclass

import pytest
from sqlalchemy import select

from starling.app.runs.acceptance import RunRequest
from starling.core.agents import Persona
from starling.core.ids import trace_id_of
from starling.core.teams.stars import Member, StarSpec
from starling.infra.postgres.tables.access import audit_events
from starling.infra.postgres.tables.run_records import ledger, runs
from tests.integration.tracing.conftest import Open
from tests.support.gateway_harness import free_port
from tests.support.interrupted_runs import execute_run, wait_for_event, wait_until_noted
from tests.support.model_script import Answer
from tests.support.otlp_collector import Collector, ReceivedSpan
from tests.support.platform import (
    BENCH,
    CALLER,
    SHOP,
    ScriptedModel,
    Workbench,
    calls,
    decision,
    task,
    verdict,
)

LOOK = calls(("look", {"thing": "disk"}))
CHAT, LOOK_AT = "chat scripted:small", "execute_tool {}.look"
AGENTS = {"bench": BENCH, "shop": SHOP}
SUPERVISOR = "supervisor_decision"
ROUTING = ("iteration", "clarification_count", "next_agent")


@dataclass(frozen=True, slots=True)
class Tree:
    """A span's name and the trees below it."""

    name: str
    below: list["Tree"]


def two_specialists(script: ScriptedModel) -> None:
    script.supervisor(decision(task("t1", BENCH), task("t2", SHOP)))
    script.agent("t1", LOOK)
    script.agent("t2", LOOK)
    script.reviewer(verdict("REJECTED", "Look again."), verdict("APPROVED", "It fits."), of="t1")
    script.reviewer(verdict("APPROVED", "It fits."), of="t2")
    script.qa(Answer("Both are fine [1] [2]."))


def node(name: str, *below: Tree) -> Tree:
    return Tree(name, sorted(below, key=repr))


def tree(collector: Collector, of: ReceivedSpan) -> Tree:
    return node(of.name, *(tree(collector, child) for child in collector.children(of)))


def reviews_in(collector: Collector) -> list[ReceivedSpan]:
    return [span for span in collector.spans if span.name.endswith("_reflection")]


async def test_run_of_two_specialists_is_one_span_tree(
    opened: Open, script: ScriptedModel, collector: Collector
) -> None:
    two_specialists(script)

    async with opened(otlp_endpoint=collector.url) as platform:
        stream = await platform.ask("How are disk and door?")

    segment = collector.one("run.segment")

    def attempt(number: int, server: str) -> Tree:
        return node(
            f"attempt {number}",
            node(CHAT),
            node(LOOK_AT.format(server)),
            node(f"{AGENTS[server]}_reflection", node(CHAT)),
        )

    assert stream.status == "succeeded"
    assert {span.trace_id for span in collector.spans} == {trace_id_of(stream.key.id)}
    assert segment.parent == ""
    assert tree(collector, segment) == node(
        "run.segment",
        node(SUPERVISOR, node(CHAT)),
        node("task t1", node("recall"), attempt(1, "bench"), attempt(2, "bench")),
        node("task t2", node("recall"), attempt(1, "shop")),
        node(CHAT),  # the final answer
    )


async def test_work_of_a_team_is_below_its_task_with_its_paths(
    opened: Open, script: ScriptedModel, collector: Collector
) -> None:
    worker = Member(
        name="worker", persona=Persona(role="r", goal="g"), server="bench", tools=("bench.look",), runtime="native"
    )
    script.run(decision(task("t3", "team")), decision(task("t1", "worker")), t1=LOOK, qa=Answer("It is fine [1]."))

    async with opened(otlp_endpoint=collector.url) as platform:
        await platform.activate(StarSpec(name="team", purpose="Looks.", members=(worker,)))
        await platform.ask("How is the disk?")

    def review(agent: str) -> Tree:
        return node(f"{agent}_reflection", node(CHAT))

    attempt = node("attempt 1", node(CHAT), node(LOOK_AT.format("bench")), review("worker"))
    inside = [
        node("team_decision", node(CHAT)),
        node("task t1", node("recall"), attempt),
        node(CHAT),  # the team's answer
    ]
    assert tree(collector, collector.one("run.segment")) == node(
        "run.segment",
        node(SUPERVISOR, node(CHAT)),
        node("task t3", node("attempt 1", *inside, review("team"))),
        node(CHAT),
    )
    version = collector.one("task t3")["team_version"]
    inner = [span for span in collector.spans if span.attributes.get("starling.version") == version]
    assert re.fullmatch(r"team@[0-9a-f]{12}", version)
    assert {f"team_version:{version}" in span["starling.tags"] for span in inner} == {True}
    assert [span.name for span in collector.spans if span not in inner and span.name != "run.segment"] == [
        CHAT,
        SUPERVISOR,
        CHAT,
    ]
    paths = sorted(span["starling.path"] for span in collector.spans if "starling.path" in span.attributes)
    assert paths == ["supervisor/1", "t3", "t3/supervisor/1", "t3/t1"]


async def test_spans_have_the_documented_attributes(opened: Open, script: ScriptedModel, collector: Collector) -> None:
    two_specialists(script)

    async with opened(otlp_endpoint=collector.url) as platform:
        await platform.ask("How are disk and door?", thread="thread-7")

    segment, supervisor, first = collector.one("run.segment"), collector.one(SUPERVISOR), collector.one("task t1")
    generation, call = collector.children(supervisor)[0], collector.one(LOOK_AT.format("shop"))
    kinds = {span.name: span["starling.type"] for span in collector.spans}
    assert kinds == {
        "run.segment": "agent",
        SUPERVISOR: "agent",
        "task t1": "agent",
        "task t2": "agent",
        "attempt 1": "chain",
        "attempt 2": "chain",
        "recall": "retriever",
        f"{BENCH}_reflection": "evaluator",
        f"{SHOP}_reflection": "evaluator",
        CHAT: "generation",
        LOOK_AT.format("bench"): "tool",
        LOOK_AT.format("shop"): "tool",
    }
    for span in collector.spans:
        assert span.resource["service.name"] == "starling"
        assert span["starling.session.id"] == "thread-7"
        assert span["starling.name"] == "run"
        assert span["tenant"] == "default"
        assert span["correlation_id"]
        assert span["epoch"] == segment["epoch"]
    assert set(segment["starling.tags"]) == {
        f"epoch:{segment['epoch']}",
        f"agent_name:{BENCH}",
        f"agent_name:{SHOP}",
        "tool_usage:bench.look",
        "tool_usage:shop.look",
        "reflection_status:APPROVED",
        "reflection_status:REJECTED",
    }
    assert segment["starling.output"] == "Both are fine [1] [2]."
    assert supervisor["starling.selected_agents"] == [BENCH, SHOP]
    decided = {name: supervisor[name] for name in ROUTING}
    assert decided == {"iteration": 1, "clarification_count": 0, "next_agent": [BENCH, SHOP]}
    assert json.loads(supervisor["starling.input"]) == {
        "request": "How are disk and door?",
        "conversation_history": [],
        "clarification_count": 0,
    }
    assert json.loads(supervisor["starling.output"])["plan"]
    assert (supervisor["starling.is_in_loop"], supervisor["starling.is_progress_being_made"]) == (False, True)
    assert first["starling.tags"] == [
        f"epoch:{segment['epoch']}",
        f"agent_name:{BENCH}",
        "tool_usage:bench.look",
    ]
    assert call["starling.tags"] == [f"epoch:{segment['epoch']}", f"agent_name:{SHOP}", "tool_usage:shop.look"]
    assert first["agent_name"] == BENCH
    assert generation["gen_ai.system"] == generation["gen_ai.provider.name"] == "scripted"
    assert generation["gen_ai.request.model"] == generation["gen_ai.response.model"] == "small"
    assert (generation["gen_ai.usage.input_tokens"], generation["gen_ai.usage.output_tokens"]) == (11, 7)
    assert generation["gen_ai.response.finish_reasons"] == ["stop"]
    assert generation["starling.prompt.name"] == "supervisor"
    assert len(generation["starling.prompt.version"]) == 64
    assert "How are disk and door?" in generation["starling.input"]
    assert call["gen_ai.tool.name"] == "shop.look"
    assert json.loads(call["starling.input"]) == {"thing": "disk"}


async def test_correlation_id_is_in_events_spans_and_tables(
    opened: Open, script: ScriptedModel, collector: Collector
) -> None:
    two_specialists(script)
    asked = RunRequest(input="How are disk and door?", thread_id="t", correlation_id="order-17")

    async with opened(otlp_endpoint=collector.url) as platform:
        stream = await platform.finish((await platform.services.runs.acceptance.accept(CALLER, asked)).key)
        async with platform.services.storage.engine.connect() as connection:
            stored = {
                table.name: set(await connection.scalars(select(table.c.correlation_id)))
                for table in (runs, ledger, audit_events)
            }

    assert stream.status == "succeeded"
    assert stream.of("run_started")[0]["correlation_id"] == "order-17"
    assert {span["correlation_id"] for span in collector.spans} == {"order-17"}
    assert stored["runs"] == stored["ledger"] == {"order-17"}
    assert "order-17" in stored["audit_events"]


async def test_steps_name_their_span_their_tool_and_whether_it_failed(
    opened: Open, script: ScriptedModel, collector: Collector
) -> None:
    script.supervisor(decision(task("t1", BENCH)), decision(reply="It can't be done."))
    script.agent("t1", calls(("look", {"thing": "disk"}), ("fail", {"why": "disk"})))
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("The disk is there [1]."))

    async with opened(otlp_endpoint=collector.url) as platform:
        stream = await platform.ask("How is the disk?")
        steps = await platform.services.runs.reader.steps(stream.key)

    spans = {span.id: span for span in collector.spans}
    made = [(step.type, spans[step.metadata["span_id"]].name, step.metadata.get("is_error")) for step in steps]
    assert sorted(made, key=str) == [
        ("llm_call", CHAT, False),
        ("llm_call", CHAT, False),
        ("llm_call", CHAT, False),
        ("llm_call", CHAT, False),
        ("plan", SUPERVISOR, None),
        ("summary", "run.segment", False),
        ("tool_call", "execute_tool bench.fail", True),
        ("tool_call", "execute_tool bench.look", False),
    ]
    called = [step.metadata for step in steps if step.type == "tool_call"]
    assert {(call["tool_name"], call["call_id"]) for call in called} == {
        ("bench.look", "t1.0.0"),
        ("bench.fail", "t1.0.1"),
    }
    assert {step.metadata["model_role"] for step in steps if step.type == "llm_call"} == {"router", "reasoning"}


async def test_verdicts_are_span_events_without_langfuse(
    opened: Open, script: ScriptedModel, collector: Collector
) -> None:
    two_specialists(script)

    async with opened(otlp_endpoint=collector.url) as platform:
        await platform.ask("How are disk and door?")

    reviews = reviews_in(collector)
    statuses = sorted(review["reflection_status"] for review in reviews)
    scores = sorted(review.events["gen_ai.evaluation.result"]["gen_ai.evaluation.score.value"] for review in reviews)
    assert statuses == ["APPROVED", "APPROVED", "REJECTED"]
    assert scores == [0.0, 1.0, 1.0]


async def test_langfuse_gets_spans_and_scores_with_its_key(
    opened: Open, script: ScriptedModel, collector: Collector
) -> None:
    two_specialists(script)
    keys = {"langfuse_public_key": "pk-lf-1", "langfuse_secret_key": "sk-lf-secret"}

    async with opened(**keys, langfuse_host=collector.url, otlp_endpoint="http://127.0.0.1:1") as platform:
        stream = await platform.ask("How are disk and door?")

    reviews = {span.id: span for span in reviews_in(collector)}
    assert collector.paths == {"/api/public/otel/v1/traces", "/api/public/scores"}
    assert {headers["Authorization"] for headers in collector.headers} == {"Basic cGstbGYtMTpzay1sZi1zZWNyZXQ="}
    verdicts = [score for score in collector.scores if score["name"] == "verdict"]
    assert collector.refused == []
    assert sorted(score["value"] for score in verdicts) == [0.0, 1.0, 1.0]
    assert {score["traceId"] for score in collector.scores} == {trace_id_of(stream.key.id)}
    assert {score["observationId"] for score in verdicts} == set(reviews)
    assert [(score["name"], score["value"]) for score in collector.scores if "observationId" not in score] == [
        ("run_status", "succeeded")
    ]
    assert not any(b"sk-lf-secret" in body for body in collector.bodies)


async def test_second_claim_continues_the_trace_of_the_first(
    opened: Open, script: ScriptedModel, collector: Collector
) -> None:
    script.supervisor(decision(task("t1", BENCH)))
    script.agent("t1", LOOK)
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("Half an answer", hold="for ever", hold_after=2), Answer("A whole answer [1]."))

    async with opened(otlp_endpoint=collector.url) as first:
        key = await first.accept("How is the disk?")
        async with first.executing(key):
            await wait_for_event(first, key, "thinking")
    async with opened(otlp_endpoint=collector.url) as second:
        await second.finish(key)

    before, after = sorted(collector.named("run.segment"), key=lambda span: span["starling.segment"])
    assert {span.trace_id for span in collector.spans} == {trace_id_of(key.id)}
    assert (before.links, after.links) == ([], [before.id])
    assert before["starling.interrupted"]
    assert after["starling.status"] == "succeeded"
    assert [span.name for span in collector.children(after)] == [CHAT]


async def test_failed_spans_are_marked(opened: Open, script: ScriptedModel, collector: Collector) -> None:
    script.supervisor(decision(task("t1", BENCH)), decision(reply="It can't be done."))
    script.agent("t1", calls(("fail", {"why": "disk"})))

    async with opened(otlp_endpoint=collector.url) as platform:
        await platform.ask("Break the disk.")

    failed = {span.name for span in collector.spans if span.failed}
    assert failed == {"execute_tool bench.fail", "task t1", "run.segment"}
    assert collector.one("task t1")["starling.level"] == "ERROR"


async def test_waiting_for_an_answer_is_not_a_failure(
    opened: Open, script: ScriptedModel, collector: Collector, workbench: Workbench
) -> None:
    script.supervisor(decision(task("t1", SHOP)))
    script.agent("t1", calls(("wait", {"place": "traced"})))
    async with opened(otlp_endpoint=collector.url) as platform:
        key = await platform.accept("Wait in the shop.")
        async with platform.executing(key):
            await wait_until_noted("wait traced", workbench.done)
        await execute_run(platform, key)

    waited = {span.name for span in collector.spans if span.attributes.get("starling.waiting")}
    assert waited == {"execute_tool shop.wait", "attempt 1", "task t1"}
    assert not any(span.failed for span in collector.spans)


async def test_reasoning_is_part_of_the_output_of_a_generation(
    opened: Open, script: ScriptedModel, collector: Collector
) -> None:
    script.supervisor(Answer('<think>They greet me.</think>{"reply": "Hello!"}'))

    async with opened(otlp_endpoint=collector.url) as platform:
        await platform.ask("Hi.")

    output = json.loads(collector.one(CHAT)["starling.output"])
    assert output == {"content": '{"reply": "Hello!"}', "reasoning": "They greet me."}


async def test_content_is_not_sent_if_switched_off(opened: Open, script: ScriptedModel, collector: Collector) -> None:
    two_specialists(script)

    async with opened(otlp_endpoint=collector.url, trace_content=False) as platform:
        await platform.ask("How are disk and door?")

    names = {name for span in collector.spans for name in span.attributes}
    assert not names & {"starling.input", "starling.output"}
    assert not any(b"disk" in body or b"Look again" in body for body in collector.bodies)


async def test_unreachable_collector_causes_at_most_one_warning(
    opened: Open, script: ScriptedModel, caplog: pytest.LogCaptureFixture
) -> None:
    two_specialists(script)

    with caplog.at_level(logging.INFO):
        async with opened(otlp_endpoint=f"http://127.0.0.1:{free_port()}") as platform:
            stream = [await platform.ask("How are disk and door?") for _ in range(2)]

    ours = [record for record in caplog.records if {"opentelemetry", "tracing"} & set(record.name.split("."))]
    said = [record.getMessage() for record in ours]
    assert [run.status for run in stream] == ["succeeded", "succeeded"]
    # none where the platform stops before the exporter has given up
    assert [message.split(" to ")[0] for message in said] in ([], ["traces can't be delivered"])


def test_opentelemetry_is_not_imported_without_a_destination() -> None:
    program = """
import asyncio, sys
from starling.core.settings.schema import Settings
from starling.infra.tracing.factory import open_tracer

async def main():
    async with open_tracer(Settings()) as tracer:
        print(type(tracer).__name__, [name for name in sys.modules if name.startswith("opentelemetry")])

asyncio.run(main())
"""
    environment = {"PYTHONPATH": "src"}

    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)

    assert done.stdout == "NoopTracer []\n"
