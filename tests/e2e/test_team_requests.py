"""A plain request is routed to an imported team with a team inside it, whose members use real MCP servers."""

from pathlib import Path
from typing import Any

from tests.support.model_script import Answer, Rule, Script, When
from tests.support.model_server import ModelServer
from tests.support.platform import calls, decision, task, verdict
from tests.support.platform_process import PlatformProcess
from tests.support.reference_servers import ReferenceServers
from tests.support.sse import Event


def member(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "role": name, "goal": "Does its part.", "runtime": "native", **fields}


WRITES = {"server": "filesystem", "tools": ["filesystem.write_file"], "approval": "effects"}
ARCHIVE = {
    "name": "archive",
    "purpose": "Writes files.",
    "members": [member("keeper", **WRITES), member("copier", **WRITES)],
}
REPORTERS = {
    "name": "reporters",
    "purpose": "Writes reports about this machine.",
    "members": [
        member("watcher", server="system_health", tools=["system_health.disk"]),
        member("archive", team="archive"),
    ],
}


def planned_by(star: str, *tasks: dict[str, Any]) -> list[Rule]:
    """The rules by which the supervisor of a team, or without a name of the run, plans once and never again."""
    of_star = f'<team name="{star}"' if star else ""
    return [
        Rule(decision(*tasks), When(schema="supervisor_decision", contains=of_star, nth=1)),
        Rule(decision(), When(schema="supervisor_decision", contains=of_star)),
    ]


def script(files: Path) -> Script:
    def written(name: str) -> Answer:
        return calls(("write_file", {"path": str(files / name), "content": "The disk is half full."}))

    return Script(
        *planned_by("archive", task("t1", "keeper"), task("t2", "copier")),
        *planned_by("reporters", task("t1", "watcher"), task("t2", "archive", after=["t1"])),
        *planned_by("", task("t1", "reporters")),
        Rule(verdict("APPROVED"), When(schema="verdict")),
        Rule(calls(("disk", {})), When(tool="disk")),
        Rule(written("report.txt"), When(tool="write_file", contains='<task id="t1"')),
        Rule(written("copy.txt"), When(tool="write_file", contains='<task id="t2"')),
        Rule(Answer("It is written [1].")),
    )


async def send(platform: PlatformProcess, path: str, body: Any) -> None:
    async with platform.client() as client, client.post(path, json=body) as response:
        assert response.status < 300, await response.text()


async def answer(platform: PlatformProcess, asked: dict[str, Any], *, approved: bool) -> None:
    payload = {"status": "resolved", "payload": {"approved": approved}}
    await send(platform, f"/v1/approvals/{asked['id']}", payload)


async def test_request_reaches_members_of_a_team_inside_a_team_and_so_do_approvals(open_folder: Path) -> None:
    files = open_folder / "files"
    files.mkdir()
    every_server = ReferenceServers(open_folder).configuration()
    servers = {name: every_server[name] for name in ("system_health", "filesystem")}
    async with ModelServer(script(files)) as model:
        environment = {
            "STARLING_MODEL": "openai:scripted",
            "OPENAI_BASE_URL": model.url,
            "OPENAI_API_KEY": "none",
        }
        async with PlatformProcess.running(open_folder, servers, environment) as platform:
            for spec in (ARCHIVE, REPORTERS):
                await send(platform, f"/v1/teams/{spec['name']}/versions", {"spec": spec})
                await send(platform, f"/v1/teams/{spec['name']}/activate", {})
            asked: list[dict[str, Any]] = []
            async with platform.stream("Write a report about the disk, and a copy.") as stream:
                events: list[Event] = []
                async for event in stream:
                    events.append(event)
                    if event.type == "approval_required":
                        asked.append(event.data)
                    if event.type == "approval_required" and len(asked) == 2:
                        for one in asked:
                            await answer(platform, one, approved=one["call"]["path"] == "t1/t2/t1")

    answered, missing = events[-1].data["reply"].split("\n\n")
    assert (events[-1].data["status"], answered) == ("succeeded", "It is written [1].")
    assert missing.startswith(
        "Not answered: do t2 (filesystem.write_file failed: The call of filesystem.write_file was refused."
    )
    assert [file.name for file in files.iterdir()] == ["report.txt"]
    assert sorted(one["call"]["path"] for one in asked) == ["t1/t2/t1", "t1/t2/t2"]
    paths = {
        kind: sorted({event.data["path"] for event in events if event.type == kind})
        for kind in ("plan", "task_start", "tool_start", "task_result")
    }
    tasks = ["t1", "t1/t1", "t1/t2", "t1/t2/t1", "t1/t2/t2"]
    assert paths == {
        "plan": ["", "t1", "t1/t2"],
        "task_start": tasks,
        "tool_start": ["t1/t1", "t1/t2/t1", "t1/t2/t2"],
        "task_result": tasks,
    }
