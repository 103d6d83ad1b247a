"""What each error of a model or a tool means at each node: what is asked again, of whom, and how the run ends.

The tables were written from what is promised, before the code was looked at:

- `timeout`: no second try of the same model, which is skipped from then on; the next model, then the router's.
- `invalid` (no chat completion at all): one more try, by the smaller model or with what was wrong.
- `connection`, `500`, `429` (with Retry-After): two more tries, then the smaller model with as many.
- `400`: no second try, since the endpoint refuses; the smaller model.
- With the default `model_wait_seconds` the models that failed for now, all but those of `invalid` and `400`, are asked
  again for a minute (`test_model_waits.py`); the platforms here wait for none.
- Then the node goes on without the model. The supervisor: ready tasks run, else the generalist gets the request, else
  the answer is made of what is there. A task fails, and the supervisor decides again. Nothing is approved without a
  verdict. The answer is the results as they are.

Where a table was wrong at first: a team's answer is written and reviewed on its own (two calls more), a call with
arguments that the schema refuses counts as a call, and a read whose server died is sent once more to the new process.
Where the code was: agents and the final answer gave up at the first `invalid`, and at an empty answer of an agent.
Once tasks were tried, the generalist gets nothing (`with nothing`): without tools it adds nothing to them.
"""

import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, Self

import pytest
import pytest_asyncio

from starling.core.principal import Principal, Scope
from starling.core.teams.stars import StarSpec
from tests.integration.brain.test_teams import BENCH_WORKER
from tests.support.gateway_harness import SERVERS
from tests.support.model_script import Answer, Body, Rule, Script, When
from tests.support.model_server import ModelServer
from tests.support.platform import BENCH, Platform, Workbench, calls, decision, open_platform, task, verdict

pytestmark = pytest.mark.asyncio(loop_scope="module")

# node           | which decision, or which agent, fails
# error          | see above
# lasts          | `once`; `large`: at the large model alone; `always`: at both
# asked          | the models that the node asked, each with its first letter: Large and Tiny, which is the router's
# calls, tools   | of the whole run
# codes          | of warnings and errors; `model` tells of other tries, and is left out where the node gives up;
#                | and so is `unplanned`, where the generalist got the request
MODEL_ERRORS = """
node            | error      | lasts  | asked  | calls | tools | status    | codes                | reply
first decision  | timeout    | once   | LT     | 5     | 1     | succeeded | model                | All is well
first decision  | invalid    | once   | LL     | 5     | 1     | succeeded | llm_invalid_response | All is well
first decision  | connection | once   | LL     | 5     | 1     | succeeded | model                | All is well
first decision  | 500        | once   | LL     | 5     | 1     | succeeded | model                | All is well
first decision  | 429        | once   | LL     | 5     | 1     | succeeded | model                | All is well
first decision  | 400        | once   | LT     | 5     | 1     | succeeded | model                | All is well
first decision  | connection | large  | LLLT   | 7     | 1     | succeeded | model                | All is well
first decision  | 500        | large  | LLLT   | 7     | 1     | succeeded | model                | All is well
first decision  | 429        | large  | LLLT   | 7     | 1     | succeeded | model                | All is well
first decision  | timeout    | always | LT     | 4     | 0     | succeeded | llm_timeout          | In short
first decision  | invalid    | always | LL     | 4     | 0     | succeeded | llm_invalid_response | In short
first decision  | connection | always | LLLTTT | 8     | 0     | succeeded | llm_connection_error | In short
first decision  | 500        | always | LLLTTT | 8     | 0     | succeeded | llm_server_error     | In short
first decision  | 429        | always | LLLTTT | 8     | 0     | succeeded | llm_server_error     | In short
first decision  | 400        | always | LT     | 4     | 0     | succeeded | llm_server_error     | In short
with ready ones | timeout    | always | LT     | 10    | 2     | succeeded | llm_timeout          | All is well
with ready ones | invalid    | always | LL     | 10    | 2     | succeeded | llm_invalid_response | All is well
with ready ones | connection | always | LLLTTT | 14    | 2     | succeeded | llm_connection_error | All is well
with ready ones | 500        | always | LLLTTT | 14    | 2     | succeeded | llm_server_error     | All is well
with ready ones | 429        | always | LLLTTT | 14    | 2     | succeeded | llm_server_error     | All is well
with ready ones | 400        | always | LT     | 10    | 2     | succeeded | llm_server_error     | All is well
with results    | timeout    | always | LT     | 8     | 1     | succeeded | llm_timeout          | All is well
with results    | invalid    | always | LL     | 8     | 1     | succeeded | llm_invalid_response | All is well
with results    | connection | always | LLLTTT | 12    | 1     | succeeded | llm_connection_error | All is well
with results    | 500        | always | LLLTTT | 12    | 1     | succeeded | llm_server_error     | All is well
with results    | 429        | always | LLLTTT | 12    | 1     | succeeded | llm_server_error     | All is well
with results    | 400        | always | LT     | 8     | 1     | succeeded | llm_server_error     | All is well
with nothing    | timeout    | always | LT     | 5     | 0     | failed    | llm_timeout          | do t1
with nothing    | invalid    | always | LL     | 5     | 0     | failed    | llm_invalid_response | do t1
with nothing    | connection | always | LLLTTT | 9     | 0     | failed    | llm_connection_error | do t1
with nothing    | 500        | always | LLLTTT | 9     | 0     | failed    | llm_server_error     | do t1
with nothing    | 429        | always | LLLTTT | 9     | 0     | failed    | llm_server_error     | do t1
with nothing    | 400        | always | LT     | 5     | 0     | failed    | llm_server_error     | do t1
specialist      | invalid    | once   | TT     | 5     | 1     | succeeded | model                | All is well
specialist      | connection | once   | TT     | 5     | 1     | succeeded | model                | All is well
specialist      | 500        | once   | TT     | 5     | 1     | succeeded | model                | All is well
specialist      | 429        | once   | TT     | 5     | 1     | succeeded | model                | All is well
specialist      | timeout    | always | T      | 3     | 0     | failed    | llm_timeout          | do t1
specialist      | invalid    | always | TT     | 4     | 0     | failed    | llm_invalid_response | do t1
specialist      | connection | always | TTT    | 5     | 0     | failed    | llm_connection_error | do t1
specialist      | 500        | always | TTT    | 5     | 0     | failed    | llm_server_error     | do t1
specialist      | 429        | always | TTT    | 5     | 0     | failed    | llm_server_error     | do t1
specialist      | 400        | always | T      | 3     | 0     | failed    | llm_server_error     | do t1
generalist      | timeout    | once   | LT     | 4     | 0     | succeeded | model                | In short
generalist      | invalid    | once   | LT     | 4     | 0     | succeeded | model                | In short
generalist      | connection | once   | LL     | 4     | 0     | succeeded | model                | In short
generalist      | 500        | large  | LLLT   | 6     | 0     | succeeded | model                | In short
generalist      | 429        | once   | LL     | 4     | 0     | succeeded | model                | In short
generalist      | 400        | once   | LT     | 4     | 0     | succeeded | model                | In short
generalist      | timeout    | always | LT     | 4     | 0     | failed    | llm_timeout          | do t1
generalist      | invalid    | always | LT     | 4     | 0     | failed    | llm_invalid_response | do t1
generalist      | connection | always | LLLTTT | 8     | 0     | failed    | llm_connection_error | do t1
generalist      | 500        | always | LLLTTT | 8     | 0     | failed    | llm_server_error     | do t1
generalist      | 429        | always | LLLTTT | 8     | 0     | failed    | llm_server_error     | do t1
generalist      | 400        | always | LT     | 4     | 0     | failed    | llm_server_error     | do t1
reviewer        | timeout    | once   | LT     | 5     | 1     | succeeded | model                | All is well
reviewer        | invalid    | once   | LL     | 5     | 1     | succeeded | llm_invalid_response | All is well
reviewer        | connection | large  | LLLT   | 7     | 1     | succeeded | model                | All is well
reviewer        | timeout    | always | LT     | 5     | 1     | failed    | llm_timeout          | do t1
reviewer        | invalid    | always | LL     | 5     | 1     | failed    | llm_invalid_response | do t1
reviewer        | connection | always | LLLTTT | 9     | 1     | failed    | llm_connection_error | do t1
reviewer        | 500        | always | LLLTTT | 9     | 1     | failed    | llm_server_error     | do t1
reviewer        | 429        | always | LLLTTT | 9     | 1     | failed    | llm_server_error     | do t1
reviewer        | 400        | always | LT     | 5     | 1     | failed    | llm_server_error     | do t1
answer          | timeout    | once   | LT     | 5     | 1     | succeeded | model                | All is well
answer          | invalid    | once   | LT     | 5     | 1     | succeeded | model                | All is well
answer          | connection | large  | LLLT   | 7     | 1     | succeeded | model                | All is well
answer          | timeout    | always | LT     | 5     | 1     | succeeded | llm_timeout          | the disk is fine
answer          | invalid    | always | LT     | 5     | 1     | succeeded | llm_invalid_response | the disk is fine
answer          | connection | always | LLLTTT | 9     | 1     | succeeded | llm_connection_error | the disk is fine
answer          | 500        | always | LLLTTT | 9     | 1     | succeeded | llm_server_error     | the disk is fine
answer          | 429        | always | LLLTTT | 9     | 1     | succeeded | llm_server_error     | the disk is fine
answer          | 400        | always | LT     | 5     | 1     | succeeded | llm_server_error     | the disk is fine
team            | invalid    | once   | LL     | 8     | 1     | succeeded | llm_invalid_response | All is well
team            | timeout    | always | LT     | 4     | 0     | failed    | llm_timeout          | do t1
team            | invalid    | always | LL     | 4     | 0     | failed    | llm_invalid_response | do t1
team            | connection | always | LLLTTT | 8     | 0     | failed    | llm_connection_error | do t1
team            | 500        | always | LLLTTT | 8     | 0     | failed    | llm_server_error     | do t1
team            | 429        | always | LLLTTT | 8     | 0     | failed    | llm_server_error     | do t1
team            | 400        | always | LT     | 4     | 0     | failed    | llm_server_error     | do t1
designer        | timeout    | always | LT     | 2     | 0     | failed    | llm_timeout          | architect, 1 attempt
designer        | invalid    | always | LL     | 2     | 0     | failed    | llm_invalid_response | architect, 1 attempt
designer        | connection | always | LLLTTT | 6     | 0     | failed    | llm_connection_error | architect, 1 attempt
designer        | 500        | always | LLLTTT | 6     | 0     | failed    | llm_server_error     | architect, 1 attempt
designer        | 429        | always | LLLTTT | 6     | 0     | failed    | llm_server_error     | architect, 1 attempt
designer        | 400        | always | LT     | 2     | 0     | failed    | llm_server_error     | architect, 1 attempt
"""

# error          | of the tool that the agent calls
# first, second  | what its two attempts ask for; a failed call goes back to it with what is wrong
# made           | calls that reached the server
# tools          | calls that were made, also those whose arguments the schema refuses; none of a tool that isn't there
TOOL_ERRORS = """
error           | first      | second | made   | calls | tools | status    | codes                | reply
failure         | fail       | look   | 2      | 5     | 2     | succeeded |                      | All is well
failure         | fail       | fail   | 2      | 4     | 2     | failed    |                      | the disk is on fire
timeout         | wait       | look   | 2      | 5     | 2     | succeeded |                      | All is well
timeout         | wait       | wait   | 2      | 4     | 2     | failed    |                      | within 2 s
unknown tool    | dance      | look   | 1      | 5     | 1     | succeeded |                      | All is well
unknown tool    | dance      | dance  | 0      | 4     | 0     | failed    |                      | dance
bad argument    | look2      | look   | 1      | 5     | 2     | succeeded |                      | All is well
server dies     | act        | act    | 4      | 4     | 2     | failed    |                      | ended
"""

LARGE, TINY = "large", "tiny"
ROLES = {"model_router": [f"scripted:{TINY}"], "model_reasoning": [f"scripted:{LARGE}"]}
CALL_SECONDS = 2.0
TEAM = StarSpec(name="machines", purpose="Looks after machines.", members=(BENCH_WORKER,))
ERRORS = {
    "timeout": Answer(hold="never"),
    "invalid": Answer(body="<html>busy</html>", content_type="text/html"),
    "connection": Answer("half an answer", cut_after=1),
    "500": Answer(status=500, body='{"error": {"message": "not today"}}'),
    "429": Answer(status=429, headers={"Retry-After": "0.01"}, body='{"error": {"message": "too many"}}'),
    "400": Answer(status=400, body='{"error": {"message": "the input is too long"}}'),
}
_NUMBERS = count(1)


@dataclass(frozen=True, slots=True)
class Node:
    """Which requests are those of a node, after the first `spared`, and the plan by which the run comes to it."""

    when: When
    plan: Sequence[Answer]
    spared: int = 0
    agent: str | None = None


DECISION = When(schema="supervisor_decision")
LOOKED = decision(task("t1", BENCH))
FIRST_FAILS = task("t0", BENCH), task("t1", BENCH)
NODES = {
    "first decision": Node(DECISION, [LOOKED]),
    "with ready ones": Node(DECISION, [decision(*FIRST_FAILS, task("t2", BENCH, after=["t1"]))], 1),
    "with results": Node(DECISION, [decision(*FIRST_FAILS)], 1),
    "with nothing": Node(DECISION, [decision(task("t0", BENCH, "do t1"))], 1),
    "specialist": Node(When(contains='<task id="t1"', tool="look"), [LOOKED]),
    "generalist": Node(When(contains='<task id="t1">'), [decision(task("t1", "generalist"))]),
    "reviewer": Node(When(schema="verdict"), [LOOKED]),
    "answer": Node(When(contains="You write the final answer"), [LOOKED]),
    "team": Node(When(contains="You supervise the team in <team>"), [decision(task("t1", "machines"))]),
    "designer": Node(When(schema="designer"), [], agent="architect"),
}


@dataclass(slots=True)
class FailingModel:
    """Answers as a sound model does, but for the requests of one node."""

    rules: Script = field(default_factory=Script)
    node: Node | None = None
    error: Answer | None = None
    lasts: str = ""
    asked: str = ""
    _seen: int = 0

    def begin(self, node: Node | None = None, error: Answer | None = None, lasts: str = "", *rules: Rule) -> None:
        self.node, self.error, self.lasts, self.asked, self._seen = node, error, lasts, "", 0
        plan = [Rule(answer, replace(DECISION, nth=1)) for answer in (node.plan if node else ())]
        in_team = Rule(decision(task("t1", "looker")), When(contains="You supervise the team in <team>", nth=1))
        self.rules = Script(
            *rules,
            in_team,
            *plan,
            Rule(decision(), DECISION),
            Rule(verdict("APPROVED"), When(schema="verdict")),
            Rule(Answer("I can't."), When(contains='<task id="t0"')),
            Rule(calls(("look", {"thing": "disk"})), When(tool="look")),
            Rule(Answer("All is well [1]."), When(contains="You write the final answer")),
            Rule(Answer("In short: yes."), When(contains='<task id="t1"')),
        )

    async def __call__(self, body: Body) -> Answer:
        if self.node is None or self.error is None or not self.node.when.fits(body):
            return await self.rules(body)
        self._seen += 1
        if self._seen <= self.node.spared:
            return await self.rules(body)
        self.asked += body["model"][0].upper()
        fails = {"once": len(self.asked) == 1, "large": body["model"] == LARGE, "always": True}[self.lasts]
        return self.error if fails else await self.rules(body)


@dataclass(frozen=True, slots=True)
class Row:
    cells: Mapping[str, str]

    @classmethod
    def all(cls, table: str) -> Sequence[Self]:
        names, *rows = ([cell.strip() for cell in line.split("|")] for line in table.strip().splitlines())
        return [cls(dict(zip(names, row, strict=True))) for row in rows]

    def __getitem__(self, name: str) -> str:
        return self.cells[name]

    def __str__(self) -> str:
        return " ".join([*self.cells.values()][:3])

    @property
    def codes(self) -> set[str]:
        return set(self["codes"].split())


@pytest.fixture(scope="module")
def failing() -> FailingModel:
    return FailingModel()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def module_platform(
    module_database_url: str, failing: FailingModel, workbench_process: Workbench, tmp_path_factory: Any
) -> AsyncGenerator[Platform]:
    folder: Path = tmp_path_factory.mktemp("platform")
    servers = {
        "bench": workbench_process.as_server("read"),
        "dying": {
            "command": sys.executable,
            "args": [str(SERVERS / "misbehaving.py"), "dying", str(folder / "dying")],
            "x-starling": {"effect": "read"},
        },
    }
    limits: dict[str, Any] = {"model_call_seconds": CALL_SECONDS, "tool_call_seconds": 2.0}
    async with (
        ModelServer(failing) as model,
        open_platform(module_database_url, model, servers, folder, roles=ROLES, **limits) as platform,
    ):
        yield platform


def degraded_models(platform: Platform) -> dict[str, Any]:
    """Return the models that are skipped for a while."""
    models: Any = platform.brain._parts.models  # pyright: ignore[reportPrivateUsage]
    return models.inner._memory.degraded


@pytest.fixture
async def platform(module_platform: Platform, workbench: Workbench) -> Platform:
    """The platform for a tenant of this test, whose models have not failed yet."""
    module_platform.model.forget()
    degraded_models(module_platform).clear()
    return replace(module_platform, caller=Principal(f"tenant-{next(_NUMBERS)}", "", frozenset(Scope)))


@pytest.mark.parametrize("row", Row.all(MODEL_ERRORS), ids=str)
async def test_model_error_at_a_node(platform: Platform, failing: FailingModel, row: Row) -> None:
    node = NODES[row["node"]]
    failing.begin(node, ERRORS[row["error"]], row["lasts"])
    if row["node"] == "team":
        await platform.activate(TEAM)

    stream = await platform.ask("How is it?", **({"agent": node.agent} if node.agent else {}))

    usage = stream.done["usage"]
    is_unplanned = row["reply"] == "In short" and row["node"] == "first decision"
    expected = {*row.codes, *(["unplanned"] if is_unplanned else ())}
    codes = {code for code in stream.codes if code != "model" or "model" in row.codes}
    seen = [failing.asked, usage["model_calls"], usage["tool_calls"], stream.status, codes]
    assert seen == [row["asked"], int(row["calls"]), int(row["tools"]), row["status"], expected], stream.reply
    assert row["reply"] in stream.reply
    assert usage["model_calls"] == len(platform.model.requests)
    if row["asked"] == "LT" and row["error"] == "timeout" and row["lasts"] == "once":
        assert "scripted:large" in degraded_models(platform)


CALLS = {
    "look": calls(("look", {"thing": "disk"})),
    "fail": calls(("fail", {"why": "the disk is on fire"})),
    "wait": calls(("wait", {"place": "door"})),
    "dance": calls(("dance", {})),
    "look2": calls(("look", {"size": 2})),
    "act": calls(("act", {})),
}


@pytest.mark.parametrize("row", Row.all(TOOL_ERRORS), ids=str)
async def test_tool_error_goes_back_to_the_agent(
    platform: Platform, failing: FailingModel, workbench: Workbench, row: Row
) -> None:
    agent = "mcp_agent_dying" if row["first"] == "act" else BENCH
    own = When(contains='<task id="t1"', tool="act" if row["first"] == "act" else "look")
    attempts = [Rule(CALLS[row["first"]], replace(own, nth=1)), Rule(CALLS[row["second"]], own)]
    failing.begin(Node(DECISION, [decision(task("t1", agent))]), None, "", *attempts)

    stream = await platform.ask("How is it?")

    usage = stream.done["usage"]
    died = (platform.settings.data_dir / "dying").read_text().count("called") if agent != BENCH else 0
    seen = [len(workbench.done()) + died, usage["model_calls"], usage["tool_calls"], stream.status]
    assert seen == [int(row["made"]), int(row["calls"]), int(row["tools"]), row["status"]], stream.reply
    assert row["reply"] in stream.reply
    assert stream.codes == []
