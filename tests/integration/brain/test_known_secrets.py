"""Secrets that a server gives away are in no sink: no table, no log, no prompt."""

import logging
import sys

import pytest
from sqlalchemy import text

from starling.core.secrets.known import KnownSecrets
from tests.integration.brain.conftest import Open
from tests.support.gateway_harness import SERVERS
from tests.support.model_script import Answer
from tests.support.platform import ScriptedModel, calls, decision, task, verdict
from tests.support.secret_embeddings import SECRETS

_TABLES = text("SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'")


@pytest.mark.parametrize(("effect", "tools"), [("read", ("show", "fail", "crash")), ("unsafe", ("show", "fail"))])
async def test_secrets_that_a_server_gives_away_are_in_no_sink(
    opened: Open,
    script: ScriptedModel,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    effect: str,
    tools: tuple[str, ...],
) -> None:
    planted = {f"PLANTED_{number}": secret for number, secret in enumerate(SECRETS.values())}
    for name, secret in planted.items():
        monkeypatch.setenv(name, secret)
    env = {name: f"${{{name}}}" for name in planted} | {"PYTHONPATH": str(SERVERS.parents[2])}
    leaking = {"command": sys.executable, "args": [str(SERVERS / "leaking.py")], "env": env}
    script.supervisor(decision(task("t1", "mcp_agent_leaking")))
    script.agent("t1", calls(*((tool, "{}") for tool in tools)))
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("It said *** [1]."))

    with caplog.at_level(logging.DEBUG):
        async with opened(servers={"leaking": {**leaking, "x-starling": {"effect": effect}}}) as platform:
            ended = await platform.ask("Show what you have.")
            prompts = str(platform.model.bodies)
            async with platform.services.engine.connect() as connection:
                tables = (await connection.scalars(_TABLES)).all()
                rows = [
                    str(row)
                    for table in tables
                    for row in await connection.scalars(text(f'SELECT t::text FROM "{table}" AS t'))  # noqa: S608 - our names
                ]

    known = KnownSecrets.of(SECRETS)
    assert ended.status == "succeeded"
    assert len(ended.of("tool_result")) == len(tools)
    assert [row[:500] for row in rows if known.names_in(row)] == []
    assert (known.names_in(prompts), known.names_in(caplog.text)) == (frozenset(), frozenset())
    assert "***" in prompts
