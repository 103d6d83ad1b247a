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

from tests.support.model_documents import decision_json, design_json, task, verdict_json
from tests.support.model_script import Answer, Body, schema_name

BENCH, SHOP = "mcp_agent_bench", "mcp_agent_shop"
CAST: Final[Mapping[str, str]] = {
    "t1": BENCH, "t2": SHOP, "t3": "scout", "t4": "coder", "t5": "machines", "t6": "crew", "t7": "keeper",
}  # fmt: skip
"""The tasks that a sound supervisor gives, with their agents; teams give `MEMBERS`."""

SUPERVISOR, QUESTION, ANSWER, DESIGNER, JUDGE = "supervisor", "question", "answer", "designer", "judge"
TEAMS: Final[Mapping[str, str]] = {"team": "m1", "crew": "m2"}  # lanes of their supervisors, and the tasks they give
MEMBERS: Final[Mapping[str, str]] = {"m1": "looker", "m2": "persona"}  # of LangGraph, of CrewAI
TASKS: Final = (*CAST, *MEMBERS)
LANES: Final = (
    SUPERVISOR, QUESTION, ANSWER, DESIGNER, JUDGE, *TEAMS, *TASKS, *(f"review {task_id}" for task_id in TASKS),
)  # fmt: skip
FORBIDDEN: Final = "forbidden"  # what calls outside of the grant are about
CHANGING: Final = ("t2", "t7")  # tasks whose agents are asked to change something
_TASK: Final = re.compile(r'<task id="([^"]+)"')
_CRITERION: Final = re.compile(r'<criterion id="([^"]+)"')
_AFTER: Final = {"t3": ("t1",), "t4": ("t2",)}


def _planned(*task_ids: str) -> list[dict[str, Any]]:
    return [
        task(one, CAST[one], after=[other for other in _AFTER.get(one, ()) if other in task_ids]) for one in task_ids
    ]


_PLAN: Final = _planned("t1", "t2", "t3")


@dataclass(frozen=True, slots=True)
class Asked:
    """One call of the model: its lane, its number there from 0, the tools on offer, and what it is asked.

    `plan` are the tasks that a sound supervisor gives; `called` says whether a tool has answered before.
    """

    lane: str
    number: int
    tools: Sequence[str] = ()
    text: str = ""
    plan: Sequence[str] = ()
    called: bool = False

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
        is_planned = any(f'<task id="{one}"' in asked.text for one in asked.plan)
        return Answer(decision_json(*([] if is_planned else _planned(*asked.plan))))
    if member := TEAMS.get(asked.lane):
        is_planned = f'<task id="{member}"' in asked.text
        return Answer(decision_json(*([] if is_planned else [task(member, MEMBERS[member])])))
    if asked.lane.startswith("review"):
        return Answer(verdict_json("APPROVED"))
    if asked.lane == QUESTION:
        return Answer('{"question": ""}')
    if asked.lane == DESIGNER:
        return Answer(_design())
    if asked.lane == JUDGE:
        return _judgement(met=_CRITERION.findall(asked.text))
    if "look" in asked.tools and not (asked.lane in MEMBERS and asked.called):  # a persona ends in words
        return _calls(("change" if asked.lane in CHANGING else "look", {"thing": asked.thing}))
    return Answer("All is fine [1].")


def _design(**fields: Any) -> str:
    sound = json.loads(design_json("bench"))
    for example in sound["examples"]:
        example["judged"] = ["It says how the disk is."]
    return json.dumps(sound | fields)


def _judgement(**fields: Any) -> Answer:
    return Answer(json.dumps({"met": [], "not_met": [], "reason": "It shows."} | fields))


def _member(**fields: Any) -> dict[str, Any]:
    return json.loads(design_json("bench"))["members"][0] | fields


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
    "repetition": _text("and so on " * 300),
    "enormous": _text("word" * 60_000),
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
    "fixed once": lambda asked: (
        Answer(verdict_json("APPROVED")) if "fixed review_" in asked.text else VERDICTS["fixed"](asked)
    ),
    "fixed without output": lambda _: Answer(verdict_json("FIXED")),
    "rejected": lambda _: Answer(verdict_json("REJECTED", "Look again.")),
    "approved": lambda _: Answer(verdict_json("APPROVED")),
    "approved of another kind": _text('{"status": "APPROVED", "task_id": "t9", "approve_all": true}'),
}
DESIGNS: Final[Mapping[str, Make]] = {
    "nobody in it": lambda _: Answer(_design(members=[])),
    "nameless": lambda _: Answer(_design(name="", members=[{"name": "", "server": "bench"}])),
    "asks what for": lambda _: Answer(_design(members=[], question="Which disks?", options=["all", "none"])),
    "unknown server": lambda _: Answer(_design(members=[_member(server="moon", tools=["moon.look"])])),
    "unknown tool": lambda _: Answer(_design(members=[_member(tools=["bench.dance", "shop.look"])])),
    "itself inside": lambda _: Answer(_design(members=[_member(server="", tools=[], team="watch")])),
    "unsafe": lambda _: Answer(_design(members=[_member(server="shop", tools=["shop.look", "shop.change"])])),
    "too many members": lambda _: Answer(_design(members=[_member(name=f"m{number}") for number in range(30)])),
    "a member twice": lambda _: Answer(_design(members=[_member(), _member()])),
    "reserved name": lambda _: Answer(_design(members=[_member(name="supervisor")])),
    "no examples": lambda _: Answer(_design(examples=[])),
    "trivial examples": lambda _: Answer(_design(examples=[{"request": "Look.", "contains": ["look"]}] * 2)),
    "nothing judged": lambda _: Answer(_design(examples=[{"request": f"Look at {n}."} for n in "ab"])),
    "wrong members": lambda _: Answer(_design(members="looker", examples={"request": 7})),
    "missing and done": lambda _: Answer(_design(missing=["1", "to sing"])),
    "missing": lambda _: Answer(_design(members=[], missing=["1"])),
    "no part of it": lambda _: Answer(_design(members=[_member(parts=[])])),
}
JUDGEMENTS: Final[Mapping[str, Make]] = {
    "unmet": lambda asked: _judgement(not_met=_CRITERION.findall(asked.text)),
    "met and unmet": lambda asked: _judgement(**dict.fromkeys(("met", "not_met"), _CRITERION.findall(asked.text))),
    "undecided": lambda _: _judgement(),
    "others met": lambda _: _judgement(met=["c99", "all", "*"]),
    "met in words": lambda _: _judgement(met="all of them"),
    "met by numbers": lambda _: _judgement(met=[1, None, {}], reason=7),
    "approves": lambda _: Answer(verdict_json("APPROVED")),
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
MISBEHAVIOURS: Final = {**ANYWHERE, **DECISIONS, **QUESTIONS, **VERDICTS, **DESIGNS, **JUDGEMENTS, **CALLS}


def fitting(lane: str) -> Sequence[str]:
    """Return the misbehaviours that are of a lane's kind."""
    own = {QUESTION: QUESTIONS, ANSWER: ANYWHERE, DESIGNER: DESIGNS, JUDGE: JUDGEMENTS}
    decisions = dict.fromkeys((SUPERVISOR, *TEAMS), DECISIONS)
    return list(VERDICTS if lane.startswith("review") else {**own, **decisions}.get(lane, CALLS))


@dataclass(frozen=True, slots=True)
class Script:
    """What a model does in a lane, one name a call. A `stubborn` lane repeats the last one, others end sound."""

    names: Sequence[str] = ()
    stubborn: bool = False

    def name(self, number: int) -> str:
        last = self.names[-1] if self.names and self.stubborn else "valid"
        return self.names[number] if number < len(self.names) else last


@dataclass(slots=True)
class Talk:
    """What a model was asked and answered in one run. `plan` are the tasks that its supervisor gives if it is sound.

    `stop` is the number of the call, from 0, whose answer never comes: `held` is set then, and the run is to be ended.
    """

    plan: Sequence[str] = ("t1", "t2", "t3")
    stop: int | None = None
    held: asyncio.Event = field(default_factory=asyncio.Event)
    asked: dict[str, list[str]] = field(default_factory=lambda: defaultdict[str, list[str]](list))
    answered: dict[str, list[Answer]] = field(default_factory=lambda: defaultdict[str, list[Answer]](list))

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


@dataclass(slots=True)
class MisbehavingModel:
    """Behaves in each lane as it is told to, and keeps what it answered in the talk that it has."""

    scripts: dict[str, Script] = field(default_factory=dict[str, Script])
    talk: Talk = field(default_factory=Talk)
    _used: Counter[str] = field(default_factory=Counter[str])

    def misbehave(self, lane: str, script: Script) -> None:
        """Behave as in this script from now on, in all runs."""
        self.scripts[lane] = script
        self._used[lane] = 0

    def forget(self) -> None:
        """Be sound from now on."""
        self.scripts.clear()

    async def __call__(self, body: Body) -> Answer:
        talk, lane, text = self.talk, lane_of(body), _text_of(body)
        number = len(talk.answered[lane])
        asked = Asked(
            lane,
            number,
            [tool["function"]["name"] for tool in body.get("tools", ())],
            text,
            talk.plan,
            any(message["role"] == "tool" for message in body["messages"]),
        )
        answer = MISBEHAVIOURS[self.scripts.get(lane, Script()).name(self._used[lane])](asked)
        self._used[lane] += 1
        talk.asked[lane].append(text)
        talk.answered[lane].append(answer)
        if talk.stop == sum(map(len, talk.answered.values())) - 1:
            talk.held.set()
            return replace(answer, hold="never", hold_after=0)
        return answer


def _text_of(body: Body) -> str:
    return "\n".join(str(message.get("content") or "") for message in body["messages"])


def lane_of(body: Body) -> str:
    text, schema = _text_of(body), schema_name(body)
    found = _TASK.search(text)
    if schema in (QUESTION, DESIGNER, JUDGE):
        return schema
    if schema == "supervisor_decision":
        is_team = "You supervise the team in <team>" in text
        return SUPERVISOR if not is_team else "crew" if '<team name="crew"' in text else "team"
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
