"""A wish in plain words becomes a team: designed, proved, approved by an admin, and used by a later request."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.effect_recorder import EffectRecorder
from tests.support.model_script import Answer, Rule, Script, When
from tests.support.model_server import ModelServer
from tests.support.platform import calls, decision, task, verdict
from tests.support.platform_process import PlatformProcess
from tests.support.reference_servers import ReferenceServers
from tests.support.sse import Event, read_events

GOAL = "Build me a team that watches this machine's health and writes the findings into a report file."
DESIGN = {
    "name": "health_report",
    "purpose": "Watches this machine's health and writes reports about it.",
    "members": [
        {"name": "watcher", "role": "watches", "server": "system_health", "tools": ["disk"], "parts": [1]},
        {"name": "writer", "role": "writes", "server": "filesystem", "tools": ["write_file"], "parts": [2]},
    ],
    "examples": [
        {
            "request": "How full is the disk?",
            "must_call": ["system_health.disk"],
            "judged": ["It says where the report is."],
        },
        {
            "request": "Write a report about the disk into a file.",
            "must_call": ["system_health.disk", "filesystem.write_file"],
            "judged": ["It says where the report is."],
        },
    ],
}
LOOK, WRITE = task("t1", "watcher"), task("t2", "writer", after=["t1"])


def planned_by(star: str, first: list[dict[str, Any]], contains: str = "") -> list[Rule]:
    """The rules by which the supervisor of a team, or without a name of the run, plans once and never again."""
    of_star = f'<team name="{star}"' if star else ""
    text = contains or of_star
    return [Rule(decision(*first), When(schema="supervisor_decision", contains=text))]


def script(files: Path) -> Script:
    """The designer, the judge, the supervisors and the members; both trials and the later request are alike."""
    report = calls(("write_file", {"path": str(files / "report.txt"), "content": "The disk is half full."}))
    return Script(
        Rule(Answer(json.dumps(DESIGN)), When(schema="designer")),
        Rule(
            Answer(json.dumps({"met": ["it_says_where_the_report_is"], "not_met": [], "reason": ""})),
            When(schema="judge"),
        ),
        *planned_by("", [LOOK], "<user_request>How full is the disk?"),
        *planned_by("health_report", [LOOK, WRITE]),
        *planned_by("", [task("t1", "health_report")]),
        Rule(verdict("APPROVED"), When(schema="verdict")),
        Rule(Answer("The disk is half full."), When(tool="disk", last_contains="free")),
        Rule(calls(("disk", {})), When(tool="disk")),
        Rule(Answer("It was recorded."), When(tool="write_file", last_contains="[simulated")),
        Rule(Answer("It is written."), When(tool="write_file", last_contains="Successfully wrote")),
        Rule(report, When(tool="write_file")),
        Rule(Answer("It is written [1].")),
    )


@asynccontextmanager
async def platform_with(folder: Path, servers: Mapping[str, Any], script: Script) -> AsyncGenerator[PlatformProcess]:
    async with ModelServer(script) as model:
        environment = {
            **model.variables,
            "STARLING_LIMITS": json.dumps({"lease_seconds": 2}),
        }
        async with PlatformProcess.running(folder, servers, environment) as platform:
            yield platform


async def send(platform: PlatformProcess, path: str, body: Any) -> dict[str, Any]:
    async with platform.client() as client, client.post(path, json=body) as response:
        assert response.status < 300, await response.text()
        return await response.json()


async def approving(platform: PlatformProcess, run_id: str) -> list[Event]:
    """Read a run's stream until it ends or breaks off; every approval that it asks for is given."""
    events: list[Event] = []
    async with (
        platform.client() as client,
        client.get(f"/v1/runs/{run_id}/events") as response,
    ):
        async for event in until_cut_off(read_events(response)):
            events.append(event)
            if event.type == "approval_required":
                approval = {"status": "resolved", "payload": {"approved": True}}
                await send(platform, f"/v1/approvals/{event.data['id']}", approval)
    return events


async def until_cut_off(events: AsyncIterator[Event]) -> AsyncGenerator[Event]:
    with suppress(aiohttp.ClientError):
        async for event in events:
            yield event


def of(events: list[Event], kind: str) -> list[dict[str, Any]]:
    return [event.data for event in events if event.type == kind]


async def test_wish_becomes_a_team_that_a_later_request_is_given_to(open_folder: Path) -> None:
    files = open_folder / "files"
    files.mkdir()
    every_server = ReferenceServers(open_folder).configuration()
    servers = {name: every_server[name] for name in ("system_health", "filesystem")}
    async with platform_with(open_folder, servers, script(files)) as platform:
        accepted = await send(platform, "/v1/teams", {"goal": GOAL})
        built = await approving(platform, accepted["run_id"])
        written_by_trials = list(files.iterdir())
        request = await send(platform, "/v1/runs", {"input": "Report on this machine, please.", "thread_id": "t"})
        used = await approving(platform, request["run_id"])

    assert [one["findings"] for one in of(built, "checks")] == [[]]
    proofs = [(one["passed"], one["live"], one["simulated"]) for one in of(built, "proof")]
    assert proofs == [(True, 1, 0), (True, 1, 1)], json.dumps([event.data for event in built], indent=1)
    assert written_by_trials == []
    (asked,) = of(built, "approval_required")
    assert (asked["call"]["name"], asked["call"]["args"]["team"]) == ("architect.activate_team", "health_report")
    assert [one["state"] for one in of(built, "published")] == ["unproven", "active"]
    assert built[-1].data["status"] == "succeeded", built[-1].data
    assert used[-1].data["status"] == "succeeded", used[-1].data
    assert [file.read_text() for file in files.iterdir()] == ["The disk is half full."]


BUYERS_GOAL = "Build a team that charges customers and pays for what it read in the price list."
OFFICE_GOAL = "Build an office that leaves all purchases to the buyers."
BUYERS = {
    "name": "buyers",
    "purpose": "Charges and pays.",
    "members": [
        {"name": "charger", "role": "charges", "server": "effects", "tools": ["charge"], "parts": [1]},
        {"name": "payer", "role": "pays", "server": "effects", "tools": ["pay", "read_it"], "parts": [2]},
    ],
    "examples": [
        {"request": "Charge and pay for the first thing.", "must_call": ["effects.charge"], "contains": ["bought"]},
        {"request": "Read the list, then pay.", "must_call": ["effects.read_it"], "contains": ["bought"]},
    ],
}
OFFICE = {
    "name": "office",
    "purpose": "Does the purchases of an office.",
    "members": [{"name": "purchases", "role": "purchases", "goal": "Purchase.", "team": "buyers", "parts": [1]}],
    "examples": [
        {"request": "Charge for a chair.", "must_call": ["effects.charge"], "contains": ["bought"]},
        {"request": "Pay for a table.", "must_call": ["effects.pay"], "contains": ["bought"]},
    ],
}


def purchases() -> Script:
    """The payment of the later request doesn't return before its gate is open; in trials it is never made."""
    paid = calls(("pay", {"what": "table", "stall": "after", "gate": "gate"}), ("read_it", {"what": "list"}))
    return Script(
        Rule(Answer(json.dumps(BUYERS)), When(schema="designer", contains=BUYERS_GOAL)),
        Rule(Answer(json.dumps(OFFICE)), When(schema="designer", contains=OFFICE_GOAL)),
        *planned_by("buyers", [task("t1", "charger"), task("t2", "payer", after=["t1"])]),
        *planned_by("office", [task("t1", "purchases")]),
        *planned_by("", [task("t1", "office")]),
        Rule(verdict("APPROVED"), When(schema="verdict")),
        Rule(Answer("It was charged."), When(tool="charge", last_contains="[simulated")),
        Rule(Answer("It was charged."), When(tool="charge", last_contains="charge chair: fine")),
        Rule(calls(("charge", {"what": "chair"})), When(tool="charge")),
        Rule(Answer("It was paid."), When(tool="pay", last_contains="read_it list: fine")),
        Rule(Answer("It was paid."), When(tool="pay", last_contains="pay table: fine")),
        Rule(paid, When(tool="pay")),
        Rule(Answer("All is bought [1].")),
    )


async def test_team_inside_a_built_team_asks_for_approval_and_survives_a_kill_in_a_members_call(
    open_folder: Path,
) -> None:
    effects = EffectRecorder(open_folder / "effects")
    async with platform_with(open_folder, {"effects": effects.as_server()}, purchases()) as platform:
        for goal, state in ((BUYERS_GOAL, "unproven"), (OFFICE_GOAL, "proven")):
            built = await approving(platform, (await send(platform, "/v1/teams", {"goal": goal}))["run_id"])
            assert [one["state"] for one in of(built, "published")] == [state, "active"], built[-1].data
        done_in_trials = effects.done()
        request = await send(platform, "/v1/runs", {"input": "Buy a chair and a table.", "thread_id": "t"})
        before = asyncio.create_task(approving(platform, request["run_id"]))
        await effects.until("done", "table")
        assert await platform.kill() == []
        effects.open("gate")
        seen = await before
        await platform.start()
        events = await approving(platform, request["run_id"])

    assert set(done_in_trials) == {"read_it list"}
    assert [one["call"]["path"] for one in of(seen, "approval_required")] == ["t1/t1/t1", "t1/t1/t2"]
    assert events[-1].data["status"] == "succeeded", events[-1].data
    done = effects.done()[len(done_in_trials) :]
    assert [done.count(effect) for effect in ("charge chair", "pay table")] == [1, 1]
