"""What CrewAI does to its surroundings, watched by an audit hook in a process of its own."""

import asyncio
import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.support.model_documents import verdict_json
from tests.support.model_script import Answer, Rule, Script, When
from tests.support.model_server import ModelServer

ROOT = Path(__file__).parents[3]
LOOK: dict[str, Any] = {"name": "look", "arguments": {"thing": "tea"}}
ORDER: dict[str, Any] = {"name": "order", "arguments": {"item": "tea"}}
DOUBT: dict[str, Any] = {"name": "order", "arguments": {"item": "doubt"}}


def script() -> Script:
    """A model that makes the first agent call tools in parallel, lets the second answer at once, fails the third.

    The fourth makes a call whose outcome is unknown, and the fifth calls tools for as long as it may.
    """
    return Script(
        Rule(Answer(verdict_json("APPROVED")), When(schema="verdict")),
        Rule(Answer(status=400), When(contains=">fail</task>")),
        Rule(Answer(tool_calls=[LOOK, DOUBT]), When(contains=">doubt</task>")),
        Rule(Answer(tool_calls=[LOOK]), When(contains=">tireless</task>", tool="order")),
        Rule(Answer("Nothing was bought."), When(contains=">buy nothing</task>")),
        Rule(Answer(tool_calls=[LOOK, ORDER, LOOK]), When(tool="order", nth=1)),
        Rule(Answer("Tea was bought.")),
    )


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home folder with CrewAI in it, below a `.env` that loading it would find."""
    spec = find_spec("crewai")
    assert spec is not None, "The extra `crewai` is not installed: run make environment."
    assert spec.origin is not None
    home = tmp_path / "home"
    (home / "packages").mkdir(parents=True)
    (home / "packages/crewai").symlink_to(Path(spec.origin).parent)
    (home / ".env").write_text("FOUND_IN_A_FILE=1\nOPENAI_API_KEY=wrong\n")
    return home


async def test_crewai_connects_to_the_model_only_prints_nothing_and_leaves_the_home_folder_alone(
    home: Path, tmp_path: Path
) -> None:
    before = sorted(home.rglob("*"))
    path = os.pathsep.join([str(home / "packages"), str(ROOT / "src"), str(ROOT)])
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": path, "TMPDIR": str(tmp_path)}
    report = tmp_path / "report"
    async with ModelServer(script()) as model:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "tests.support.guarded_crew", model.url, str(report)),
            cwd=home,
            env=environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        printed, _ = await process.communicate()
        host, port = model.root.removeprefix("http://").split(":")

    assert printed.decode() == ""
    found = json.loads(report.read_text())
    assert found["ended"] == ["approved", "failed", "failed", "suspended", "approved"]
    assert set(found["connected"]) == {str((host, int(port)))}
    assert not {"started", "looked_up"} & set(found)  # neither programs nor names of hosts
    assert {file for file in found["written"] if file.startswith(str(home))} == set()
    assert sorted(home.rglob("*")) == before
    assert not Path(found["folder"]).exists()
    assert "FOUND_IN_A_FILE" not in found["changed"]
    assert found["changed"]["CREWAI_DISABLE_TELEMETRY"] == "true"
