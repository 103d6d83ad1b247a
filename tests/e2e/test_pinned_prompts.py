"""A new wording in Langfuse, between worker processes and runs."""

import asyncio
import json
import signal
from collections.abc import AsyncGenerator, Generator
from dataclasses import dataclass
from pathlib import Path

import pytest

from brain.prompts import divided, program_text
from starling.app.container.database import Database
from starling.app.container.services import open_services
from starling.app.runs.acceptance import RunRequest
from starling.app.services import Services
from starling.core.settings.schema import Settings
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.interrupts import InterruptAnswer
from tests.support.command_line import CliWorkspace, new_workspace
from tests.support.effect_recorder import AGENT, EffectRecorder
from tests.support.langfuse_server import PUBLIC_KEY, SECRET_KEY, LangfuseServer
from tests.support.model_script import Answer
from tests.support.model_server import ModelServer
from tests.support.platform import CALLER, ScriptedModel, calls, decision, task, verdict

INSTRUCTIONS = divided(program_text("qa"))[0]


@dataclass(frozen=True)
class Runs:
    """Accepts runs, answers what they wait for, and waits for their ends."""

    services: Services

    async def waiting(self, text: str) -> RunKey:
        """Accept a run on a thread of its own; return once it waits for approval."""
        accepted = await self.services.runs.acceptance.accept(CALLER, RunRequest(input=text, thread_id=text))
        async for event in self.services.runs.reader.follow(accepted.key):
            if event.type == "approval_required":
                break
        return accepted.key

    async def approved(self, key: RunKey) -> str:
        """Approve what a run waits for; return the status with which it ends."""
        [question] = await self.services.runs.interrupts.waiting(key.tenant, run=key.id)
        await self.services.runs.interrupts.answer(
            key, [InterruptAnswer(question.id, "resolved", {"approved": True})], "me"
        )
        ended = [event.data async for event in self.services.runs.reader.follow(key)][-1]
        return ended["status"]


@pytest.fixture
async def model() -> AsyncGenerator[ModelServer]:
    script = ScriptedModel()
    script.supervisor(decision(task("t1", AGENT)))
    script.agent("t1", calls(("charge", {"what": "a"})))
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("Charged [1]."))
    async with ModelServer(script) as server:
        yield server


@pytest.fixture
async def langfuse() -> AsyncGenerator[LangfuseServer]:
    async with LangfuseServer() as server:
        yield server


@pytest.fixture
def workspace(
    database_url: str, model: ModelServer, langfuse: LangfuseServer, tmp_path: Path
) -> Generator[CliWorkspace]:
    config = tmp_path / "mcp.json"
    servers = {"effects": EffectRecorder(tmp_path / "effects").as_server(approval="unsafe")}
    config.write_text(json.dumps({"mcpServers": servers}))
    with new_workspace(
        DATABASE_URL=database_url,
        STARLING_MCP_CONFIG=str(config),
        STARLING_MODEL="openai:scripted",
        OPENAI_BASE_URL=model.url,
        OPENAI_API_KEY="none",
        LANGFUSE_HOST=langfuse.url,
        LANGFUSE_PUBLIC_KEY=PUBLIC_KEY,
        LANGFUSE_SECRET_KEY=SECRET_KEY,
    ) as workspace:
        yield workspace


async def test_new_wording_reaches_new_runs_after_a_reload_and_no_run_that_waits_through_it(
    workspace: CliWorkspace, database_url: str, model: ModelServer, langfuse: LangfuseServer
) -> None:
    async with open_services(Settings(), Database(database_url, database_url)) as services:
        runs = Runs(services)
        langfuse.publish("agent_qa", f"{INSTRUCTIONS} First words.", "production")
        await reload(workspace)
        with workspace.running("worker") as first:
            waiting = await runs.waiting("This one waits.")
            langfuse.publish("agent_qa", f"{INSTRUCTIONS} Second words.", "production")
            statuses = [await runs.approved(await runs.waiting("Before the reload."))]
            await reload(workspace)
            code, left = await asyncio.to_thread(first.stopped_by, signal.SIGTERM)
        await langfuse.stop()
        with workspace.running("worker"):
            statuses.append(await runs.approved(waiting))
            statuses.append(await runs.approved(await runs.waiting("After the reload.")))

    assert (code, left) == (0, [])
    assert statuses == ["succeeded"] * 3
    assert final_answers(model) == [
        ("Before the reload.", "First words."),
        ("This one waits.", "First words."),
        ("After the reload.", "Second words."),
    ]


async def reload(workspace: CliWorkspace) -> None:
    report = await asyncio.to_thread(workspace.json, "registry", "reload")
    assert report["prompts"]["qa"]["after"]["source"] == "langfuse"


def final_answers(model: ModelServer) -> list[tuple[str, str]]:
    """Return of which request each final answer was asked, and with which words."""
    found: list[tuple[str, str]] = []
    for body in model.bodies:
        told, asked = (str(message["content"]) for message in body["messages"][:2])
        if told.startswith(INSTRUCTIONS):
            [request] = [one for one in ("This one waits.", "Before the reload.", "After the reload.") if one in asked]
            found.append((request, told.removeprefix(INSTRUCTIONS).strip()))
    return found
