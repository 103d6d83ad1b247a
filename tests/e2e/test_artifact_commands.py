"""`starling run artifacts`: results too long for a stream are listed, printed and saved unchanged."""

import hashlib
import re
import subprocess
from collections.abc import Generator
from typing import Any

import pytest

from starling.core.artifacts import artifact_id
from tests.support.command_line import STARLING, CliWorkspace, new_workspace, server_file
from tests.support.gateway_harness import SERVERS, python
from tests.support.mcp_servers.verbose import picture, poem
from tests.support.terminal import Terminal

_LINES = 2_000


@pytest.fixture(scope="module")
def workspace() -> Generator[CliWorkspace]:
    with new_workspace() as workspace:
        yield workspace


@pytest.fixture(scope="module")
def run(workspace: CliWorkspace) -> Generator[str]:
    """The id of a run whose result was too long; the platform goes on running."""
    poet = python(SERVERS / "verbose.py", str(workspace.folder / "said"), effect="read", description="Recites poems.")
    file = server_file(workspace, poet=poet.model_dump(mode="json", by_alias=True, exclude_defaults=True))
    with workspace.running("up", "--port", "0", "--mcp-config", file) as service:
        asked = workspace.starling("ask", f"Recite a poem of {_LINES} lines.", "--url", service.url)
        assert asked.returncode == 0, asked.stdout + asked.stderr
        yield workspace.json("run", "list")[0]["id"]


def test_binary_artifact_goes_into_a_pipe_unchanged_and_not_onto_a_terminal(workspace: CliWorkspace, run: str) -> None:
    drawn = workspace.starling("ask", "Draw a picture of 40 lines.")
    assert drawn.returncode == 0, drawn.stdout + drawn.stderr
    of = workspace.json("run", "list")[0]["id"]
    assert of != run
    command = ("run", "artifacts", of, artifact_id(picture(40)))

    piped = subprocess.run(
        [STARLING, *command], capture_output=True, cwd=workspace.folder, env=workspace.environment, check=True
    )
    with Terminal.running(workspace, *command) as terminal:
        shown = terminal.until("FILE`")

    assert piped.stdout == picture(40)
    assert "The artifact is binary (image/png), not text." in shown


def test_artifacts_of_a_run_are_listed(workspace: CliWorkspace, run: str) -> None:
    listed: list[dict[str, Any]] = workspace.json("run", "artifacts", run)
    table = workspace.starling("run", "artifacts", run).stdout.splitlines()
    shown = workspace.starling("run", "show", run).stdout

    assert [(item["name"], item["bytes"]) for item in listed] == [("poet.recite", len(poem(_LINES)))]
    assert table[0].split("\t") == ["ARTIFACT", "CALL", "TOOL", "TYPE", "BYTES"]
    assert table[1].startswith(listed[0]["id"])
    assert re.search(rf"✓ poet\.recite\(.*  artifact {listed[0]['id'][:12]}  ", shown)


def test_artifact_is_printed_unchanged(workspace: CliWorkspace, run: str) -> None:
    (listed,) = workspace.json("run", "artifacts", run)

    piped = subprocess.run(
        [STARLING, "run", "artifacts", run, listed["id"][:8]],
        capture_output=True, cwd=workspace.folder, env=workspace.environment, check=True,
    )  # fmt: skip
    document = workspace.json("run", "artifacts", run, listed["id"])

    assert hashlib.sha256(piped.stdout).hexdigest() == listed["id"]
    assert document == {"id": listed["id"], "media_type": "text/plain", "content": poem(_LINES)}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("no-id",), "is not the id of a run"),
        (("01a1f8ac-cbf4-7cdd-97b7-5ad5f772744e",), "There is no run"),
        (("RUN", "0" * 64), "There is no artifact"),
        (("RUN", "--tenant", "shop"), "There is no run"),
    ],
)
def test_unknown_artifact_or_run_is_refused(
    workspace: CliWorkspace, run: str, arguments: tuple[str, ...], said: str
) -> None:
    done = workspace.starling("run", "artifacts", *(run if word == "RUN" else word for word in arguments))

    assert done.returncode == 2
    assert said in done.stderr
