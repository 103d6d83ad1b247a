"""The platform is killed while a run waits for approval, or right after it: the call is made once."""

import json
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.effect_recorder import AGENT, EffectRecorder
from tests.support.model_script import Answer, Rule, Script, When
from tests.support.model_server import ModelServer
from tests.support.platform import calls, decision, task, verdict
from tests.support.platform_process import PlatformProcess


def script(**arguments: str) -> Script:
    return Script(
        Rule(decision(task("t1", AGENT)), When(schema="supervisor_decision")),
        Rule(verdict("APPROVED"), When(schema="verdict")),
        Rule(calls(("charge", {"what": "a", **arguments})), When(tool="charge")),
        Rule(Answer("Charged [1].")),
    )


def environment(model: ModelServer) -> dict[str, str]:
    return {
        "STARLING_MODEL": "openai:scripted",
        "OPENAI_BASE_URL": model.url,
        "OPENAI_API_KEY": "none",
        "STARLING_LIMITS": json.dumps({"lease_seconds": 2}),
    }


async def asked(platform: PlatformProcess, kind: str) -> dict[str, Any]:
    """Send a request and return what it waits for."""
    async with platform.stream("charge a") as events:
        async for event in events:
            if event.type == kind:
                return event.data
    raise AssertionError("nothing was asked")


async def resolve(platform: PlatformProcess, interrupt: str, payload: dict[str, Any]) -> str:
    """Answer one, and return whose it is."""
    async with (
        aiohttp.ClientSession(platform.address) as client,
        client.post(f"/v1/approvals/{interrupt}", json={"status": "resolved", "payload": payload}) as response,
    ):
        assert response.status == 202, await response.text()
        return (await response.json())["run_id"]


async def test_run_approved_after_a_kill_and_killed_right_after_the_approval_makes_the_call_once(
    open_folder: Path,
) -> None:
    effects = EffectRecorder(open_folder / "effects")
    servers = {"effects": effects.as_server(approval="unsafe")}
    async with (
        ModelServer(script()) as model,
        PlatformProcess.running(open_folder, servers, environment(model)) as platform,
    ):
        question = await asked(platform, "approval_required")
        await platform.kill()
        await platform.start()
        asked_for = len(model.requests)
        run_id = await resolve(platform, question["id"], {"approved": True})
        await platform.kill()
        await platform.start()
        status = await to_the_end(platform, run_id)
        events = await platform.read(run_id)

    assert (status, asked_for) == ("succeeded", 2)
    assert [event.id for event in events] == list(range(1, len(events) + 1))
    assert effects.done() == ["charge a"]


async def to_the_end(platform: PlatformProcess, run_id: str) -> str:
    """Read a run to its end and return its status; answer a call in doubt by what the record has."""
    async with (
        aiohttp.ClientSession(platform.address) as client,
        client.get(f"/v1/runs/{run_id}/events") as response,
    ):
        async for line in response.content:
            if not line.startswith(b"data: "):
                continue
            data = json.loads(line[6:])
            if data["type"] == "in_doubt":
                known = EffectRecorder(Path(platform.folder) / "effects").done()
                await resolve(platform, data["id"], {"resolution": "done" if known else "not_done"})
            if data["type"] == "done":
                return data["status"]
    raise AssertionError("the stream has no end")
