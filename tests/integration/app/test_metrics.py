"""Metrics of models and of the database, also of failures."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sized
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from starling.app.telemetry import metrics
from starling.app.telemetry.instrumentation import MeasuredModels
from starling.app.telemetry.metrics import Metrics, MetricsExporter
from starling.core.errors import DatabaseUnavailableError, LLMServerError
from starling.core.llm import Message, ModelReply, ModelRequest, ModelRole
from starling.core.run_document.rows import EventRow
from starling.core.runs import RunStatus
from starling.core.settings.schema import ProviderSettings, Settings
from starling.infra.llm.factory import open_models
from starling.infra.postgres.runs.leases import Backlog
from tests.support.model_script import Answer, Body
from tests.support.model_server import ModelServer

HELLO = ModelRequest(ModelRole.CODING, (Message("user", "Hello"),))


@asynccontextmanager
async def measured(answer: Answer) -> AsyncGenerator[MeasuredModels]:
    async def responder(_: Body) -> Answer:
        return answer

    async with ModelServer(responder) as server:
        providers = {"scripted": ProviderSettings(base_url=server.url)}
        async with open_models(Settings(model=("scripted:small",), providers=providers)) as models:
            yield MeasuredModels(models, Metrics())


def value(models: MeasuredModels, name: str, **labels: str) -> float | None:
    return models.metrics.registry.get_sample_value(name, {"role": "coding", **labels})


async def writable() -> None:
    """Postgres takes writes."""


async def epoch_7() -> int:
    return 7


async def none_open() -> Mapping[str, Sized]:
    return {}


async def test_answers_are_counted_with_their_tokens_whole_or_streamed() -> None:
    async with measured(Answer("Hello to you", usage=(11, 7))) as models:
        await models.respond(HELLO)
        items = [item async for item in models.stream_respond(HELLO)]

    assert isinstance(items[-1], ModelReply)
    assert value(models, "starling_model_calls_total", model="scripted:small", outcome="ok") == 2
    assert value(models, "starling_model_tokens_total", model="scripted:small", direction="input") == 22
    assert value(models, "starling_model_tokens_total", model="scripted:small", direction="output") == 14
    assert value(models, "starling_model_call_seconds_count") == 2


async def test_failures_are_counted_by_their_code() -> None:
    async with measured(Answer(status=401, body="{}")) as models:
        with pytest.raises(LLMServerError):
            await models.respond(HELLO)
        with pytest.raises(LLMServerError):
            _ = [item async for item in models.stream_respond(HELLO)]

    assert value(models, "starling_model_calls_total", model="scripted:small", outcome="llm_server_error") == 2
    assert value(models, "starling_model_call_seconds_count") == 2


def test_agents_are_labels_up_to_a_number_of_names_and_members_of_teams_are_none() -> None:
    metrics = Metrics()

    def count(agent: str, path: str = "t1") -> None:
        data = {"agent": agent, "path": path, "status": "APPROVED"}
        metrics.written("", [EventRow(1, "reflection", data)], 0)

    for number in range(600):
        count(f"poet_{number}")
    count("mcp_agent_time")
    count("poet_0")
    count("poet_0", "t1/t2")

    def counted(agent: str) -> float | None:
        return metrics.registry.get_sample_value("starling_verdicts_total", {"agent": agent, "status": "APPROVED"})

    assert (counted("poet_0"), counted("mcp_agent_time"), counted("poet_599"), counted("other")) == (2, 1, None, 101)


async def test_model_named_by_an_agent_is_not_a_metric_label() -> None:
    async with measured(Answer("Hello to you", usage=(11, 7))) as models:
        await models.respond(replace(HELLO, model="scripted:canary"))

    assert value(models, "starling_model_calls_total", model="other", outcome="ok") == 1
    assert "canary" not in models.metrics.text().decode()


async def test_database_is_queried_at_most_once_per_interval() -> None:
    asked = 0

    async def backlog() -> Backlog:
        nonlocal asked
        asked += 1
        return Backlog({RunStatus.QUEUED: 3}, 1.5, {"hour": 1, "day": 2, "week": 3, "older": 4})

    metrics_exporter = MetricsExporter(Metrics(), writable, backlog, epoch_7, none_open)
    texts = [await metrics_exporter.text() for _ in range(3)]

    assert asked == 1
    assert b'starling_runs{status="queued"} 3.0' in texts[2]
    assert b"starling_oldest_queued_seconds 1.5" in texts[2]
    ages = [line.split(b"interrupts")[1] for line in texts[2].splitlines() if line.startswith(b"starling_open_int")]
    assert ages == [b'{age="hour"} 1.0', b'{age="day"} 2.0', b'{age="week"} 3.0', b'{age="older"} 4.0']
    assert b"starling_epoch 7.0" in texts[2]


async def test_metrics_are_available_while_postgres_is_unavailable() -> None:
    async def away() -> Backlog:
        raise DatabaseUnavailableError("It is away.")

    assert b"starling_database_up 0.0" in await MetricsExporter(Metrics(), writable, away, epoch_7, none_open).text()


async def test_disk_without_space_is_a_database_that_is_not_up_and_its_backlog_is_read() -> None:
    async def full() -> None:
        raise DatabaseUnavailableError("No space left on device.")

    async def backlog() -> Backlog:
        return Backlog({RunStatus.QUEUED: 3}, 1.5)

    text = await MetricsExporter(Metrics(), full, backlog, epoch_7, none_open).text()

    assert b"starling_database_up 0.0" in text
    assert b'starling_runs{status="queued"} 3.0' in text


async def test_silent_postgres_delays_metrics_by_two_seconds_at_most_and_is_not_up() -> None:
    silence = asyncio.Event()
    answers = [Backlog({RunStatus.QUEUED: 3}, 1.5)]

    async def backlog() -> Backlog:
        if not answers:
            await silence.wait()
        return answers.pop()

    exporter = MetricsExporter(Metrics(), writable, backlog, epoch_7, none_open)
    before = await exporter.text()
    exporter._read = float("-inf")  # pyright: ignore[reportPrivateUsage] - as after five seconds
    async with asyncio.timeout(4):  # on a machine that is busy
        text = await exporter.text()

    assert metrics._WAIT_SECONDS < 2  # pyright: ignore[reportPrivateUsage] - all that it waits for
    assert b"starling_database_up 1.0" in before
    assert b"starling_database_up 0.0" in text
    assert b'starling_runs{status="queued"} 3.0' in text
    silence.set()
