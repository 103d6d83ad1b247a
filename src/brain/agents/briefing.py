"""What an agent is told: its task and what that needs of the run, never the whole history."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from brain.agents.runtime import Work
from brain.prompts import Prompt, element, prompt
from brain.registry.cards import AgentCard
from starling.core.llm import Message

_MESSAGE_CHARS = 600
_RESULT_CHARS = 6_000


def brief(work: Work) -> list[Message]:
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
    """Return the prompt that an agent is briefed with: its own if it is built in, else that of specialists."""
    return prompt(card.name if card.kind == "builtin" else "specialist")


def feedback(reasons: Sequence[str]) -> Message:
    """Return the message that sends a rejected attempt back."""
    return Message(
        "user", f"{element('feedback', ' '.join(reasons))}\nThe result was rejected. Do the task again, differently."
    )


def _messages(work: Work) -> tuple[Message, Message]:
    sections = {
        "user_request": work.dispatch["input_request"],
        "task_id": work.task_id,
        "task": work.task,
        "state_context": _state_context(work),
    }
    template = prompt_of(work.card)
    if work.card.kind == "builtin":
        return template.fill(**sections)
    about = work.card.description
    return template.fill(server=work.card.server or work.card.name, about=about, **sections)


def _state_context(work: Work) -> str:
    """Artifact keys, the last messages and the results that the task depends on, as JSON."""
    dispatch = work.dispatch
    last = work.context.limits.worker_context_messages
    content: Mapping[str, Any] = {
        "artifacts": sorted(dispatch["global_state"]),
        "messages": [
            {"role": said["role"], "content": said["content"][:_MESSAGE_CHARS]}
            for said in (dispatch["messages"][-last:] if last else [])
        ],
        "results": {result["task_id"]: result["output"][:_RESULT_CHARS] for result in dispatch["needed"]},
    }
    return json.dumps({key: value for key, value in content.items() if value}, ensure_ascii=False)
