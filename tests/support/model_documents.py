"""The JSON documents that models answer with: decisions of the supervisor and verdicts of the reviewer."""

import json
from collections.abc import Sequence
from typing import Any


def task(task_id: str, agent: str, text: str = "", after: Sequence[str] = ()) -> dict[str, Any]:
    """A task in a decision."""
    return {"task_id": task_id, "agent": agent, "task": text or f"do {task_id}", "depends_on": list(after)}


def decision_json(*tasks: dict[str, Any], **fields: Any) -> str:
    """A decision that gives these tasks; `fields` replace the rest of it."""
    document = {
        "thought_process": "because",
        "plan": [item["task"] for item in tasks],
        "selected_agents": tasks,
        "reply": "",
        "assumptions": [],
        "unserved": [],
        "is_request_satisfied": False,
        "is_in_loop": False,
        "is_progress_being_made": True,
    }
    return json.dumps(document | fields)


def verdict_json(status: str, *reasons: str, refined: str = "") -> str:
    """A verdict."""
    document: dict[str, Any] = {
        "status": status,
        "refined_output": refined,
        "reasons": reasons,
        "evidence": [],
        "changed": [],
    }
    return json.dumps(document)


def design_json(server: str) -> str:
    """Return a designer's team of one member that looks at things with a server, with two examples."""
    member = {"name": "looker", "role": "Looker", "goal": "Look.", "server": server, "tools": [f"{server}.look"]}
    shown = {"must_call": [f"{server}.look"], "contains": ["fine"]}
    examples = [{"request": f"Look at disk {number}.", **shown} for number in (1, 2)]
    members = [{**member, "parts": [1]}]
    return json.dumps({"name": "watch", "purpose": "Looks.", "members": members, "examples": examples})
