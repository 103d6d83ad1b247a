"""The platform is killed during tool calls: each effect occurs once, or a person is asked about it."""

import asyncio
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.effect_recorder import AGENT, EffectRecorder
from tests.support.model_script import Answer, Rule, Script, When
from tests.support.model_server import ModelServer
from tests.support.platform import calls, decision, task, verdict
from tests.support.platform_process import PlatformProcess
from tests.support.sse import Event

type Call = tuple[str, dict[str, Any]]

TEAM: dict[str, Any] = {
    "name": "cashiers",
    "purpose": "Charges.",
    "members": [
        {"name": "cashier", "role": "Cashier", "goal": "Charges.", "server": "effects", "runtime": "native"},
    ],
}


def script(tasks: Mapping[str, Sequence[Call]], team: str = "", member: str = "") -> Script:
    """A model that has these calls made for each task, approves and answers.

    The task `team` is that of a team, whose supervisor gives the task `member`.
    """
    agents = {name: AGENT for name in tasks if name != member} | ({team: TEAM["name"]} if team else {})
    return Script(
        Rule(decision(task(member, "cashier")), When(schema="supervisor_decision", contains="<team ")),
        Rule(
            decision(*(task(name, agent) for name, agent in agents.items())), When(schema="supervisor_decision", nth=1)
        ),
        Rule(decision(), When(schema="supervisor_decision")),
        Rule(verdict("APPROVED"), When(schema="verdict")),
        *(
            Rule(
                calls(*made),
                When(tool="charge", contains=f'<task id="{name}">'),
            )
            for name, made in tasks.items()
        ),
        Rule(Answer("This is what came of it.")),
    )


def stalled(tool: str, what: str, moment: str, **more: str) -> Call:
    return tool, {"what": what, "stall": moment, "gate": "gate", **more}


def environment(model: ModelServer) -> dict[str, str]:
    return {
        **model.variables,
        "STARLING_LIMITS": json.dumps({"lease_seconds": 2}),
    }


async def http(platform: PlatformProcess, method: str, path: str, body: Any = None) -> Any:
    async with platform.client() as client, client.request(method, path, json=body) as response:
        assert response.status < 300, await response.text()
        return await response.json()


async def killed_while_out(platform: PlatformProcess, effects: EffectRecorder, whats: Sequence[str]) -> str:
    """Ask, pull the plug once all these calls have arrived or are done, open the gate, start again; give the run."""
    accepted = await http(platform, "POST", "/v1/runs", {"input": "Do it.", "thread_id": "t"})
    for what in whats:
        stands = "arrived" if what.startswith("un") else "done"
        await effects.until(stands, what)
    assert await platform.kill() == []
    effects.open("gate")
    await platform.start()
    return accepted["run_id"]


async def waiting(platform: PlatformProcess, run: str) -> list[dict[str, Any]]:
    """Return what the run asks, once it waits."""
    async with asyncio.timeout(60):
        while (state := await http(platform, "GET", f"/v1/runs/{run}"))["status"] != "waiting":
            assert state["ended_at"] is None, state
            await asyncio.sleep(0.05)
    return state["interrupts"]


async def answer(platform: PlatformProcess, run: str, resolutions: Mapping[str, str]) -> None:
    """Answer what the run asks, by the thing that the call in doubt is about."""
    replies = [
        {
            "interruptId": asked["id"],
            "status": "resolved",
            "payload": {"resolution": resolutions[asked["call"]["args"]["what"]]},
        }
        for asked in await waiting(platform, run)
    ]
    assert len(replies) == len(resolutions)
    await http(platform, "POST", f"/v1/runs/{run}/resume", replies)


async def shown(platform: PlatformProcess, run: str) -> str:
    """Return what `starling run show` prints."""
    process = await asyncio.create_subprocess_exec(
        Path(sys.executable).with_name("starling"),
        *("run", "show", run),
        stdout=asyncio.subprocess.PIPE,
        cwd=platform.folder,
        env={"PATH": "/usr/bin:/bin", "HOME": str(platform.folder), "STARLING_DATA_DIR": str(platform.folder / "data")},
    )
    output, _ = await process.communicate()
    assert process.returncode == 0
    return output.decode()


def keys(effects: EffectRecorder, at: str, what: str) -> list[str | None]:
    charges = [line for line in effects.lines(at) if line["tool"] != "find_charge"]
    return [line["key"] for line in charges if line["what"] == what]


def ended(events: Sequence[Event]) -> dict[str, str]:
    assert [event.id for event in events] == list(range(1, len(events) + 1))
    assert events[-1].type == "done"
    begun = [event.data["call_id"] for event in events if event.type == "tool_start"]
    answered = [event.data["call_id"] for event in events if event.type == "tool_result"]
    assert sorted(begun) == sorted(answered)
    return {event.data["path"]: event.data["status"] for event in events if event.type == "task_result"}


async def test_after_a_kill_each_effect_occurred_once_or_was_asked_about(open_folder: Path) -> None:
    effects = EffectRecorder(open_folder / "effects")
    tasks = {
        "t1": [stalled("read_it", "seen", "after"), stalled("put", "kept", "after")],
        "t2": [stalled("charge", "paid", "after")],
        "t3": [stalled("charge", "unpaid", "before")],
        "t4": [stalled("charge", "lost", "after")],
        "m1": [stalled("charge", "inside", "after")],
    }
    async with (
        ModelServer(script(tasks, team="t5", member="m1")) as model,
        PlatformProcess.running(open_folder, {"effects": effects.as_server()}, environment(model)) as platform,
    ):
        await http(platform, "POST", "/v1/teams/cashiers/versions", {"spec": TEAM})
        await http(platform, "POST", "/v1/teams/cashiers/activate", {})
        run = await killed_while_out(platform, effects, ["seen", "kept", "paid", "unpaid", "lost", "inside"])
        await answer(platform, run, {"paid": "done", "unpaid": "not_done", "lost": "give_up", "inside": "done"})

        statuses = ended(await platform.read(run))
        listed = {
            call["args"]["what"]: call for call in (await http(platform, "GET", f"/v1/runs/{run}/calls"))["calls"]
        }
        text = await shown(platform, run)

    assert statuses == {
        "t1": "approved", "t2": "approved", "t3": "approved", "t4": "failed", "t5": "approved", "t5/m1": "approved",
    }  # fmt: skip
    assert effects.done().count("read_it seen") == 2
    assert keys(effects, "done", "kept") == [listed["kept"]["key"]] * 2
    assert keys(effects, "done", "paid") == [listed["paid"]["key"]]
    assert keys(effects, "arrived", "unpaid") == [listed["unpaid"]["key"]] * 2
    assert keys(effects, "done", "unpaid") == [listed["unpaid"]["key"]]
    assert keys(effects, "done", "lost") == [listed["lost"]["key"]]
    assert keys(effects, "done", "inside") == [listed["inside"]["key"]]
    assert {what: (call["state"], call["settled_by"]) for what, call in listed.items()} == {
        "kept": ("succeeded", None),
        "paid": ("succeeded", "local"),
        "unpaid": ("succeeded", None),
        "lost": ("in_doubt", "local"),
        "inside": ("succeeded", "local"),
    }
    assert re.search(r"✗ effects\.charge\(.* unsafe, in_doubt, settled by local", text)
