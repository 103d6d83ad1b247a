"""Secrets that a server gives away are in no sink: no table, no log, no prompt."""

import logging
import sys
from collections.abc import AsyncGenerator

import pytest
from sqlalchemy import text

from starling.core.secrets.known import KnownSecrets
from tests.integration.brain.conftest import Open
from tests.support.gateway_harness import SERVERS
from tests.support.model_script import Answer
from tests.support.otlp_collector import Collector
from tests.support.platform import ScriptedModel, calls, decision, task, verdict
from tests.support.secret_embeddings import EMBEDDINGS, SECRETS

TOOLS = {"read": ("show", "fail", "crash"), "unsafe": ("show", "fail")}  # by effect
_TABLES = text("SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'")


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the variables of the environment that are the secrets."""
    names = [f"PLANTED_{number}" for number in range(len(SECRETS))]
    for name, secret in zip(names, SECRETS.values(), strict=True):
        monkeypatch.setenv(name, secret)
    return names


@pytest.fixture
async def collector() -> AsyncGenerator[Collector]:
    async with Collector() as collector:
        yield collector


@pytest.mark.parametrize("effect", TOOLS)
async def test_secrets_that_a_server_gives_away_are_in_no_sink(
    opened: Open,
    planted: list[str],
    script: ScriptedModel,
    collector: Collector,
    caplog: pytest.LogCaptureFixture,
    effect: str,
) -> None:
    env = {name: f"${{{name}}}" for name in planted} | {"PYTHONPATH": str(SERVERS.parents[2])}
    leaking = {"command": sys.executable, "args": [str(SERVERS / "leaking.py")], "env": env}
    script.supervisor(decision(task("t1", "mcp_agent_leaking")))
    script.agent("t1", calls(*((tool, "{}") for tool in TOOLS[effect])))
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("It said *** [1]."))

    with caplog.at_level(logging.DEBUG):
        servers = {"leaking": {**leaking, "x-starling": {"effect": effect}}}
        tracing = {"otlp_endpoint": collector.url}
        async with opened(servers=servers, tracing=tracing, tool_result_chars=4_000) as platform:
            ended = await platform.ask("Show what you have.")
            prompts = str(platform.model.bodies)
            async with platform.services.storage.engine.connect() as connection:
                artifacts = (await connection.scalars(text("SELECT content FROM artifacts"))).all()
                tables = (await connection.scalars(_TABLES)).all()
                rows = [
                    str(row)
                    for table in tables
                    for row in await connection.scalars(text(f'SELECT t::text FROM "{table}" AS t'))  # noqa: S608 - our names
                ]

    known = KnownSecrets.of(SECRETS)
    spans = [str((span.name, span.attributes, span.events)) for span in collector.spans]
    files = [file for file in platform.settings.data_dir.rglob("*") if file.is_file()]
    assert ended.status == "succeeded"
    assert len(ended.of("tool_result")) == len(TOOLS[effect])
    assert (len(SECRETS), len(EMBEDDINGS)) == (20, 15)
    assert [row[:500] for row in [*rows, *spans, ended.reply] if known.names_in(row)] == []
    assert [file for file in files if known.names_in(file.read_text("utf-8", "replace"))] == []
    assert "***" in "".join(span for span in spans if "execute_tool leaking.show" in span)
    assert "***" in "".join(artifacts)
    assert (known.names_in(prompts), known.names_in(caplog.text)) == (frozenset(), frozenset())
    assert "***" in prompts
