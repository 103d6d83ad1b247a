"""Secrets that a server gives away are in no sink: no table, no log, no prompt, no response."""

import json
import logging
import re
import sys
from collections.abc import AsyncGenerator

import pytest
from sqlalchemy import text

from starling.infra.postgres.runs.acceptance import RunKey
from tests.integration.brain.conftest import Open
from tests.support.gateway_harness import SERVERS
from tests.support.http_app import served_api
from tests.support.model_script import Answer
from tests.support.otlp_collector import Collector
from tests.support.platform import Platform, ScriptedModel, calls, decision, task, verdict
from tests.support.secret_detector import SecretDetector
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


async def responses(platform: Platform, key: RunKey) -> dict[str, str]:
    """Return what each route that reads answers to an admin, errors as well, by its path."""
    services = platform.services
    async with (
        served_api(platform.settings, services) as served,
    ):
        routes = (await (await served.client.get("/openapi.json")).json())["paths"]
        found: dict[str, str] = {}
        for path in [*(path for path, methods in routes.items() if "get" in methods), "/metrics"]:
            filled = re.sub("{[^}]*}", "leaking", path.replace("{run_id}", key.id).replace("{thread_id}", "thread"))
            async with served.client.get(filled) as response:
                found[f"{response.status} {filled}"] = await response.text()
        return found


@pytest.mark.parametrize("secret", SECRETS)
def test_detector_of_this_test_finds_each_secret_in_each_form(secret: str) -> None:
    detector = SecretDetector({"it": SECRETS[secret]})
    half = len(SECRETS[secret]) // 2
    forms = [*(embed(SECRETS[secret]) for embed in EMBEDDINGS.values()), SECRETS[secret][::-1]]
    halves = [{"text": SECRETS[secret][:half]}, {"text": SECRETS[secret][half:]}]

    texts = [json.dumps(each, ensure_ascii=escaped) for each in [*forms, halves] for escaped in (True, False)]

    assert [text for text in [*forms, *texts] if not detector.found(text)] == []
    assert not detector.found("There are *** and no secrets.")


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
            prompts = [json.dumps(body) for body in platform.model.bodies]
            told = await responses(platform, ended.key)
            async with platform.services.storage.engine.connect() as connection:
                artifacts = (await connection.scalars(text("SELECT content FROM artifacts"))).all()
                tables = (await connection.scalars(_TABLES)).all()
                rows = [
                    str(row)
                    for table in tables
                    for row in await connection.scalars(text(f'SELECT t::text FROM "{table}" AS t'))  # noqa: S608 - our names
                ]

    spans = [str((span.name, span.attributes, span.events)) for span in collector.spans]
    files = [file.read_text("utf-8", "replace") for file in platform.settings.data_dir.rglob("*") if file.is_file()]
    assert ended.status == "succeeded"
    assert len(ended.of("tool_result")) == len(TOOLS[effect])
    assert (len(SECRETS), len(EMBEDDINGS)) == (20, 20)
    detector = SecretDetector(SECRETS)
    sinks = {"row": rows, "span": spans, "file": files, "response": told.values(), "prompt": prompts}
    leaks = [(sink, place, what) for sink, texts in sinks.items() for place in texts if (what := detector.found(place))]
    assert [(sink, place[:500], what) for sink, place, what in leaks] == []
    assert detector.found(caplog.text) == set()
    assert "***" in "".join(span for span in spans if "execute_tool leaking.show" in span)
    assert "***" in "".join(artifacts)
    assert "***" in "".join(prompts)
    assert [place for place in told if place.startswith("200") and "***" in told[place]]
