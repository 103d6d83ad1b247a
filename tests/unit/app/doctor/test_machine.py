"""What the doctor says about the agent runtimes that are installed."""

from importlib.metadata import version

from starling.app.doctor import machine
from starling.core.settings.schema import Settings


async def test_installed_crewai_is_named_with_its_version() -> None:
    findings = await machine.check_runtimes(Settings())

    assert [(found.state, found.message) for found in findings] == [("ok", f"native, and CrewAI {version('crewai')}.")]


def test_missing_crewai_is_no_problem_and_named_with_what_adds_it() -> None:
    found = machine.runtimes_finding(None)

    assert found.state == "ok"
    assert "starling-swarm[crewai]" in found.message
