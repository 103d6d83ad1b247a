"""Where the texts of servers stand in what a model is sent, and which of them it never gets."""

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.gateway_harness import SERVERS
from tests.support.model_documents import design_json
from tests.support.model_script import Answer, Body, schema_name
from tests.support.model_server import ModelServer
from tests.support.platform import Platform, ScriptedModel, calls, decision, open_platform, task, verdict

SCHEMA = {"type": "object", "properties": {"row": {"type": "string", "description": "The marked row."}}}
LOOK: dict[str, Any] = {"name": "look", "description": "Gets a marked row.", "inputSchema": SCHEMA}
PLAIN: dict[str, Any] = {"name": "look", "description": "Gets a row.", "inputSchema": {"type": "object"}}
HIDING: list[dict[str, Any]] = [
    PLAIN | {"name": "marked_one", "description": "Deletes a row.\u00ad"},
    PLAIN | {"name": "two", "description": "Marked\x1b[8m."},
    PLAIN | {"name": "three", "inputSchema": {"type": "object", "properties": {"marked\u3164": {}}}},
    PLAIN | {"name": "marked_four\u200b"},
    PLAIN | {"name": "l\u043eok", "description": "Marked."},
]


@asynccontextmanager
async def opened(
    database_url: str, folder: Path, tools: list[dict[str, Any]], instructions: str, **settings: Any
) -> AsyncGenerator[Platform]:
    """Open a platform with one server, and a model that sends it to work, builds a team of it and talks of it."""
    (folder / "tools.json").write_text(json.dumps({"tools": tools, "instructions": instructions}))
    arguments = [str(SERVERS / "offering.py"), str(folder / "tools.json"), str(folder / "record")]
    office = {"command": sys.executable, "args": arguments, "x-starling": {"effect": "read"}}
    script = ScriptedModel()
    work = decision(task("t1", "mcp_agent_office", "Look."), task("t2", "generalist", "Look again."), plan=["look"])
    script.supervisor(work, decision(task("t1", "architect", "Build a team that looks at things.")), decision())
    script.agent("t1", calls(("look", {})), Answer("It is there."))
    script.agent("t2", calls(("look", {})), Answer("It is there."))
    script.reviewer(verdict("APPROVED"))
    script.designer(Answer(design_json("office")))
    script.qa(Answer("It is there [1]."))
    async with ModelServer(script) as model, open_platform(
        database_url, model, {"office": office}, folder, **settings
    ) as platform:  # fmt: skip
        yield platform


def texts(bodies: list[Body], *roles: str) -> list[str]:
    return [str(message) for body in bodies for message in body["messages"] if message["role"] in roles]


async def ask_both(platform: Platform) -> list[Body]:
    """Send a request to work and one to build; return all that the model was sent."""
    assert (await platform.ask("Look.", thread="a")).status == "succeeded"
    await platform.ask("Build a team.", thread="b")
    bodies = platform.model.bodies
    assert {"supervisor_decision", "verdict", "designer"} <= set(map(schema_name, bodies))
    return bodies


async def test_texts_of_a_server_stand_in_user_messages_as_data(database_url: str, tmp_path: Path) -> None:
    async with opened(database_url, tmp_path, [LOOK], "A marked office.") as platform:
        bodies = await ask_both(platform)

    system, user = ([text for text in texts(bodies, role) if "marked" in text] for role in ("system", "user"))
    agents = [body for body in bodies if '<task id="t1">' in str(body) and body.get("tools")]
    assert any("A marked office" in text for text in user)  # the supervisor chooses by it
    assert any("A marked office" in text for text in texts(agents, "user"))  # and the agent of the server knows it
    assert system == []


async def test_nothing_of_a_quarantined_tool_or_of_hiding_instructions_is_in_a_prompt(
    database_url: str, tmp_path: Path
) -> None:
    async with opened(database_url, tmp_path, [PLAIN, *HIDING], "A marked office.\u202e") as platform:
        bodies = await ask_both(platform)

    assert [body for body in bodies if "marked" in json.dumps(body).lower()] == []
    assert any("office.look" in str(body) for body in bodies)
