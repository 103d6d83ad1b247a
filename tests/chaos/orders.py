"""What callers order: requests of several shapes that say themselves what the model is to have done.

An order travels through the request's text in a form that needs no escaping. The model server reads it there and
answers by it, so that its answers depend on nothing but what it is asked, as those of a replayed run must.
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
EFFECTS = {"read_it": "read", "put": "idempotent", "charge": "unsafe"}
QUESTION = "question"  # the shape of orders that ask back
_ORDER = re.compile(r"<user_request>[^<]*\[([A-Za-z0-9_=-]+)\]</user_request>")
_TASK = re.compile(r'<task id="([^"]+)"')


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call; `stall` says at which moment it takes its time: `before` or `after` its effect, or not at all.

    What it answers is `long` for a model, or not.
    """

    tool: str
    stall: str = ""
    answer: str = ""


@dataclass(frozen=True, slots=True)
class Task:
    """A task with the calls of its one answer."""

    id: str
    agent: str
    calls: Sequence[Call]
    after: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Order:
    """A request. Its token is in nobody else's."""

    token: str
    shape: str
    tasks: Sequence[Task] = ()

    @property
    def text(self) -> str:
        tasks = [[t.id, t.agent, list(t.after), [[c.tool, c.stall, c.answer] for c in t.calls]] for t in self.tasks]
        packed = base64.urlsafe_b64encode(json.dumps([self.token, self.shape, tasks]).encode()).decode()
        return f"Order {self.token}, {self.shape} [{packed}]"

    @classmethod
    def of(cls, packed: str) -> "Order":
        token, shape, tasks = json.loads(base64.urlsafe_b64decode(packed))
        return cls(token, shape, [Task(i, agent, [Call(*c) for c in made], after) for i, agent, after, made in tasks])


class OrderBook:
    """Makes up orders of one tenant, each with a token of its own."""

    def __init__(self, tenant: str, dice: random.Random) -> None:
        self._tenant = tenant
        self._dice = dice
        self._count = 0

    def next(self) -> Order:
        """Return an order of a random shape."""
        self._count += 1
        token = f"{self._tenant}-{self._dice.getrandbits(40):010x}-{self._count}"
        shape = self._dice.choice(list(_SHAPES))
        return Order(token, shape, _SHAPES[shape](self._dice))


def _call(dice: random.Random, *tools: str) -> Call:
    return Call(dice.choice(tools), dice.choice(["before", "after", ""]), dice.choice(["long", "", ""]))


def _direct(_: random.Random) -> Sequence[Task]:
    return ()


def _one_read(dice: random.Random) -> Sequence[Task]:
    return [Task("t1", TILL, [_call(dice, "read_it")])]


def _two(dice: random.Random) -> Sequence[Task]:
    return [Task("t1", TILL, [_call(dice, *EFFECTS)]), Task("t2", VAULT, [_call(dice, *EFFECTS)])]


def _idempotent(dice: random.Random) -> Sequence[Task]:
    return [Task("t1", TILL, [_call(dice, "put"), _call(dice, "put")])]


def _unsafe(dice: random.Random) -> Sequence[Task]:
    return [Task("t1", VAULT, [_call(dice, "charge")])]


def _chain(dice: random.Random) -> Sequence[Task]:
    return [
        Task("t1", TILL, [_call(dice, "charge", "put")]),
        Task("t2", VAULT, [_call(dice, *EFFECTS)], ["t1"]),
        Task("t3", TILL, [_call(dice, "read_it", "put")], ["t2"]),
    ]


def _fan_out(dice: random.Random) -> Sequence[Task]:
    return [Task(f"t{n}", dice.choice([TILL, VAULT]), [_call(dice, *EFFECTS)]) for n in range(1, dice.randint(4, 6))]


_SHAPES = {
    "direct": _direct,
    "read": _one_read,
    "two": _two,
    "idempotent": _idempotent,
    "unsafe": _unsafe,
    "chain": _chain,
    "fan-out": _fan_out,
    QUESTION: _unsafe,
}


async def answer(body: Body) -> Answer:
    """Answer as the order in the request says."""
    asked = str(body["messages"][1].get("content") or "")
    found = _ORDER.search(asked)
    if found is None:
        return Answer(status=400, body='{"error": {"message": "this request holds no order"}}')
    order = Order.of(found[1])
    match schema_name(body):
        case "supervisor_decision":
            return _decided(order, asked, body)
        case "verdict":
            return verdict("APPROVED", "As ordered.")
        case _ if made := _TASK.search(asked):
            return _called(order, made[1], body)
        case _:
            return Answer(f"Everything of {order.token} is done, and nothing of anybody else's [1].")


def _decided(order: Order, asked: str, body: Body) -> Answer:
    if order.shape == QUESTION and "<question>" not in asked and _may_ask(body):
        return decision(question=f"Which one of {order.token}?", options=["this", "that"])
    if not order.tasks:
        return decision(reply=f"Nothing is to be done for {order.token}.")
    if "<current_plan></current_plan>" not in asked:
        return decision()  # what failed isn't tried another way
    return decision(*(task(item.id, item.agent, f"do {item.id} of {order.token}", item.after) for item in order.tasks))


def _may_ask(body: Body) -> bool:
    return "question" in body["response_format"]["json_schema"]["schema"]["properties"]


def _called(order: Order, task_id: str, body: Body) -> Answer:
    """Ask for the task's calls; what they are about differs from attempt to attempt."""
    (wanted,) = (item for item in order.tasks if item.id == task_id)
    position = sum(message["role"] == "assistant" for message in body["messages"])
    return calls(*_arguments(order, wanted, position))


def _arguments(order: Order, wanted: Task, position: int) -> Iterator[tuple[str, dict[str, Any]]]:
    for index, call in enumerate(wanted.calls):
        what = f"{order.token}.{wanted.id}.{position}.{index}"
        stalling = {"stall": call.stall, "gate": f"{what}.gate"} if call.stall else {}
        answering = {"answer": call.answer} if call.answer else {}
        yield call.tool, {"what": what, **stalling, **answering}
