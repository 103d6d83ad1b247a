"""What an agent is told: its task and what that needs of the run, never the whole history."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from brain.agents.runtime import TaskExecution
from brain.conversation.rendering import POLICIES, last_messages
from brain.prompts import Prompt, Xml, element, prompt
from brain.registry.cards import AgentCard
from starling.core.agents import LLMAgentConfig
from starling.core.llm import Message

_RESULT_CHARS = 6_000


def brief(work: TaskExecution) -> list[Message]:
    """Return the first messages of a task: recorded ones where the run was resumed, so that hashes match."""
    journal = work.context.journal
    recorded = journal.find(work.path, "context")
    if recorded is not None:
        return [Message(**message) for message in recorded["messages"]]
    messages = _messages(work)
    journal.record(
        work.path, "context", {"messages": [{"role": message.role, "content": message.content} for message in messages]}
    )
    return list(messages)


def prompt_of(card: AgentCard) -> Prompt:
    """Return the prompt that an agent is briefed with: its own if it is built in, else that of its kind."""
    if card.kind == "custom":
        return prompt("custom_tools" if card.tools else "custom")
    return prompt(card.name if card.kind == "builtin" else "specialist")


def instruction(config: LLMAgentConfig) -> Xml:
    """Return what a custom agent is told by its user, as it stands: it is an instruction, not data."""
    return Xml(config.behavior_template or "Do what your task says.")


def feedback(reasons: Sequence[str]) -> Message:
    """Return the message that sends a rejected attempt back."""
    return Message(
        "user", f"{element('feedback', ' '.join(reasons))}\nThe result was rejected. Do the task again, differently."
    )


def _messages(work: TaskExecution) -> tuple[Message, Message]:
    sections = {
        "user_request": work.dispatch["input_request"],
        "task_id": work.task_id,
        "task": work.task,
        "state_context": _state_context(work),
    }
    return prompt_of(work.card).fill(**_about(work.card), **sections)


def _about(card: AgentCard) -> dict[str, str]:
    """What a prompt says of the agent itself."""
    if card.config:
        return {"name": card.name, "behaviour": instruction(card.config)}
    return {} if card.kind == "builtin" else {"server": card.server or card.name, "about": card.description}


def _state_context(work: TaskExecution) -> str:
    """Artifact keys, the conversation as the agent is shown it and the results that the task depends on, as JSON."""
    dispatch, config = work.dispatch, work.card.config
    shown = POLICIES[config.render_policy] if config and config.render_policy else last_messages
    content: Mapping[str, Any] = {
        "artifacts": [*sorted(dispatch["global_state"]), *_readable(work)],
        "messages": shown(dispatch["messages"], work.context.limits.worker_context_messages),
        "results": {result["task_id"]: result["output"][:_RESULT_CHARS] for result in dispatch["needed"]},
    }
    return json.dumps({key: value for key, value in content.items() if value}, ensure_ascii=False)


def _readable(work: TaskExecution) -> list[dict[str, Any]]:
    """What an agent that calls tools can read on in, with the task and the tool that it comes from."""
    if not work.card.tools:
        return []
    return [
        {"id": record["id"], "characters": record["characters"], "from": record["name"], "task_id": result["task_id"]}
        for result in work.dispatch["needed"]
        for record in result.get("artifacts", ())
    ]
