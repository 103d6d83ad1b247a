"""No secret becomes part of a skill, wherever the task had it."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

import pytest
from pydantic import SecretStr

from brain.registry.cards import AgentCard
from brain.skills.generalization import MadeCall
from brain.skills.memory import FinishedTask, SkillMemory
from brain.skills.repository import SkillRepository
from starling.core.clock import SystemClock
from starling.core.json import JsonObject
from starling.core.secrets.look_alikes import Redaction
from starling.core.settings.schema import Settings
from starling.core.tool_calls import Effect
from starling.core.tools import ToolDefinition
from starling.core.tracing import NOOP_TRACER
from starling.infra.postgres.engine import open_engine

CONFIGURED, VARIABLE, UNKNOWN = "canary-of-the-settings", "canary-of-a-server", "sk-canary_of_nobody_0123"
SETTINGS = Settings(openai_api_key=SecretStr(CONFIGURED))
VARIABLES = {"CRM_API_KEY": VARIABLE, "CRM_URL": "crm.example"}
TOOL = ToolDefinition("crm", "login", "Log in.", {"type": "object"}, None, Effect.READ, "1")
CARD = AgentCard("mcp_agent_crm", "specialist", "", "crm", (TOOL,))


type Learned = Callable[..., Awaitable[Mapping[str, object]]]


@pytest.fixture
async def learned(module_database_url: str) -> AsyncGenerator[Learned]:
    """Return what a memory without skills learns from a task with one call."""
    engine = open_engine(module_database_url)
    redact = Redaction.of(SETTINGS, VARIABLES)
    memory = SkillMemory(SkillRepository(engine), None, redact, NOOP_TRACER, SystemClock())

    async def learn(
        task: str, arguments: JsonObject, result: str = "Done.", output: str = "Done."
    ) -> Mapping[str, object]:
        call = MadeCall("crm.login", arguments, result)
        done = FinishedTask("default", "t1", CARD, f"Please: {task}", task, (), [call], output, results=[result])
        lesson = await memory.lesson(done)
        assert lesson.learned is not None
        return lesson.learned.to_json()

    yield learn
    await engine.dispose()


@pytest.mark.parametrize("secret", [CONFIGURED, VARIABLE, UNKNOWN])
@pytest.mark.parametrize(
    ("task", "arguments", "result", "output"),
    [
        ("Log in with {}.", {"user": "ann"}, "Done.", "Done."),
        ("Log in with {}.", {"user": "ann", "code": "{}"}, "Done.", "Done."),
        ("Log in.", {"code": "{}"}, "Done.", "Done."),
        ("Log in.", {"form": {"headers": ["X-Code: {}"]}}, "Done.", "Done."),
        ("Log in.", {"user": "ann"}, "The code is {}.", "The code is {}."),
        ("Log in.", {"code": "{}"}, "The code is {}.", "Done."),
    ],
    ids=["task", "task and argument", "argument", "nested argument", "outcome", "result"],
)
async def test_secret_is_no_part_of_a_skill(
    learned: Learned, secret: str, task: str, arguments: JsonObject, result: str, output: str
) -> None:
    given = json.loads(json.dumps(arguments).replace("{}", secret))

    def filled(text: str) -> str:
        return text.replace("{}", secret)

    stored = await learned(filled(task), given, filled(result), filled(output))

    assert secret not in json.dumps(stored)
    assert stored["task"] == task.replace("{}", "***")


async def test_argument_whose_name_says_secret_is_a_slot_without_example(learned: Learned) -> None:
    stored = await learned("Log in.", {"user": "ann", "password": "hunter2"})

    assert "hunter2" not in json.dumps(stored)
    assert '"user": "ann"' in json.dumps(stored)


async def test_value_of_an_ordinary_variable_is_kept(learned: Learned) -> None:
    stored = await learned("Log in.", {"host": "crm.example"})

    assert "crm.example" in json.dumps(stored)
