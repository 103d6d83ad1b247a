"""What would help where nothing was found out, by its cause; what failed inside a team is said outside."""

import re
from typing import Any

import pytest

from starling.core.agents import Persona
from starling.core.teams.stars import Member, StarSpec
from starling.infra.postgres.audit import Actor
from starling.infra.postgres.kill_switches import Target
from tests.integration.brain.conftest import Open
from tests.integration.brain.test_switches import answers
from tests.support.model_script import Answer
from tests.support.platform import BENCH, Platform, ScriptedModel, Workbench, calls, decision, task, verdict

SERVER = "a server with a tool for it"
LOOK, TO_BENCH = calls(("look", {"thing": "disk"})), decision(task("t1", BENCH, "look at the disk"))
UNSERVED, FLIGHT = (decision(unserved=[{"part": it, "reason": "no"}]) for it in ("look at the disk", "book a flight"))
# The plan, the agent's answer, what the remedy is about; only of the last three does no server have a tool.
CAUSES: dict[str, tuple[Answer, Answer, str]] = {
    "rejected by the reviewer": (TO_BENCH, LOOK, "review|wrong disk"),
    "model fails": (TO_BENCH, Answer(status=500, body="{}"), "model"),
    "no call although there is a tool": (TO_BENCH, Answer("I can't."), "model|wording"),
    "misspelt tool": (TO_BENCH, calls(("lookk", {"thing": "disk"})), "model|wording"),
    "wrong arguments": (TO_BENCH, calls(("look", {"item": "disk"})), "model|wording"),
    "tool fails": (TO_BENCH, calls(("fail", {"why": "no disk"})), "."),
    "server away": (decision(task("t1", "mcp_agent_gone", "look at the disk")), LOOK, "gone|the server"),
    "empty plan": (decision(), LOOK, "model|wording"),
    "part given to nobody": (UNSERVED, LOOK, "model|wording"),
    "no such agent": (decision(task("t1", "nobody", "book a flight")), LOOK, SERVER),
    "no such tool": (TO_BENCH, calls(("get_weather", {})), SERVER),
    "part that nobody can do": (FLIGHT, LOOK, SERVER),
}


async def helps(platform: Platform) -> str:
    """Return what would help, of a run that found out nothing."""
    stream = await platform.ask("Look at the disk.")
    assert stream.status == "failed"
    return " ".join(re.findall("What would help: (.*)", stream.reply))


@pytest.mark.parametrize("cause", CAUSES)
async def test_remedy_fits_the_cause(opened: Open, workbench: Workbench, script: ScriptedModel, cause: str) -> None:
    plan, agent, about = CAUSES[cause]
    script.supervisor(plan, plan, decision())  # a plan that names nobody is asked for again at once
    script.agent("t1", agent)
    script.reviewer(verdict("REJECTED", "It is the wrong disk."))

    async with opened(servers={"bench": workbench.as_server("read"), "gone": {"url": "http://127.0.0.1:9/mcp"}}) as it:
        remedy = await helps(it)

    assert re.search(about, remedy), remedy
    assert (SERVER in remedy) == (about == SERVER), remedy


@pytest.mark.parametrize(("kind", "name"), [("server", "bench"), ("agent", BENCH)])
async def test_remedy_names_the_switch(platform: Platform, script: ScriptedModel, kind: Any, name: str) -> None:
    script.supervisor(TO_BENCH, decision())
    script.agent("t1", LOOK)
    await platform.services.storage.switches.off(Target(kind, name), "It lies.", Actor.local("test"))
    await answers(platform, "switched_off", agent=BENCH)

    remedy = await helps(platform)

    assert re.search(rf"switch.*\b{name}\b", remedy), remedy
    assert SERVER not in remedy


@pytest.mark.parametrize("recovers", [False, True])
async def test_member_that_failed_inside_a_team_is_not_answered_outside(
    platform: Platform, script: ScriptedModel, *, recovers: bool
) -> None:
    may: Any = {"server": "bench", "tools": ("bench.look", "bench.fail"), "runtime": "native"}
    looker = Member(name="looker", persona=Persona(role="watcher", goal="look at machines"), **may)
    await platform.activate(StarSpec(name="machines", purpose="Looks after machines.", members=(looker,)))
    inside = decision(task("t1", "looker", "look at the disk"), task("t2", "looker", "look at the fan"))
    again = decision(task("t2", "looker", "look at the fan")) if recovers else decision()
    script.supervisor(decision(task("t3", "machines")), inside, again, decision())
    script.agent("t1", LOOK)
    script.agent("t2", *[calls(("fail", {"why": "no fan"}))] * 2, calls(("look", {"thing": "fan"})))
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("All that was found [1]."))

    stream = await platform.ask("How are the disk and the fan?")

    missing = [] if recovers else ["look at the fan"]
    assert (stream.status, stream.reply.startswith("All that was found [1].")) == ("succeeded", True)
    assert ["look at the fan"] * ("Not answered: look at the fan" in stream.reply) == missing
    assert [part["part"] for part in stream.done["degraded"]] == missing
