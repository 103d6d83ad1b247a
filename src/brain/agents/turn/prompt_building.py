"""Prompts of agents: the task and what it needs of the run, never the whole history."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from types import MappingProxyType
from typing import Any, Final

from brain.agents.turn.agent_runtime import TaskExecution, done_lines
from brain.blackboard import board_of, shown_board
from brain.prompts import Prompt, Xml, element, lines
from brain.registry.cards import GENERALIST
from brain.skills.generalization import shown_template
from brain.skills.memory import SkillMemory
from brain.skills.skill import recalled_from_json
from starling.core.agents import LLMAgentConfig
from starling.core.conversation.rendering import apply_policy, render_for_llm
from starling.core.fit import DEPENDENT_TASK, shown
from starling.core.llm import Message, ModelRequest, ModelRole, ToolSpec
from starling.core.tools import DoneCall

_OF_MESSAGES: Final = frozenset({"last_messages", "none", "summary"})
_SKILLS_NOTE = (
    "The calls in <skill> worked for its task then. Yours may ask for something else: use only what fits it, with "
    "values for slots from your own task."
)


async def begin(execution: TaskExecution, history_messages: int, memory: SkillMemory | None) -> None:
    """Set the first messages of a task and the skills in them; in a resumed run those that were recorded."""
    journal = execution.context.journal
    recorded = journal.find(execution.path, "context")
    if recorded is not None:
        execution.messages = [Message(**message) for message in recorded["messages"]]
        execution.skills = [recalled_from_json(skill) for skill in recorded.get("skills", ())]
        execution.done = [DoneCall(**call) for call in recorded.get("done", ())]
        execution.may_note = recorded.get("may_note", False)
        return
    if memory is not None and execution.card.is_prompted:
        found = await memory.recall(execution.context.run.tenant, execution.card, execution.task)
        execution.skills = found.recalled
        if found.warning:
            execution.context.recorder.warn_once("embeddings_unavailable", found.warning)
    if execution.card.is_prompted:
        outputs = [result["output"] for result in execution.dispatch["needed"]]
        results = await shown(outputs, DEPENDENT_TASK, execution.wanted)
        said = await _conversation(execution, history_messages)
        execution.messages = list(_messages(execution, said, results))
    messages = [{"role": message.role, "content": message.content} for message in execution.messages]
    skills = {"skills": [skill.to_json() for skill in execution.skills]} if execution.skills else {}
    runtime = {} if execution.runtime == "native" else {"runtime": execution.runtime}
    if execution.attempt.is_later:
        execution.done = execution.context.ledger.done(execution.path, execution.attempt)
    done = {"done": [asdict(call) for call in execution.done]} if execution.done else {}
    execution.may_note = bool(execution.card.tools) and execution.dispatch.get("has_dependents", False)
    notes = {"may_note": True} if execution.may_note else {}
    journal.record(execution.path, "context", {"messages": messages, **skills, **runtime, **done, **notes})


def prompt_of(execution: TaskExecution) -> Prompt:
    """Return the prompt of an agent: that of its runtime, its own if it is built in, else that of its kind."""
    card, prompts = execution.card, execution.context.prompts
    if execution.runtime == "crewai":
        return prompts["crewai"]
    if card.kind in ("custom", "member"):
        return prompts["custom_tools" if card.tools else "custom"]
    return prompts[card.name if card.kind == "builtin" else "specialist"]


def model_request(
    execution: TaskExecution,
    tools: Sequence[ToolSpec] = (),
    *,
    role: ModelRole | None = None,
    tool_names: Mapping[str, str] = MappingProxyType({}),
) -> ModelRequest:
    """Return the next request of an agent, asked of its own role unless `role` names another one.

    What the supervisor called simple the generalist asks of the role `router`. A model of the agent's own is asked in
    place of its role's, so only where that role is allowed.
    """
    card, allowance = execution.card, execution.context.allowance
    is_simple = execution.dispatch.get("is_simple") and card.name == GENERALIST.name
    own = ModelRole.ROUTER if is_simple else card.role
    return ModelRequest(
        role=allowance.role(role or own),
        messages=tuple(execution.messages),
        tools=tuple(tools),
        max_tokens=allowance.max_tokens,
        prompt=prompt_of(execution).used,
        model=card.model if card.role in allowance.roles else None,
        tool_names=tool_names,
    )


def instruction(config: LLMAgentConfig | None) -> Xml:
    """Return the instruction that a user gave a custom agent, unescaped: it is not data."""
    return Xml((config.behavior_template if config else None) or "Do what your task says.")


def feedback(reasons: Sequence[str], done: Sequence[DoneCall]) -> str:
    """Return the message that sends a rejected attempt back, with what it and others before it have done."""
    text = f"{element('feedback', ' '.join(reasons))}\nThe result was rejected. Do the task again, differently."
    if not done:
        return text
    made = lines(element("done", line) for line in done_lines(done))
    return f"{text} What is in <done> was done and stays done: don't do it again, go on from it.\n{made}"


async def _conversation(execution: TaskExecution, count: int) -> list[Mapping[str, Any]]:
    """Return the conversation as the agent's policy shows it, at most `count` messages or turns.

    Policies of earlier versions are given what supervisors see, all others the calls with their results, too.
    """
    dispatch, context, config = execution.dispatch, execution.context, execution.card.config
    policy, said = (config and config.render_policy) or "last_messages", dispatch["messages"]
    if policy in _OF_MESSAGES or context.trial:  # a trial knows nothing of the thread
        return [*apply_policy(policy, said, count)]
    states = await context.turns(count)
    in_this_run = said[len(context.history) :]
    return [*apply_policy(policy, [*render_for_llm(states), *in_this_run], count)]


def _messages(
    execution: TaskExecution, said: Sequence[Mapping[str, Any]], results: Sequence[str]
) -> tuple[Message, Message]:
    sections: dict[str, str | None] = {
        "user_request": execution.dispatch["input_request"],
        "task_id": execution.task_id,
        "task": execution.task,
        "state_context": _state_context(execution, said, results),
    }
    system, user = prompt_of(execution).fill(**_agent_sections(execution), **sections)
    if not execution.skills:
        return system, user
    skills: list[Xml] = []  # each call with its constants; of skills that only read, with an example for each slot
    for skill in execution.skills:
        calls = json.dumps([call.to_json() for call in skill.calls], ensure_ascii=False)
        template = shown_template(skill, execution.dispatch["input_request"])
        content = Xml(element("similar_task", template) + element("calls", calls))
        skills.append(element("skill", content, id=skill.id[-8:]))
    return system, Message("user", f"{user.content}\n{_SKILLS_NOTE}\n{lines(skills)}")


def _agent_sections(execution: TaskExecution) -> dict[str, str]:
    """Return the sections of a prompt that describe the agent itself; CrewAI adds role and goal to its own."""
    card = execution.card
    if execution.runtime == "crewai":
        known = card.persona.backstory if card.persona else None
        return {"backstory": known or "", "behaviour": instruction(card.config)}
    if card.kind in ("custom", "member"):
        behaviour = instruction(card.config)
        if card.persona is not None:
            parts = card.persona.model_dump(exclude_none=True).items()
            persona = lines(element(name, text) for name, text in parts)
            behaviour = Xml(f"You work as this persona:\n{persona}\n\n{behaviour}")
        return {"name": card.name, "behaviour": behaviour}
    return {} if card.kind == "builtin" else {"server": card.server or card.name, "about": card.description}


def _state_context(execution: TaskExecution, said: Sequence[Mapping[str, Any]], results: Sequence[str]) -> str | None:
    """Return artifact keys, the conversation, and results and facts that the task depends on, without empty parts.

    They are JSON. `results` are those as they are shown; of the facts of other tasks the names are keys. None where all
    are empty.
    """
    dispatch, facts = execution.dispatch, shown_board(board_of(execution.dispatch["needed"]))
    others = sorted(name for name, fact in dispatch["global_state"].items() if fact["task_id"] not in facts)
    readable = [
        {"id": record["id"], "characters": record["characters"], "from": record["name"], "task_id": result["task_id"]}
        for result in (dispatch["needed"] if execution.card.tools else ())
        for record in execution.readable(result)
        if record["characters"]
    ]
    content: Mapping[str, Any] = {
        "artifacts": [*others, *readable],
        "messages": said,
        "results": {result["task_id"]: text for result, text in zip(dispatch["needed"], results, strict=True) if text},
        "facts": facts,
    }
    given = {key: value for key, value in content.items() if value}
    return json.dumps(given, ensure_ascii=False) if given else None
