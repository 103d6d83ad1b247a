"""`starling agent show` and the metrics count the verdicts of runs that `starling ask` sent."""

import asyncio
from pathlib import Path
from typing import Any

from starling.core.agents import LLMAgentConfig, Persona
from starling.core.teams.stars import Member, StarSpec
from starling.infra.postgres.audit import Actor
from tests.support.command_line import CliWorkspace, new_workspace
from tests.support.http_app import served_api
from tests.support.local_access import TOKEN
from tests.support.model_script import Answer
from tests.support.model_server import ModelServer
from tests.support.platform import CALLER, ScriptedModel, decision, open_platform, task, verdict
from tests.support.worker_runtime import running_worker

POET = LLMAgentConfig(id="poet", behavior_template="You write.", reflect="always")
WRITER = Member(name="poet", persona=Persona(role="Poet", goal="Write."), runtime="native")
TEAM = StarSpec(name="poets", purpose="Writes.", members=(WRITER,))
FIXED = verdict("FIXED", refined="A better poem.")


def shown(workspace: CliWorkspace, agent: str) -> str:
    """Return the line of the agent's verdicts."""
    lines = workspace.starling("agent", "show", agent).stdout.splitlines()
    return next(line for line in lines if line.startswith("verdicts")).removeprefix("verdicts").strip()


async def test_verdicts_are_counted_by_agent_and_those_on_members_of_teams_apart(
    database_url: str, tmp_path: Path
) -> None:
    """The team has a member of the custom agent's name."""
    script = ScriptedModel()
    script.supervisor(decision(task("t1", "poet"), task("t2", "poets")), decision(task("m1", "poet")), decision())
    script.agent("t1", Answer("A poem."))
    script.agent("m1", Answer("A verse."))
    script.reviewer(verdict("REJECTED", "Again."), FIXED, verdict("APPROVED"), of="t1")
    script.reviewer(verdict("REJECTED", "Again."), verdict("APPROVED"), of="m1")
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("Done [1]."))
    async with (
        ModelServer(script) as model,
        open_platform(database_url, model, {}, tmp_path) as platform,
        running_worker(platform.worker_runtime.worker),
        served_api(platform.settings, platform.services) as api,
    ):
        await platform.services.agents.create(CALLER, POET, Actor.local("test"))
        await platform.activate(TEAM)
        with new_workspace(STARLING_URL=api.url, STARLING_API_KEY=TOKEN) as workspace:
            asked = await asyncio.to_thread(workspace.starling, "ask", "Write.")
            poet, team = [await asyncio.to_thread(shown, workspace, name) for name in ("poet", "poets")]
        metrics = platform.services.storage.metrics.metrics.registry

    def counted(agent: str, status: str) -> Any:
        return metrics.get_sample_value("starling_verdicts_total", {"agent": agent, "status": status})

    assert asked.returncode == 0, asked.stdout + asked.stderr
    assert poet == "0 APPROVED, 1 FIXED, 1 REJECTED"
    assert team == "1 APPROVED, 0 FIXED, 0 REJECTED"
    assert [counted("poet", status) for status in ("APPROVED", "FIXED", "REJECTED")] == [None, 1, 1]
    assert [counted("poets", "APPROVED"), counted("other", "APPROVED"), counted("other", "REJECTED")] == [1, 1, 1]
