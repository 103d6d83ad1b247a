"""A model that misbehaves at any of its calls, by name: what it is asked for decides on nothing.

Its calls are in lanes, one a node or a task, so that a script means the same however tasks that run at once overlap.
"""

import asyncio
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

from tests.support.model_documents import decision_json, task, verdict_json
from tests.support.model_script import Answer, Body, schema_name

SUPERVISOR, TEAM, QUESTION, ANSWER = "supervisor", "team", "question", "answer"
TASKS: Final = ("t1", "t2", "t3", "m1")
LANES: Final = (SUPERVISOR, TEAM, QUESTION, ANSWER, *TASKS, *(f"review {task_id}" for task_id in TASKS))
FORBIDDEN: Final = "forbidden"  # what calls outside of the grant are about
_TASK: Final = re.compile(r'<task id="([^"]+)"')
BENCH, SHOP = "mcp_agent_bench", "mcp_agent_shop"
_PLAN = [task("t1", BENCH), task("t2", SHOP), task("t3", BENCH, after=["t1"])]


@dataclass(frozen=True, slots=True)
class Asked:
    """One call of the model: its lane, its number there from 0, and the tools on offer."""

    lane: str
    number: int
    tools: Sequence[str]

    @property
    def thing(self) -> str:
        """What a call of a tool is about, unique in the run."""
        return f"{self.lane.replace(' ', '_')}-{self.number}"


type Make = Callable[[Asked], Answer]


def _calls(*asked: tuple[str, Any]) -> Answer:
    return Answer(tool_calls=[{"name": name, "arguments": arguments} for name, arguments in asked])


def valid(asked: Asked) -> Answer:
    """Answer as a sound model does."""
    if asked.lane == SUPERVISOR:
        return Answer(decision_json(*([] if asked.number else _PLAN)))
    if asked.lane == TEAM:
        return Answer(decision_json(*([] if asked.number else [task("m1", "looker")])))
    if asked.lane.startswith("review"):
        return Answer(verdict_json("APPROVED"))
    if asked.lane == QUESTION:
        return Answer('{"question": ""}')
    if "look" in asked.tools:
        return _calls(("change" if asked.lane == "t2" else "look", {"thing": asked.thing}))
    return Answer("All is well [1].")


def _plan(*tasks: Any, **fields: Any) -> Make:
    return lambda _: Answer(decision_json(*tasks, **fields))


def _text(text: str, **fields: Any) -> Make:
    return lambda _: Answer(text, **fields)


def _tools(*asked: tuple[str, Any]) -> Make:
    return lambda _: _calls(*asked)


def _look(times: int, *, same: bool = False) -> Make:
    def make(asked: Asked) -> Answer:
        things = [asked.thing if same else f"{asked.thing}.{number}" for number in range(times)]
        return _calls(*(("look", {"thing": thing}) for thing in things))

    return make


def _beside(*names: str) -> Make:
    """A sound call beside others."""
    others: list[tuple[str, Any]] = [(name, {}) for name in names]
    return lambda asked: _calls(("look", {"thing": asked.thing}), *others)


def _cut(asked: Asked) -> Answer:
    sound = valid(asked)
    return Answer(sound.content[: len(sound.content) // 2] or "Half", finish_reason="length")


ANYWHERE: Final[Mapping[str, Make]] = {
    "valid": valid,
    # no answer, or none that can be read
    "empty": _text(""),
    "blank": _text(" \n\t "),
    "garbage": _text("certainly! {{{ \0 ]] <think> I"),
    "reasoning only": lambda _: Answer("", reasoning="Let me think about that."),
    "reasoning without an end": _text("<think>I should look at the disk and then"),
    "wrong schema": _text('{"plan": "none", "status": 7, "name": ["a"], "answers": {}}'),
    "other JSON": _text("[null, 1e400, {}]"),
    "repetition": _text("and so on " * 3_000),
    "enormous": _text("word " * 60_000),
    "cut off": _cut,
    "nested": _text('{"a":' * 3_000),
    # no answer of the endpoint
    "500": _text("", status=500, body='{"error": {"message": "not today"}}'),
    "429": _text("", status=429, headers={"Retry-After": "0"}, body="{}"),
    "400": _text("", status=400, body='{"error": {"message": "the input is too long"}}'),
    "cut stream": lambda asked: Answer("half an answer, " * 9, cut_after=3),
    "web page": _text("", body="<html>Welcome</html>", content_type="text/html"),
    "no choice": _text("", body='{"choices": [null]}'),
    "time-out": _text("", hold="never"),
}
DECISIONS: Final[Mapping[str, Make]] = {
    "reply": _plan(reply="Seven days."),
    "reply beside tasks": _plan(*_PLAN, reply="Seven days."),
    "only the coder": _plan(task("t1", "coder")),
    "team": _plan(task("t1", "machines"), task("t2", SHOP)),
    "again": _plan(task("t1", BENCH), task("t2", SHOP)),
    "others": _plan(task("t8", BENCH), task("t9", "generalist", after=["t1"])),
    "unknown agents": _plan(task("t1", "nobody"), task("t2", "mcp_agent_secret"), task("m1", "supervisor")),
    "builder": _plan(task("t1", "architect")),
    "unknown dependency": _plan(task("t1", BENCH, after=["t7"]), task("t2", SHOP, after=["t1"])),
    "cycle": _plan(task("t1", BENCH, after=["t3"]), task("t2", SHOP), task("t3", BENCH, after=["t1"])),
    "duplicate ids": _plan(task("t1", BENCH), task("t1", SHOP)),
    "ids of places": _plan(task("d2", BENCH), task("start", BENCH), task("../x", BENCH), task("qa", BENCH)),
    "too many tasks": _plan(*(task(f"x{number}", "generalist") for number in range(30))),
    "long chain": _plan(*(task(f"x{n}", "generalist", after=[f"x{n - 1}"] if n else []) for n in range(9))),
    "nobody yet": _plan(task("t1", BENCH), task("t3", "", after=["t1"])),
    "nobody at all": _plan(task("t1", ""), task("t3", "", after=["t9"])),
    "question": _plan(question="Which disk?", options=["sda", "sdb"]),
    "question beside tasks": _plan(*_PLAN, question="Which disk?"),
    "nothing can": _plan(unserved=[{"part": "the disk", "reason": "no tool"}]),
    "removes all": _plan(removed=[{"task_id": name, "reason": "no need"} for name in ("t1", "t2", "t3", "x1")]),
    "removes and plans": _plan(task("t3", BENCH), removed=["t3", "t1", "t9"]),
    "removes what is needed": _plan(task("t8", BENCH, after=["t3"]), removed=[{"task_id": "t3"}]),
    "satisfied": _plan(is_request_satisfied=True),
    "satisfied with tasks": _plan(*_PLAN, is_request_satisfied=True),
    "in a loop": _plan(task("t1", BENCH), is_in_loop=True, is_progress_being_made=False),
    "looks for others": _plan(look_for=["a printer"] * 30),
    "decide after": _plan(task("t1", BENCH), decide_after=["t1"], is_simple=True),
}
QUESTIONS: Final[Mapping[str, Make]] = {
    "asks": _text('{"question": "Which door?", "options": ["red", "green"]}'),
    "asks nothing": _text('{"question": null, "options": ["red"]}'),
}
VERDICTS: Final[Mapping[str, Make]] = {
    "unknown verdict": _text('{"status": "PERHAPS"}'),
    "fixed": lambda asked: Answer(verdict_json("FIXED", refined=f"fixed {asked.thing}")),
    "fixed without output": lambda _: Answer(verdict_json("FIXED")),
    "rejected": lambda _: Answer(verdict_json("REJECTED", "Look again.")),
    "approved": lambda _: Answer(verdict_json("APPROVED")),
    "approved of another kind": _text('{"status": "APPROVED", "task_id": "t9", "approve_all": true}'),
}
CALLS: Final[Mapping[str, Make]] = {
    "words": _text("I can't do that."),
    "unknown tool": _tools(("dance", {}), *((f"{name}.change", {"thing": FORBIDDEN}) for name in ("secret", "time"))),
    "bad arguments": _tools(("look", {"size": 2}), ("look", {"thing": 7}), ("change", {})),
    "broken arguments": _tools(("look", '{"thing": "'), ("look", "[]"), ("change", "{" * 200)),
    "too many calls": _look(60),
    "same calls": _look(5, same=True),
    "failing": _tools(("fail", {"why": "the disk is on fire"})),
    "silent": _tools(("silence", {})),
    "continue": _tools(("continue", {})),
    "continue beside": _beside("continue"),
    "other built-in tools": _beside("find_tools", "read_artifact", "read_resource", "note"),
    "note": _tools(("note", {"key": "disk", "value": "sda"})),
    "notes": _tools(*(("note", {"key": f"key{n}", "value": n}) for n in range(40))),
    "bad notes": _tools(("note", {"key": "\0", "value": {}}), ("note", {"value": float(2**60)}), ("note", "x")),
    "change": lambda asked: _calls(("change", {"thing": asked.thing})),
    "nameless call": lambda _: Answer(tool_calls=[{"name": "", "arguments": {}}]),
    "call in words": _text('<tool_call>{"name": "look", "arguments": {"thing": '),
    "reply of tools": lambda asked: Answer("[1] [7] {0}", _calls(("look", {"thing": asked.thing})).tool_calls),
}
MISBEHAVIOURS: Final = {**ANYWHERE, **DECISIONS, **QUESTIONS, **VERDICTS, **CALLS}


def fitting(lane: str) -> Sequence[str]:
    """Return the misbehaviours that are of a lane's kind."""
    own = {SUPERVISOR: DECISIONS, TEAM: DECISIONS, QUESTION: QUESTIONS, ANSWER: ANYWHERE}
    return list(VERDICTS if lane.startswith("review") else own.get(lane, CALLS))


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What a model does in each lane, one name a call. `stubborn` lanes repeat the last name, others end sound.

    `crash` is a call, by lane and number, whose answer never comes: the process that asks is to end there.
    """

    scripts: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    stubborn: frozenset[str] = frozenset()
    crash: tuple[str, int] | None = None

    def name(self, lane: str, number: int) -> str:
        script = self.scripts.get(lane, ())
        last = script[-1] if script and lane in self.stubborn else "valid"
        return script[number] if number < len(script) else last


@dataclass(slots=True)
class MisbehavingModel:
    """Behaves as it is told to, and keeps what it answered. `held` is set once its process is to end."""

    behaviour: Behaviour = field(default_factory=Behaviour)
    answered: dict[str, list[Answer]] = field(default_factory=lambda: defaultdict[str, list[Answer]](list))
    held: asyncio.Event = field(default_factory=asyncio.Event)

    def begin(self, behaviour: Behaviour) -> None:
        self.behaviour, self.held = behaviour, asyncio.Event()
        self.answered.clear()

    async def __call__(self, body: Body) -> Answer:
        lane = lane_of(body)
        tools = [tool["function"]["name"] for tool in body.get("tools", ())]
        number = len(self.answered[lane])
        answer = MISBEHAVIOURS[self.behaviour.name(lane, number)](Asked(lane, number, tools))
        self.answered[lane].append(answer)
        if self.behaviour.crash == (lane, number):
            self.held.set()
            return replace(answer, hold="never", hold_after=0)
        return answer

    @property
    def calls(self) -> Counter[str]:
        """The calls that were asked for, as the workbench notes them, and how often."""
        asked = Counter[str]()
        for answer in (answer for answers in self.answered.values() for answer in answers):
            for call in answer.tool_calls:
                arguments: Any = call["arguments"]
                if isinstance(arguments, dict):
                    asked[" ".join(map(str, [call["name"], *cast("dict[str, Any]", arguments).values()]))] += 1
        return asked


def lane_of(body: Body) -> str:
    text = "\n".join(str(message.get("content") or "") for message in body["messages"])
    schema, found = schema_name(body), _TASK.search(text)
    if schema == QUESTION:
        return QUESTION
    if schema == "supervisor_decision":
        return TEAM if "You supervise the team in <team>" in text else SUPERVISOR
    if schema == "verdict":
        return f"review {found[1] if found else ''}"
    return found[1] if found and "You write the final answer" not in text else ANSWER


def verdicts(answers: Sequence[Answer]) -> list[str]:
    """Return the status of each readable verdict."""
    found: list[str] = []
    for answer in answers:
        try:
            read = json.loads(answer.content) if answer.body is None and answer.finish_reason != "length" else None
        except (ValueError, RecursionError):
            continue
        if isinstance(read, dict) and "status" in read:
            found.append(str(read["status"]))  # pyright: ignore[reportUnknownArgumentType]
    return found
