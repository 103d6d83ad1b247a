"""What each error of a tool means for whoever calls it: what is tried again, how the run ends, and what is told.

The table was written from what is promised (`docs/reference/servers.md`, `docs/guides/api.md`, `docs/guides/keys.md`):

- An error goes back to the agent as an observation, which it can correct within its limits: in another attempt, or
  with CrewAI in its next answer. If it can't, the task fails with the error, and the supervisor decides again.
- A call that was never sent, and a read whose server ended, is made once more. Nothing else is repeated by itself.
- Words after nothing but failed calls are no result.
- A call whose arguments the schema refuses, or that a person refuses, is not made, but counts. One of a tool that
  isn't there, or that the key may not call, doesn't.
- No agent whose server is switched off gets a task.
- Agents without tools call none. `POST /execute` makes one call, and says why it failed.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
import pytest_asyncio

from starling.core.agents import LLMAgentConfig
from starling.core.errors import NotFoundError
from starling.core.principal import Grant
from starling.core.runs import DirectCall
from starling.infra.postgres.kill_switches import Target
from tests.support.error_table import (
    ACTOR,
    FailingModel,
    Node,
    Row,
    failing_platform,
    for_new_tenant,
    team,
)
from tests.support.gateway_harness import SERVERS
from tests.support.interrupted_runs import answer_interrupts, execute_run, open_interrupts
from tests.support.model_script import Answer, Rule, When
from tests.support.platform import Platform, Workbench, calls, decision, task

pytestmark = pytest.mark.asyncio(loop_scope="module")

# error          | of the tool that is called
# caller         | who calls it; `agent` gets the whole request, without a supervisor
# then           | what follows: the same again, a better call, or words
# made           | calls that reached the server; `-` where it doesn't tell
# calls, tools   | of models and tools, of the whole run; `-` without one
# told           | is in the reply
TOOL_ERRORS = """
error        | caller     | then   | made | calls | tools | status    | told
failure      | specialist | better | 2    | 5     | 2     | succeeded | All is well
failure      | specialist | same   | 2    | 4     | 2     | failed    | the disk is on fire
failure      | specialist | words  | 1    | 4     | 1     | failed    | the disk is on fire
failure      | custom     | better | 2    | 5     | 2     | succeeded | All is well
failure      | custom     | same   | 2    | 4     | 2     | failed    | the disk is on fire
failure      | agent      | better | 2    | 4     | 2     | succeeded | All is well
failure      | agent      | same   | 2    | 2     | 2     | failed    | the disk is on fire
failure      | member     | better | 2    | 8     | 2     | succeeded | All is well
failure      | member     | same   | 2    | 6     | 2     | failed    | the disk is on fire
failure      | crew       | better | 2    | 9     | 2     | succeeded | All is well
failure      | crew       | same   | 6    | 12    | 6     | failed    | the disk is on fire
failure      | crew       | words  | 1    | 7     | 1     | failed    | the disk is on fire
failure      | execute    | same   | 1    | 0     | -     | error     | the disk is on fire
timeout      | specialist | same   | 2    | 4     | 2     | failed    | within 2 s
timeout      | custom     | same   | 2    | 4     | 2     | failed    | within 2 s
timeout      | agent      | same   | 2    | 2     | 2     | failed    | within 2 s
timeout      | member     | same   | 2    | 6     | 2     | failed    | within 2 s
timeout      | execute    | same   | 1    | 0     | -     | error     | within 2 s
unknown tool | specialist | better | 1    | 5     | 1     | succeeded | All is well
unknown tool | specialist | same   | 0    | 4     | 0     | failed    | dance
unknown tool | custom     | same   | 0    | 4     | 0     | failed    | dance
unknown tool | agent      | same   | 0    | 2     | 0     | failed    | dance
unknown tool | member     | same   | 0    | 6     | 0     | failed    | dance
unknown tool | crew       | better | 1    | 9     | 1     | succeeded | All is well
unknown tool | execute    | same   | 0    | 0     | -     | not found | dance
unknown tool | coder      | words  | 0    | 4     | 0     | succeeded | In short
unknown tool | coder      | same   | 0    | 4     | 0     | failed    | do t1
bad argument | specialist | better | 1    | 5     | 2     | succeeded | All is well
bad argument | custom     | same   | 0    | 4     | 2     | failed    | thing
bad argument | agent      | same   | 0    | 2     | 2     | failed    | thing
bad argument | member     | same   | 0    | 6     | 2     | failed    | thing
bad argument | crew       | better | 1    | 9     | 2     | succeeded | All is well
bad argument | execute    | same   | 0    | 0     | -     | error     | thing
server dies  | specialist | same   | 4    | 4     | 2     | failed    | ended
server dies  | custom     | same   | 4    | 4     | 2     | failed    | ended
server dies  | agent      | same   | 4    | 2     | 2     | failed    | ended
server dies  | member     | same   | 4    | 6     | 2     | failed    | ended
server dies  | execute    | same   | 2    | 0     | -     | error     | ended
server away  | specialist | same   | 0    | 4     | 2     | failed    | exit code 3
server away  | custom     | same   | 0    | 4     | 2     | failed    | exit code 3
server away  | agent      | same   | 0    | 2     | 2     | failed    | exit code 3
server away  | member     | same   | 0    | 6     | 2     | failed    | exit code 3
server away  | execute    | same   | 0    | 0     | -     | error     | exit code 3
bad result   | specialist | same   | -    | 4     | 2     | failed    | output schema
bad result   | custom     | same   | -    | 4     | 2     | failed    | output schema
bad result   | agent      | same   | -    | 2     | 2     | failed    | output schema
bad result   | member     | same   | -    | 6     | 2     | failed    | output schema
bad result   | execute    | same   | -    | 0     | -     | error     | output schema
not granted  | specialist | better | 1    | 5     | 1     | succeeded | All is well
not granted  | custom     | same   | 0    | 4     | 0     | failed    | fail
not granted  | agent      | same   | 0    | 2     | 0     | failed    | fail
not granted  | member     | same   | 0    | 6     | 0     | failed    | fail
not granted  | execute    | same   | 0    | 0     | -     | not found | bench.fail
switched off | specialist | same   | 0    | 1     | 0     | failed    | It leaks.
switched off | custom     | same   | 0    | 1     | 0     | failed    | It leaks.
switched off | agent      | same   | 0    | 0     | 0     | failed    | It leaks.
switched off | member     | same   | 0    | 1     | 0     | failed    | It leaks.
switched off | execute    | same   | 0    | 0     | -     | error     | It leaks.
refused      | specialist | same   | 0    | 4     | 2     | failed    | Not today.
refused      | custom     | same   | 0    | 4     | 2     | failed    | Not today.
refused      | agent      | same   | 0    | 2     | 2     | failed    | Not today.
refused      | member     | same   | 0    | 6     | 2     | failed    | Not today.
refused      | crew       | better | 1    | 9     | 2     | succeeded | All is well
"""


@dataclass(frozen=True, slots=True)
class ToolError:
    """A call that fails: of a tool of a server, which is one for each caller where its failures count together."""

    tool: str
    arguments: Mapping[str, Any]
    server: str = "bench"

    def of(self, caller: str) -> str:
        return self.server if self.server in ("bench", "gated", "broken") else f"{self.server}_{caller}"


FIRE = {"why": "the disk is on fire"}
ERRORS = {
    "failure": ToolError("fail", FIRE),
    "timeout": ToolError("wait", {"place": "door"}, "slow"),
    "unknown tool": ToolError("dance", {}),
    "bad argument": ToolError("look", {"size": 2}),
    "server dies": ToolError("act", {}, "dying"),
    "server away": ToolError("act", {}, "crashing-later"),
    "bad result": ToolError("act", {}, "broken"),
    "not granted": ToolError("fail", FIRE),
    "switched off": ToolError("look", {"thing": "disk"}),
    "refused": ToolError("change", {"thing": "disk"}, "gated"),
}
CALLERS = ("specialist", "custom", "agent", "member", "execute")
LOOK, WORDS = calls(("look", {"thing": "disk"})), Answer("In short: yes.")

type Seen = tuple[str, str, str, str]


@pytest.fixture(scope="module")
def failing() -> FailingModel:
    return FailingModel()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def module_platform(
    module_database_url: str, failing: FailingModel, workbench_process: Workbench, tmp_path_factory: Any
) -> AsyncGenerator[Platform]:
    folder = tmp_path_factory.mktemp("platform")

    def misbehaving(how: str, record: str) -> dict[str, Any]:
        args = [str(SERVERS / "misbehaving.py"), how, str(folder / record)]
        return {"command": sys.executable, "args": args, "x-starling": {"effect": "read"}}

    bench = workbench_process.as_server("read")
    slow = {**bench, "x-starling": {"effect": "read", "timeout": 2}}
    tools = {"change": {"effect": "unsafe"}, "look": {"effect": "read"}}
    gated = {**bench, "x-starling": {"tools": tools, "approval": "unsafe"}}
    servers = {"gated": gated, "broken": misbehaving("breaking-promise", "broken")}
    servers |= {f"slow_{caller}": slow for caller in CALLERS}
    servers |= {f"{how}_{it}": misbehaving(how, f"{how}_{it}") for how in ("dying", "crashing-later") for it in CALLERS}
    async with failing_platform(module_database_url, failing, workbench_process, folder, servers) as platform:
        yield platform


@pytest.fixture
def platform(module_platform: Platform, workbench: Workbench) -> Platform:
    return for_new_tenant(module_platform)


async def agent_of(platform: Platform, caller: str, server: str) -> str:
    """Return the agent that a supervisor gives the task to, so that the caller calls the server's tools."""
    match caller:
        case "custom":
            watcher = LLMAgentConfig(id="watcher", behavior_template="You watch.", tools=(f"{server}.*",))
            await platform.services.agents.create(platform.caller, watcher, ACTOR)
            return "watcher"
        case "member" | "crew":
            roster = await platform.services.storage.rosters.roster(
                platform.worker_runtime.epoch, platform.caller.tenant
            )
            tools = [tool.full_name for tool in roster.cards[f"mcp_agent_{server}"].tools]
            await platform.activate(team("machines", server, tools, runtime="crewai" if caller == "crew" else "native"))
            return "machines"
        case "coder":
            return "coder"
        case _:
            return f"mcp_agent_{server}"


async def switch_off(platform: Platform, server: str) -> None:
    """Switch a server off for the tenant, and return once the process knows it."""
    tenant = platform.caller.tenant
    await platform.services.storage.switches.off(Target("server", server, tenant), "It leaks.", ACTOR)
    async with asyncio.timeout(60):
        while server not in platform.worker_runtime.halts.named("server", tenant):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def executed(platform: Platform, server: str, error: ToolError) -> Seen:
    """Make a single call."""
    tools = replace(platform.services.tools, gateway=platform.worker_runtime.gateway)
    call = DirectCall(tool=f"{server}.{error.tool}", arguments=dict(error.arguments))
    try:
        said = await tools.execute(platform.caller, call, 30)
    except NotFoundError as refused:
        return "0", "-", "not found", str(refused)
    return "0", "-", said.status, str(said.output)


async def worked_on(platform: Platform, failing: FailingModel, row: Row, name: str, error: ToolError) -> Seen:
    """Have a run make the call, and go on as the row says."""
    own, wrong = When(contains='<task id="t1">'), calls((error.tool, dict(error.arguments)))
    later = {"same": wrong, "better": LOOK, "words": WORDS}[row["then"]]
    rules = [Rule(wrong, replace(own, nth=1)), Rule(later, replace(own, nth=1) if row["then"] == "better" else own)]
    failing.begin(Node([], [decision(task("t1", name))]), None, "", *rules)
    key = await platform.accept("How is it?", **({"agent": name} if row["caller"] == "agent" else {}))
    await execute_run(platform, key)
    while await open_interrupts(platform, key):
        await answer_interrupts(platform, key, approved=False, note="Not today.")
        await execute_run(platform, key)
    stream = await platform.stream(key)
    assert stream.codes == []
    return (
        str(stream.done["usage"]["model_calls"]),
        str(stream.done["usage"]["tool_calls"]),
        stream.status,
        stream.reply,
    )


@pytest.mark.parametrize("row", Row.all(TOOL_ERRORS), ids=str)
async def test_tool_error_goes_back_to_whoever_called(
    platform: Platform, failing: FailingModel, workbench: Workbench, row: Row
) -> None:
    error, caller = ERRORS[row["error"]], row["caller"]
    server = error.of(caller)
    name = await agent_of(platform, caller, server)
    if row["error"] == "switched off":
        await switch_off(platform, server)
    if row["error"] == "not granted":
        grant = Grant(tools=frozenset({f"{server}.look"}))
        platform = replace(platform, caller=replace(platform.caller, grant=grant))

    if caller == "execute":
        *seen, told = await executed(platform, server, error)
    else:
        *seen, told = await worked_on(platform, failing, row, name, error)

    record = platform.settings.data_dir / server
    made = len(workbench.done()) + (record.read_text().count("called") if record.exists() else 0)
    expected = [row[column] for column in ("made", "calls", "tools", "status")]
    assert [str(made) if row["made"] != "-" else "-", *seen] == expected, told
    assert row["told"] in told
