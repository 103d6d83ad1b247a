"""Completion by Tab, as a shell asks for it."""

import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.scripted_platform import ScriptedPlatform

_RUN = "01a1f8ac-cbf4-7cdd-97b7-5ad5f772744e"
_PROGRAM = "import sys; sys.argv = ['starling']; from starling.app.cli import main; main()"
_ANSWERS = {
    "/v1/runs": {"runs": [{"run_id": _RUN, "thread_id": "trip", "status": "succeeded"}]},
    "/v1/threads": {"threads": [{"id": "trip", "branch": "main"}]},
    "/v1/servers": {"servers": [{"name": "time", "state": "ready"}, {"name": "git", "state": "degraded"}]},
    "/v1/agents": {"agents": [{"name": "generalist", "kind": "builtin"}]},
    "/v1/teams": {"teams": [{"name": "coding", "state": "active"}]},
    "/v1/skills": {"skills": [{"id": _RUN, "state": "active"}]},
}


@pytest.fixture(scope="module")
def url() -> Generator[str]:
    with ScriptedPlatform(answers=_ANSWERS).serving() as platform:
        yield platform.url


def completed(folder: Path, url: str, line: str) -> list[str]:
    """Return what a shell offers at the end of a line."""
    words = line.split(" ")
    variables = {
        "_STARLING_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
        "STARLING_URL": url,
        "STARLING_DATA_DIR": str(folder / "data"),
        "HOME": str(folder),
        "PATH": os.environ["PATH"],
        "PYTHONPATH": ":".join(sys.path),
    }
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, env=variables, cwd=folder, check=False
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("starling run show ", ["last", _RUN]),
        ("starling run show f77", ["f772744e"]),
        ("starling server show ", ["time", "git"]),
        ("starling agent show gen", ["generalist"]),
        ("starling team activate ", ["coding"]),
        ("starling skill show 01", [_RUN]),
        ("starling chat --thread t", ["trip"]),
        ("starling cha", ["chat"]),
    ],
)
def test_names_and_ids_of_the_platform_are_offered(tmp_path: Path, url: str, line: str, offered: list[str]) -> None:
    assert completed(tmp_path, url, line) == offered


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "nonsense"])
def test_nothing_is_offered_or_said_where_no_platform_answers(tmp_path: Path, url: str) -> None:
    assert completed(tmp_path, url, "starling server show ") == []
