"""Requests of several shapes, each with the plan that the model server answers by.

The plan is encoded in the request's text. The model server decodes it from there, so that its answers depend only on
what it is asked, as the answers of a replayed run must.
"""

import base64
import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tests.support.model_script import Answer, Body, schema_name
from tests.support.platform import calls, decision, task, verdict

TILL, VAULT = "mcp_agent_till", "mcp_agent_vault"
DESK, CLERKS = "desk", "clerks"  # teams; the clerks are a member of the desk
ARCHITECT = "architect"  # the agent that builds teams
HOSTILE = ("flapping", "flooding", "lying")  # servers that do more than they should; they have the tool `look`
EFFECTS = {"read_it": "read", "put": "idempotent", "charge": "unsafe"}
QUESTION = "question"  # the shape of requests for which the supervisor asks a question
SAME_AGAIN, OTHERWISE = "same again", "otherwise"  # whose first attempts are rejected; what the next ones ask for
VAGUE, WANTING = "vague build", "wanting build"  # of goals that the designer asks about, and whose team doesn't suffice
DESIGNED = "helpers"  # the name that the designer gives to a team
_DEMAND = "It says that everything is done."
_ORDER = re.compile(r"<(?:user_request|goal|request)>[^<]*\[([A-Za-z0-9_=-]+)\]</")
_CRITERION = re.compile(r'<criterion id="([^"]+)"')
_CREWAI = "Your personal goal is"  # in its prompts
_TASK = re.compile(r'<task id="([^"]+)"')


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call; `stall` says whether it waits `before` or `after` its effect, or not at all.

    `answer` is `long` for a result that is stored as an artifact.
    """

    tool: str
    stall: str = ""
    answer: str = ""


@dataclass(frozen=True, slots=True)
class Task:
    """A task and the tool calls of its one model answer; or that of a team, with the tasks of its members."""

    id: str
    agent: str
    calls: Sequence[Call] = ()
    after: Sequence[str] = ()
    members: Sequence["Task"] = ()
    shape: str = ""  # of a team's task: that of the request which it is for the team

    def packed(self) -> list[Any]:
        """Return the task as JSON."""
        calls = [[call.tool, call.stall, call.answer] for call in self.calls]
        return [self.id, self.agent, calls, list(self.after), [task.packed() for task in self.members], self.shape]

    @classmethod
    def unpacked(cls, packed: Sequence[Any]) -> "Task":
        """Return the task that `packed` has made JSON of."""
        task_id, agent, calls, after, members, shape = packed
        return cls(task_id, agent, [Call(*call) for call in calls], after, list(map(cls.unpacked, members)), shape)

    def text(self, token: str) -> str:
        """Return the task in words: for a team it is a request with a plan of its own."""
        if not self.members:
            return f"do {self.id} of {token}"
        return PlannedRequest(f"{token}.{self.id}", self.shape, self.members).text


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """A request with its plan and a unique token."""

    token: str
    shape: str
    tasks: Sequence[Task] = ()

    @property
    def text(self) -> str:
        plan = [self.token, self.shape, [task.packed() for task in self.tasks]]
        packed = base64.urlsafe_b64encode(json.dumps(plan, separators=(",", ":")).encode()).decode()
        return f"Order {self.token}, {self.shape} [{packed}]"

    @property
    def asks(self) -> bool:
        """Whether a supervisor asks the user something."""
        shapes = (self.shape, *(task.shape for task in self.tasks))
        return QUESTION in shapes or VAGUE in shapes

    @classmethod
    def of(cls, packed: str) -> "PlannedRequest":
        token, shape, tasks = json.loads(base64.urlsafe_b64decode(packed))
        return cls(token, shape, list(map(Task.unpacked, tasks)))


class RequestGenerator:
    """Generates the requests of one tenant."""

    def __init__(self, tenant: str, rng: random.Random) -> None:
        self._tenant = tenant
        self._dice = rng
        self._count = 0

    def next(self) -> PlannedRequest:
        """Return a request of a random shape."""
        self._count += 1
        token = f"{self._tenant}-{self._dice.getrandbits(40):010x}-{self._count}"
        shape = self._dice.choice(list(_SHAPES))
        return PlannedRequest(token, shape, _SHAPES[shape](self._dice))


def _call(rng: random.Random, *tools: str) -> Call:
    return Call(rng.choice(tools), rng.choice(["before", "after", ""]), rng.choice(["long", "", ""]))


def _direct(_: random.Random) -> Sequence[Task]:
    return ()


def _one_read(rng: random.Random) -> Sequence[Task]:
    return [Task("t1", TILL, [_call(rng, "read_it")])]


def _two(rng: random.Random) -> Sequence[Task]:
    return [Task("t1", TILL, [_call(rng, *EFFECTS)]), Task("t2", VAULT, [_call(rng, *EFFECTS)])]


def _idempotent(rng: random.Random) -> Sequence[Task]:
    return [Task("t1", TILL, [_call(rng, "put"), _call(rng, "put")])]


def _unsafe(rng: random.Random) -> Sequence[Task]:
    return [Task("t1", VAULT, [_call(rng, "charge")])]


def _chain(rng: random.Random) -> Sequence[Task]:
    return [
        Task("t1", TILL, [_call(rng, "charge", "put")]),
        Task("t2", VAULT, [_call(rng, *EFFECTS)], ["t1"]),
        Task("t3", TILL, [_call(rng, "read_it", "put")], ["t2"]),
    ]


def _fan_out(rng: random.Random) -> Sequence[Task]:
    return [Task(f"t{n}", rng.choice([TILL, VAULT]), [_call(rng, *EFFECTS)]) for n in range(1, rng.randint(4, 6))]


def _hostile(rng: random.Random) -> Sequence[Task]:
    """Return tasks of servers that flap, flood and lie, beside one whose effects are counted."""
    of_hostile = [
        Task(f"t{number}", f"mcp_agent_{name}", [Call("look")] * rng.randint(1, 3))
        for number, name in enumerate(HOSTILE, 1)
    ]
    return [*of_hostile, Task("t4", TILL, [_call(rng, *EFFECTS)])]


def _in_team(rng: random.Random) -> Sequence[Task]:
    members = [
        Task("t1", "reader", [_call(rng, "read_it")]),
        Task("t2", "cashier", [_call(rng, "put", "charge"), _call(rng, "put")], ["t1"]),
    ]
    return [Task("t1", DESK, members=members, shape="team")]


def _beside_team(rng: random.Random) -> Sequence[Task]:
    members = [Task("t1", "reader", [_call(rng, *EFFECTS)]), Task("t2", "keeper", [_call(rng, "charge")])]
    return [
        Task("t1", TILL, [_call(rng, *EFFECTS)]),
        Task("t2", CLERKS, after=["t1"], members=members, shape="team"),
        Task("t3", VAULT, [_call(rng, "read_it", "put")]),
    ]


def _team_in_team(rng: random.Random) -> Sequence[Task]:
    clerks = [Task("t1", "keeper", [_call(rng, "charge")]), Task("t2", "reader", [_call(rng, "put")])]
    members = [Task("t1", "cashier", [_call(rng, *EFFECTS)]), Task("t2", CLERKS, members=clerks, shape="inner team")]
    return [Task("t1", DESK, members=members, shape="team")]


def _question_in_team(rng: random.Random) -> Sequence[Task]:
    return [Task("t1", DESK, members=[Task("t1", "cashier", [_call(rng, "charge")])], shape=QUESTION)]


def _build_in_plan(rng: random.Random) -> Sequence[Task]:
    return [Task("t1", ARCHITECT, members=of_a_build(rng), shape="build"), Task("t2", TILL, [_call(rng, "read_it")])]


def of_a_build(rng: random.Random) -> Sequence[Task]:
    """Return what the team of a build does in each case, all of whose tasks are of different members.

    With calls that read it is proven; with one that can't be taken back it needs approval, as it does where all are
    simulated.
    """
    first = Task("t1", "till_member", [_call(rng, "read_it"), *[_call(rng, *EFFECTS)] * rng.randint(0, 1)])
    match rng.choice(["one", "two", "simulated", "with a team"]):
        case "one":
            return [first]
        case "two":
            return [first, Task("t2", "vault_member", [_call(rng, *EFFECTS)], ["t1"])]
        case "simulated":
            return [Task("t1", "vault_member", [_call(rng, "put", "charge")])]
        case _:
            clerks = [Task("t1", "keeper", [_call(rng, "charge")]), Task("t2", "reader", [_call(rng, "read_it")])]
            return [first, Task("t2", CLERKS, members=clerks, shape="inner team")]


def single_call(planned: PlannedRequest, rng: random.Random) -> tuple[str, dict[str, Any]]:
    """Return the full name and the arguments of a call that changes something, without a plan."""
    [(tool, arguments)] = _arguments(planned, Task("call", "", [_call(rng, "put", "charge")]), 0)
    return f"{rng.choice(['till', 'vault'])}.{tool}", arguments


_SHAPES = {
    "direct": _direct,
    "read": _one_read,
    "two": _two,
    "idempotent": _idempotent,
    "unsafe": _unsafe,
    SAME_AGAIN: _two,
    OTHERWISE: _two,
    "chain": _chain,
    "fan-out": _fan_out,
    "hostile": _hostile,
    QUESTION: _unsafe,
    "team": _in_team,
    "beside team": _beside_team,
    "team in team": _team_in_team,
    "question in team": _question_in_team,
    "build in plan": _build_in_plan,
}


async def answer(body: Body) -> Answer:
    """Answer by the plan in the request."""
    asked = str(body["messages"][1].get("content") or "")
    found = _ORDER.search(asked)
    if found is None:
        return Answer(status=400, body='{"error": {"message": "this request contains no plan"}}')
    planned = PlannedRequest.of(found[1])
    match schema_name(body):
        case "supervisor_decision":
            return _decided(planned, asked, body)
        case "verdict":
            return _reviewed(planned, asked)
        case "designer":
            return _designed(planned, asked)
        case "judge":
            return Answer(json.dumps(_judgement(planned, _CRITERION.findall(asked))))
        case _ if made := _TASK.search(asked):
            return _called(planned, made[1], body)
        case _:
            return Answer(f"Everything of {planned.token} is done, and nothing else [1].")


def _reviewed(planned: PlannedRequest, asked: str) -> Answer:
    """Return a verdict: the first result of a task with an effect is rejected, where the request is of that shape."""
    is_first = planned.shape in (SAME_AGAIN, OTHERWISE) and "<earlier_attempt>" not in asked
    changes = any(f".{tool}" in asked for tool in ("put", "charge"))
    return verdict("REJECTED", "Not like that.") if is_first and changes else verdict("APPROVED", "As planned.")


def _decided(planned: PlannedRequest, asked: str, body: Body) -> Answer:
    if planned.shape == QUESTION and "<question>" not in asked and _may_ask(body):
        return decision(question=f"Which one of {planned.token}?", options=["this", "that"])
    if not planned.tasks:
        return decision(reply=f"Nothing is to be done for {planned.token}.")
    if "<current_plan></current_plan>" not in asked:
        return decision()  # failed tasks are not planned again
    return decision(*(task(item.id, item.agent, item.text(planned.token), item.after) for item in planned.tasks))


def _designed(planned: PlannedRequest, asked: str) -> Answer:
    """Return the team that a goal asks for, with two requests that it does the same tasks for."""
    if planned.shape == VAGUE and "<answer" not in asked:
        return Answer(json.dumps({"question": f"Which one of {planned.token}?", "options": ["this", "that"]}))
    tools = list(dict.fromkeys(f"{server}.{call}" for task in planned.tasks for server, call in _tools(task)))
    judged = [_DEMAND] if planned.shape == WANTING else []
    requests = [PlannedRequest(f"{planned.token}.c{number}", planned.shape, planned.tasks) for number in (1, 2)]
    examples = [{"request": each.text, "must_call": tools, "judged": judged} for each in requests]
    team = {"name": DESIGNED, "purpose": "Does what is ordered.", "members": list(map(_member, planned.tasks))}
    return Answer(json.dumps({**team, "examples": examples}))


def _member(task: Task) -> dict[str, Any]:
    about = {"name": task.agent, "role": f"The {task.agent}", "goal": f"Does {task.id}, once.", "parts": [1]}
    if task.members:
        return {**about, "team": task.agent}
    return {
        **about,
        "server": task.agent.partition("_")[0],
        "tools": [f"{server}.{tool}" for server, tool in _tools(task)],
    }


def _tools(task: Task) -> Iterator[tuple[str, str]]:
    """Yield the server and the name of each tool that a task calls, at any depth."""
    server = {"reader": "till", "keeper": "vault"}.get(task.agent, task.agent.partition("_")[0])
    yield from ((server, call.tool) for call in task.calls)
    for member in task.members:
        yield from _tools(member)


def _judgement(planned: PlannedRequest, criteria: Sequence[str]) -> dict[str, Any]:
    """Return that a wanting team met nothing of what only a judge can see."""
    if planned.shape == WANTING:
        return {"met": [], "not_met": [*criteria], "reason": "It doesn't say so."}
    return {"met": [*criteria], "not_met": [], "reason": ""}


def _may_ask(body: Body) -> bool:
    return "question" in body["response_format"]["json_schema"]["schema"]["properties"]


def _called(planned: PlannedRequest, task_id: str, body: Body) -> Answer:
    """Return the tool calls of a task; their `what` differs from attempt to attempt, unless the same is asked for.

    CrewAI asks for the result in words after each call; the other runtime only after one that failed.
    """
    if body["messages"][-1]["role"] == "tool" and _CREWAI in str(body["messages"][0]["content"]):
        return Answer(f"Task {task_id} of {planned.token} is done.")
    (wanted,) = (item for item in planned.tasks if item.id == task_id)
    answers = sum(message["role"] == "assistant" for message in body["messages"])
    position = 0 if planned.shape == SAME_AGAIN else answers
    return calls(*_arguments(planned, wanted, position))


def _arguments(planned: PlannedRequest, wanted: Task, position: int) -> Iterator[tuple[str, dict[str, Any]]]:
    for index, call in enumerate(wanted.calls):
        what = f"{planned.token}.{wanted.id}.{position}.{index}"
        stalling = {"stall": call.stall, "gate": f"{what}.gate"} if call.stall else {}
        answering = {"answer": call.answer} if call.answer else {}
        yield call.tool, {"what": what, **stalling, **answering}
