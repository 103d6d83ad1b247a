"""Answers in the forms that small models write: what is read, what is told to them, and what nobody is shown."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from starling.core.agents import LLMAgentConfig, Persona
from starling.core.teams.stars import Member, StarSpec
from starling.infra.postgres.audit import Actor
from tests.integration.brain.conftest import Open
from tests.support.interrupted_runs import answer_interrupts, execute_run, open_interrupts
from tests.support.model_script import Answer, Body, Rule, When
from tests.support.platform import (
    BENCH,
    Platform,
    RunStream,
    ScriptedModel,
    Workbench,
    calls,
    decision,
    task,
    verdict,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

T1, T1_ALONE = task("t1", BENCH, "look at the disk"), task("t1", "generalist", "write about the disk")
LOOK = calls(("look", {"thing": "disk"}))
LOOK_ON = calls(("look", {"thing": "disk"}), ("continue", {}))
APPROVED, FINE, SECRET = verdict("APPROVED"), "The disk is fine [1].", "SECRET"
QUESTION = decision(question="Which disk?", options=["the first", "the second"])
NARRATION = Answer("I will look at the disk now and tell you how it is.")

REASONING = {
    "closed": ("<think>SECRET</think>\n", ""),
    "nested": ("<think>a SECRET <think>b</think> c SECRET</think>\n", ""),
    "nested on lines": ("<think>\nSECRET\n<think>\nSECRET\n</think>\nSECRET\n</think>\n\n", ""),
    "nested twice": ("<think>a <think>b <think>c</think> SECRET</think> SECRET</think>", ""),
    "behind the answer": ("", " <think>Was SECRET right?</think>"),
    "behind a comma": ("So far, <think>SECRET</think>", ""),
    "behind a colon": ("I work it out:\n<think>\nSECRET\n</think>\n", ""),
    "analysis": ("<analysis>\nSECRET\n</analysis>\n\n", ""),
    "reflection": ("<reflection>SECRET</reflection>\n", ""),
    "scratchpad": ("<scratchpad>\nSECRET\n</scratchpad>\n", ""),
}
UNREAD = {
    "another tool": '<tool_call>{"name": "peek", "arguments": {"thing": "UNREAD"}}</tool_call>',
    "arguments that do not fit": '<tool_call>{"name": "look", "arguments": {"place": "UNREAD"}}</tool_call>',
    "cut": '<tool_call>\n{"name": "look", "arguments": {"thing": "UNREAD',
    "functools": 'functools[{"name": "peek", "arguments": {"thing": "UNREAD disk"}}]',
    "python tag": '<|python_tag|>peek.call(thing="UNREAD")',
    "invoke": '<invoke name="peek">\n<parameter name="thing">UNREAD</parameter>\n</invoke>',
    "InternLM": '<|action_start|><|plugin|>{"name": "peek", "parameters": {"thing": "UNREAD"}}<|action_end|>',
    "Jamba": '<tool_calls>[{"name": "peek", "arguments": {"thing": "UNREAD"}}]</tool_calls>',
    "Nemotron": '<TOOLCALL>[{"name": "peek", "arguments": {"thing": "UNREAD"}}]</TOOLCALL>',
    "behind words": 'I look at it.\n<tool_call>{"name": "peek", "arguments": {"thing": "UNREAD"}}</tool_call>',
}
READ = {
    "functools": 'functools[{"name": "look", "arguments": {"thing": "disk"}}]',
    "python tag": '<|python_tag|>look.call(thing="disk")<|eom_id|>',
    "invoke": '<invoke name="look">\n<parameter name="thing">disk</parameter>\n</invoke>',
    "bare": 'look(thing="disk")',
    "ReAct": 'Thought: I look.\nAction: look\nAction Input: {"thing": "disk"}\nObservation: the disk is broken',
    "InternLM": '<|action_start|><|plugin|>\n{"name": "look", "parameters": {"thing": "disk"}}<|action_end|>',
    "Jamba": ' <tool_calls>[\n    {"name": "look", "arguments": {"thing": "disk"}}\n]</tool_calls>',
    "Nemotron": '<TOOLCALL>[{"name": "look", "arguments": {"thing": "disk"}}]</TOOLCALL>',
}


KINDS = ("specialist", "custom", "custom of CrewAI", "member", "member of CrewAI")
AGENT: dict[str, Any] = {"persona": Persona(role="Looker", goal="Look at disks."), "tools": ("bench.look",)}
AFTER_CALL = Answer("the disk is fine")  # what an agent of CrewAI says after its calls; others aren't asked again


def table(rows: dict[str, Any]) -> Any:
    return pytest.mark.parametrize("row", rows.values(), ids=rows)


def plan(script: ScriptedModel, *agent: Answer, of: Body = T1, outer: Sequence[Answer] = (), **others: Answer) -> None:
    """Script one task, whose agent gives these answers; `others` replace what the other roles write.

    `outer` is the decision to give it to a team, if any.
    """
    script.supervisor(*outer, others.get("plan", decision(of)), decision())
    review = others.get("review", APPROVED)
    script.reviewer(review, *([APPROVED] if "FIXED" in review.content else []))  # a refined result is reviewed, too
    script.qa(others.get("final", Answer(FINE)))
    script.agent("t1", *agent)


async def plan_for(kind: str, platform: Platform, script: ScriptedModel, *answers: Answer) -> None:
    """Script one task of an agent of one of `KINDS`, which gives these answers."""
    runtime = "crewai" if kind.endswith("CrewAI") else "native"
    if kind.startswith("custom"):
        await platform.services.agents.create(
            platform.caller, LLMAgentConfig(id="looker", runtime=runtime, **AGENT), Actor.local("test")
        )
    if kind.startswith("member"):
        member = Member(name="looker", runtime=runtime, server="bench", **AGENT)
        await platform.activate(StarSpec(name="lookers", purpose="Looks at disks.", members=(member,)))
    outer = [decision(task("t3", "lookers", "look at the disk"))] if kind.startswith("member") else []
    own = T1 if kind == "specialist" else task("t1", "looker", "look at the disk")
    plan(script, *answers, of=own, outer=outer)


def asked_of_agent(platform: Platform) -> Sequence[Body]:
    """Return the requests to the agent of the bench."""
    return [body for body in platform.requests_containing('<task id="t1">') if body.get("tools")]


def reviews(platform: Platform) -> Sequence[Body]:
    return platform.requests_containing("You review the result")


def everything(stream: RunStream) -> str:
    return json.dumps([event.data for event in stream.events], default=str, ensure_ascii=False)


PLACES: dict[str, Callable[[str], dict[str, Any]]] = {
    "answer": lambda text: {"final": Answer(text)},
    "answer of an agent": lambda text: {"agent": Answer(text), "of": T1_ALONE},
    "refined result": lambda text: {"review": verdict("FIXED", refined=text)},
    "direct reply": lambda text: {"plan": decision(reply=text)},
    "question": lambda text: {"plan": decision(question=text)},
    "plan": lambda text: {"plan": decision(T1, plan=[text])},
}


SHORT = ("nested", "behind a comma")
WRITTEN = [*((row, "answer") for row in REASONING), *((row, place) for row in SHORT for place in PLACES)]


@pytest.mark.parametrize(("row", "place"), dict.fromkeys(WRITTEN))
async def test_reasoning_is_in_no_event_reply_or_question(
    platform: Platform, script: ScriptedModel, row: str, place: str
) -> None:
    before, after = REASONING[row]
    written = PLACES[place](f"{before}The disk is fine.{after}")
    plan(script, written.pop("agent", LOOK), **written)

    key = await platform.accept("How is it?")
    await execute_run(platform, key)
    events = await platform.services.runs.reader.events(key)

    asked = [item.message for item in await open_interrupts(platform, key)]
    shown = json.dumps([*(event.data for event in events), asked], default=str)
    assert SECRET not in shown
    assert "The disk is fine" in shown


@pytest.mark.parametrize("quoted", ["`<think>plan</think>`", '"<think>plan</think>"', "“<think>plan</think>”"])
async def test_quoted_pair_of_reasoning_markers_is_shown(
    platform: Platform, script: ScriptedModel, quoted: str
) -> None:
    plan(script, LOOK, final=Answer(f"The log says {quoted} there [1]."))

    stream = await platform.ask("What does the log say?")

    assert quoted in stream.reply


@table(READ)
async def test_call_in_the_form_of_a_model_family_is_made_once(
    platform: Platform, script: ScriptedModel, workbench: Workbench, row: str
) -> None:
    plan(script, Answer(row))

    stream = await platform.ask("How is the disk?")

    assert workbench.done() == ["look disk"]
    assert stream.of("task_result")[0]["summary"] == "the disk is fine"
    assert len(asked_of_agent(platform)) == 1
    assert stream.reply == FINE


@pytest.mark.parametrize("kind", KINDS)
async def test_agent_that_narrates_is_told_to_call_and_its_call_is_made(
    platform: Platform, script: ScriptedModel, workbench: Workbench, kind: str
) -> None:
    await plan_for(kind, platform, script, NARRATION, LOOK, AFTER_CALL)

    stream = await platform.ask("How is the disk?")

    first, second = asked_of_agent(platform)[:2]
    assert workbench.done() == ["look disk"]
    assert stream.of("task_result")[0]["summary"] == "the disk is fine"
    assert (stream.status, stream.reply) == ("succeeded", FINE)
    assert second["messages"][-1]["role"] in ("user", "system")
    assert second["messages"][-1]["content"] not in [message.get("content") for message in first["messages"]]
    assert len([body for body in reviews(platform) if '<task id="t1"' in str(body["messages"])]) == 1


@pytest.mark.parametrize("kind", KINDS)
async def test_agent_that_narrates_again_is_told_once_only(
    platform: Platform, script: ScriptedModel, kind: str
) -> None:
    await plan_for(kind, platform, script, NARRATION)

    stream = await platform.ask("How is the disk?")

    assert len(asked_of_agent(platform)) == 2
    assert {result["status"] for result in stream.of("task_result")} == {"failed"}
    assert not reviews(platform)


async def test_answer_after_a_call_is_no_narration(platform: Platform, script: ScriptedModel) -> None:
    plan(script, LOOK_ON, Answer("The disk is fine, I looked."))

    stream = await platform.ask("How is the disk?")

    assert len(asked_of_agent(platform)) == 2
    assert stream.of("task_result")[0]["status"] == "approved"


async def test_agent_without_tools_is_not_told_to_call(platform: Platform, script: ScriptedModel) -> None:
    plan(script, NARRATION, of=T1_ALONE)

    await platform.ask("Write about the disk.")

    asked = platform.requests_containing('<task id="t1">')
    assert [body for body in asked if body not in reviews(platform)] == asked[:1]


@pytest.mark.parametrize(
    ("row", "called", "kind"),
    [
        *((row, False, "specialist") for row in UNREAD),
        *((row, True, "specialist") for row in ("cut", "invoke")),
        *(("invoke", called, kind) for kind in KINDS[1:] for called in (False, True)),
    ],
)
async def test_call_that_is_not_read_is_no_result(
    platform: Platform, script: ScriptedModel, row: str, kind: str, *, called: bool
) -> None:
    await plan_for(kind, platform, script, *([LOOK_ON] if called else []), Answer(UNREAD[row]))

    stream = await platform.ask("How is the disk?")

    results = [result["summary"] for result in stream.of("task_result") if result["status"] == "approved"]
    assert not [text for text in results if "UNREAD" in text]
    assert "UNREAD" not in "".join(str(body["messages"]) for body in platform.requests_containing("final answer"))
    assert UNREAD[row] not in stream.reply
    assert called or not results


@pytest.mark.parametrize(
    ("row", "kind"), [*((row, "specialist") for row in UNREAD), *(("cut", kind) for kind in KINDS[1:])]
)
async def test_agent_whose_call_is_not_read_is_told_so_and_its_next_call_is_made(
    platform: Platform, script: ScriptedModel, workbench: Workbench, row: str, kind: str
) -> None:
    await plan_for(kind, platform, script, Answer(UNREAD[row]), LOOK, AFTER_CALL)

    stream = await platform.ask("How is the disk?")

    assert workbench.done() == ["look disk"]
    assert stream.of("task_result")[0]["summary"] == "the disk is fine"
    assert stream.status == "succeeded"


async def test_answer_that_documents_a_call_is_not_sent_back(platform: Platform, script: ScriptedModel) -> None:
    words = 'The page shows how:\n```\n<tool_call>{"name": "look", "arguments": {"thing": "door"}}</tool_call>\n```'
    plan(script, LOOK_ON, Answer(words))

    stream = await platform.ask("What does the page say?")

    assert stream.of("task_result")[0]["status"] == "approved"
    assert len(asked_of_agent(platform)) == 2


@pytest.mark.parametrize(
    "written",
    ['{"status":"PASS"}', '{"status": "pass", "reasons": []}', "Approved.", "APPROVED", "*Approved.*", "**Approved**"],
)
async def test_approval_of_a_small_reviewer_approves(platform: Platform, script: ScriptedModel, written: str) -> None:
    plan(script, LOOK, review=Answer(written))

    stream = await platform.ask("How is the disk?")

    assert stream.of("task_result")[0]["status"] == "approved"
    assert len(reviews(platform)) == len(asked_of_agent(platform)) == 1
    assert (stream.status, stream.reply) == ("succeeded", FINE)


@pytest.mark.parametrize(
    "written",
    ["Not approved.", "Approved? No.", "Approved. But it is the wrong disk.", "The result says: Approved.", "Fine."],
)
async def test_words_with_more_than_an_approval_do_not_approve(
    platform: Platform, script: ScriptedModel, written: str
) -> None:
    plan(script, LOOK, review=Answer(written))

    stream = await platform.ask("How is the disk?")

    assert "APPROVED" not in [review["status"] for review in stream.of("reflection")]


@pytest.mark.parametrize("names", [["bench"], [BENCH], [BENCH, "mcp_agent_lab"]], ids=["of a server", "one", "two"])
async def test_selected_agents_may_be_names(
    opened: Open, script: ScriptedModel, workbench: Workbench, names: list[str]
) -> None:
    script.rules.append(Rule(LOOK, When(tool="look")))
    script.supervisor(Answer(json.dumps({"selected_agents": names})), decision())
    script.reviewer(APPROVED)
    script.qa(Answer(FINE))

    async with opened(servers={name: workbench.as_server("read") for name in ("bench", "lab")}) as platform:
        stream = await platform.ask("How is the disk?")

    results = stream.of("task_result")
    assert [result["status"] for result in results] == ["approved"] * len(names)
    assert len({result["task_id"] for result in results}) == len(names)
    assert workbench.done() == ["look disk"] * len(names)
    told = [str(body["messages"]) for body in platform.model.bodies if body.get("tools")]
    assert [text for text in told if "How is the disk?" in text] == told


async def second_question(platform: Platform, script: ScriptedModel, *after: Answer) -> RunStream:
    """Execute a run whose first question is answered, and whose supervisor then writes this."""
    script.supervisor(QUESTION, *after)
    key = await platform.accept("Is the disk fine?")
    await execute_run(platform, key)
    await answer_interrupts(platform, key, answer="the second")
    await execute_run(platform, key)
    return await platform.stream(key)


async def test_second_question_after_an_answer_is_told_so_and_not_asked(
    platform: Platform, script: ScriptedModel
) -> None:
    stream = await second_question(platform, script, QUESTION, decision(reply="The second one is fine."))

    told = platform.model.bodies[2]["messages"][-1]["content"]
    assert (stream.status, stream.reply) == ("succeeded", "The second one is fine.")
    assert stream.kinds.count("clarification") == 1
    assert "question" in told.lower()
    assert "inputs are not permitted" not in told


async def test_second_question_that_is_repeated_leaves_the_request_to_the_generalist_with_a_warning(
    platform: Platform, script: ScriptedModel
) -> None:
    script.agent("t1", Answer("I can't look at disks."))
    script.reviewer(verdict("APPROVED"))

    stream = await second_question(platform, script, QUESTION)

    assert (stream.kinds.count("clarification"), stream.reply) == (1, "I can't look at disks.")
    assert "it asked the user a question right after the answer" in everything(stream)
    assert "inputs are not permitted" not in everything(stream)
