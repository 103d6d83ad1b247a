"""The events of a build as a stream has them: designed, found faulty, repaired, tried on two cases, stored."""

from collections.abc import Iterator, Sequence
from typing import Any

RUN = "01a1f8ac-cbf4-7cdd-97b7-5ad5f772744e"

type Event = dict[str, Any]

PLAN: Event = {
    "type": "plan",
    "version": 1,
    "plan": ["Build it."],
    "tasks": [{"id": "t1", "agent": "architect", "task": "a team", "depends_on": [], "status": "pending"}],
    "thought_process": "",
    "path": "",
}
START: Event = {"type": "task_start", "task_id": "t1", "agent": "architect", "path": "t1", "attempt": 1}
MEMBERS: Sequence[dict[str, Any]] = (
    {"name": "disk", "role": "Watcher", "server": "system_health", "tools": ["system_health.disk"]},
    {"name": "all", "role": "Watcher", "server": "system_health", "tools": [f"system_health.{n}" for n in range(5)]},
    {"name": "inner", "role": "Reader", "team": "readers", "tools": []},
    {"name": "writer", "role": "Writer", "server": None, "team": None, "tools": []},
)
DESIGN: Event = {
    "type": "design",
    "path": "t1",
    "attempt": 2,
    "team": "machine_watch",
    "purpose": "Watches the disk and the memory of this machine, and says how full both of them are.",
    "members": list(MEMBERS),
    "missing": [{"part": "send it by SMS", "nearest": ["mail", "chat"]}],
}
FINDING = {
    "path": "members[0].server",
    "rule": "unknown_server",
    "reason": "There is no server 'system_healt'.",
    "remedy": "Did you mean 'system_health'? The servers are system_health and time.",
}
FAULTY: Event = {"type": "checks", "path": "t1", "attempt": 1, "findings": [FINDING]}
SOUND: Event = {"type": "checks", "path": "t1", "attempt": 2, "findings": []}
PASSED: Event = {
    "type": "proof",
    "path": "t1",
    "team": "machine_watch",
    "case": "one",
    "passed": True,
    "criteria": [{"id": "percent", "met": True, "reason": ""}],
    "live": 2,
    "fixture": 0,
    "simulated": 1,
    "trial_path": "t1.case1",
}
FAILED: Event = PASSED | {
    "case": "two",
    "passed": False,
    "criteria": [*PASSED["criteria"], {"id": "sum", "met": False, "reason": "The answer has no sum."}],
    "live": 0,
    "simulated": 0,
    "trial_path": "t1.case2",
}
STORED: Event = {
    "type": "published",
    "path": "t1",
    "team": "machine_watch",
    "version": 1,
    "state": "active",
    "epoch": 4,
}
DONE: Event = {
    "type": "done",
    "usage": {"tokens": 1, "input_tokens": 1, "output_tokens": 0, "model_calls": 1, "tool_calls": 2},
    "status": "succeeded",
    "reply": "It is built.",
}
APPROVAL: Event = {
    "type": "approval_required",
    "id": "01a1f8ac-cbf4-7cdd-97b7-5ad5f7727450",
    "reason": "A team that may change something, or that is not proven, is activated by an admin only.",
    "message": "Version 1 of the team machine_watch was built. May it be activated?",
    "responseSchema": {"type": "object"},
    "expiresAt": "2026-11-21T11:12:03+00:00",
    "call": {
        "name": "architect.activate_team",
        "args": {
            "team": "machine_watch",
            "version": 1,
            "hash": "3f1c7a52d8e9",
            "tools": [f"files.write_file_{n}" for n in range(6)],
            "proof": "unproven",
            "not_judged": ["No case tried the part 'Send it.' by live results."],
            "reason": "It is not proven.",
        },
        "task_id": "t1",
        "path": "t1",
        "call_id": f"{RUN}/t1",
    },
}


def started(run: str = RUN) -> Event:
    return {"type": "run_started", "run_id": run, "thread_id": "t", "trace_id": "f", "epoch": 3, "correlation_id": run}


def trial(path: str, *, failed: bool = False) -> Iterator[Event]:
    """Yield what a team of one member does with a case."""
    planned: Event = {"id": "t1", "agent": "disk", "task": "How full is it?", "depends_on": [], "status": "pending"}
    task = {"task_id": "t1", "agent": "disk", "path": f"{path}/t1", "attempt": 1}
    yield PLAN | {"path": path, "tasks": [planned]}
    yield {"type": "task_start", **task}
    results: Sequence[Event] = (
        {"name": "system_health.disk", "result": "90 % " * 40},
        {"name": "files.write", "result": "[simulated: files.write was not called]\n90 %", "simulated": "fixture"},
    )
    for number, result in enumerate(results):
        call = {"call_id": f"{path}/t1.0.{number}", "name": result["name"]}
        yield {"type": "tool_start", "args": {"path": "/"}, "task_id": "t1", "path": f"{path}/t1", **call}
        yield {"type": "tool_result", "status": "succeeded", **call, **result}
    yield {
        "type": "reflection",
        "task_id": "t1",
        "path": f"{path}/t1",
        "attempt": 1,
        "status": "APPROVED",
        "reasons": [],
    }
    status, summary = ("failed", "The disk is away.") if failed else ("approved", "It is full.")
    yield {"type": "task_result", **task, "status": status, "summary": summary, "artifacts": []}


BUILD: Sequence[Event] = (PLAN, START, DESIGN, SOUND, *trial("t1.case1"), PASSED, *trial("t1.case2"), FAILED, STORED)
