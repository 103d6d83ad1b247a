"""Known secrets neither reach a tool nor come back from one."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from mcp_gateway.configuration.servers import server_of
from mcp_gateway.configuration.variable_expansion import secret_values
from mcp_gateway.path.platform_secrets import SecretArguments, SecretResults
from mcp_gateway.registration.known_servers import Directory
from starling.core.artifacts import Binary
from starling.core.clock import Deadline, SystemClock
from starling.core.json import Json, JsonObject
from starling.core.tool_calls import Effect, Observation
from starling.core.tools import CallRecord, ServerListing, ToolCall, ToolDefinition, ToolNotice, ToolOutcome

KEY, PASSWORD = "tavily-4711-key", "inThePool1"
TOOL = ToolDefinition("shop", "order", "", {"type": "object"}, None, Effect.UNSAFE, "hash")


@dataclass
class Tool:
    """The rest of the path: gives an answer and remembers what it was asked."""

    answer: ToolOutcome = field(default_factory=lambda: ToolOutcome(Observation.COMPLETED, "done"))
    calls: list[ToolCall] = field(default_factory=list[ToolCall])

    async def __call__(self, call: ToolCall, deadline: Deadline, record: CallRecord | None) -> ToolOutcome:
        self.calls.append(call)
        return self.answer


def directory(**options: Any) -> Directory:
    known = Directory({"database_url": f"postgresql://user:{PASSWORD}@db/x"}, {"TAVILY_KEY": KEY})
    config = server_of({"command": "shop", "env": {"KEY": "${TAVILY_KEY}"}, "x-starling": options})
    known.replace({"shop": config}, [ServerListing("shop", "", config.hash, "ready", (TOOL,))])
    return known


async def called(stage: Any, **arguments: Json) -> ToolOutcome:
    return await stage(ToolCall("t1.0.0", "run", "t1", TOOL, arguments), Deadline(SystemClock(), 1), None)


@pytest.mark.parametrize("observation", [Observation.COMPLETED, Observation.TOOL_ERROR, Observation.CONNECTION_LOST])
async def test_known_secrets_are_taken_out_of_text_and_data_of_every_outcome(observation: Observation) -> None:
    data: JsonObject = {"env": {KEY: [PASSWORD, 1]}, "parts": [KEY[:7], KEY[7:]]}

    outcome = await called(SecretResults(directory(), Tool(ToolOutcome(observation, f"{KEY} {PASSWORD}", data))))

    assert (outcome.text, outcome.observation) == ("*** ***", observation)
    assert outcome.data == {"env": {"***": ["***", 1]}, "parts": ["***", "***"]}


async def test_known_secrets_are_taken_out_of_notices_also_where_they_are_cut_off() -> None:
    heard: list[ToolNotice] = []
    tool = Tool()
    call = ToolCall("t1.0.0", "run", "t1", TOOL, {}, on_notice=heard.append)

    await SecretResults(directory(), tool)(call, Deadline(SystemClock(), 1), None)
    assert tool.calls[0].on_notice is not None
    tool.calls[0].on_notice(ToolNotice(f"with {PASSWORD}", progress=1, logger=f"log {PASSWORD[:9]}"))

    assert heard == [ToolNotice("with ***", progress=1, logger="log ***")]


async def test_links_whose_address_has_a_secret_are_left_out() -> None:
    plain = "https://shop.example/1"
    answer = ToolOutcome(Observation.COMPLETED, "two", resources=(plain, f"https://shop.example/?key={KEY}"))

    outcome = await called(SecretResults(directory(), Tool(answer)))

    assert outcome.resources == (plain,)


async def test_binary_part_with_a_secret_is_dropped_with_the_reason_in_its_note() -> None:
    named = [(f"{number}" * 64, content) for number, content in enumerate((f"\xff{KEY}".encode(), b"\xff fine"))]
    binaries = tuple(Binary(name, "x/y", content) for name, content in named)
    text = "".join(f"[image, x/y, 9 bytes, artifact {name}]" for name, _ in named)
    answer = ToolOutcome(Observation.COMPLETED, text, binaries=binaries)

    outcome = await called(SecretResults(directory(), Tool(answer)))

    assert outcome.binaries == binaries[1:]
    assert outcome.text.startswith("[image, x/y, 9 bytes, not kept: it contains a secret of the platform][image, ")
    assert outcome.text.endswith(f"artifact {named[1][0]}]")


async def test_result_without_secrets_is_unchanged() -> None:
    answer = ToolOutcome(Observation.COMPLETED, "fine", {"a": 1})

    assert await called(SecretResults(directory(), Tool(answer))) is answer


@pytest.mark.parametrize("value", [KEY, f"Bearer {PASSWORD}", {"deep": [KEY.encode().hex()]}])
async def test_call_with_a_secret_in_its_arguments_is_not_made(value: Json) -> None:
    tool = Tool()

    outcome = await called(SecretArguments(directory(), tool), value=value)

    assert (outcome.code, outcome.observation, tool.calls) == ("secret_in_arguments", Observation.NOT_SENT, [])
    assert KEY not in outcome.text


async def test_secret_that_the_settings_of_a_tool_name_reaches_it() -> None:
    tool = Tool()
    stage = SecretArguments(directory(tools={"order": {"secrets": ["TAVILY_KEY"]}}), tool)

    assert (await called(stage, key=KEY)).text == "done"
    assert (await called(stage, key=PASSWORD)).code == "secret_in_arguments"
    assert len(tool.calls) == 1


async def test_variable_that_is_marked_plain_is_no_secret() -> None:
    known = directory(plain=["TAVILY_KEY"])

    assert (await called(SecretResults(known, Tool(ToolOutcome(Observation.COMPLETED, KEY))))).text == KEY


def test_secrets_of_configurations_are_references_passwords_and_values_named_so() -> None:
    config = {
        "local": server_of(
            {
                "command": "${COMMAND}",
                "args": ["${ARGUMENT}"],
                "env": {
                    "A": "x-${A_KEY:-a-default}",
                    "API_TOKEN": "written-out",
                    "MODE": "in the open",
                    "H": "${HOME}",
                },
            }
        ),
        "remote": server_of(
            {
                "url": "https://me:inaddress99@shop.example/${PATH_KEY}",
                "headers": {"Authorization": "Bearer in-a-header"},
            }
        ),
        "other": server_of({"url": "https://me:inaddress98@shop.example/"}),
    }

    found = secret_values(config, {"A_KEY": "of-the-environment", "PATH_KEY": "in-the-path", "HOME": "/home/me"})

    assert found == {
        "A_KEY": "of-the-environment",
        "local.API_TOKEN": "written-out",
        "PATH_KEY": "in-the-path",
        "remote.Authorization": "in-a-header",
        "remote.url": "inaddress99",
        "other.url": "inaddress98",
    }
