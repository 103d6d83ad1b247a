"""What the doctor says about the agent runtimes that are installed."""

from importlib.metadata import PackageNotFoundError, version

import pytest

from starling.app.doctor import machine
from starling.core.settings.schema import Settings


async def test_installed_crewai_is_named_with_its_version() -> None:
    findings = await machine.check_runtimes(Settings())

    assert [(found.state, found.message) for found in findings] == [("ok", f"native, and CrewAI {version('crewai')}.")]


async def test_missing_crewai_is_not_a_problem_and_is_named_with_what_adds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(machine, "version", missing)

    [found] = await machine.check_runtimes(Settings())

    assert found.state == "ok"
    assert "starling-swarm[crewai]" in found.message
