"""The demo, as `make demo` runs it."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Generator, Sequence
from pathlib import Path

import psutil
import pytest

from starling.infra.postgres.embedded.cluster import locate
from starling.infra.postgres.embedded.os_process import service_account
from tests.support.command_line import new_workspace

_ROOT = Path(__file__).parents[2]
_DEMO = _ROOT / "examples/demo"


def _demo(cache: Path, *command: str | Path) -> subprocess.CompletedProcess[str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH") if name in os.environ}
    environment = {**kept, "STARLING_DEMO_CACHE": str(cache), "STARLING_MODEL": "offline:rules"}
    return subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, env=environment, check=False)


def _running_in(folder: Path) -> Sequence[psutil.Process]:
    """Return the processes that have to do with a folder."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        try:
            if any(str(folder) in text for text in (*process.cmdline(), *process.environ().values())):
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.fixture
def closed_folder(tmp_path: Path) -> Generator[Path]:
    """A folder that only its owner may enter; what the embedded Postgres keeps elsewhere under root is removed."""
    tmp_path.chmod(0o700)
    yield tmp_path
    cluster = locate(tmp_path / "starling", service_account(), explicit=False)
    for folder in (cluster.control, cluster.home):
        shutil.rmtree(folder, ignore_errors=True)


def _tour(cache: Path, *command: str | Path) -> None:
    done = _demo(cache, *command)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "America/Lima" in done.stdout
    assert done.stdout.count("Succeeded:") == 4
    assert re.search(r"^(\w+)@1 is active from epoch \d+ on\.$", done.stdout, re.MULTILINE)
    assert "@1 is proven.\n100% of the criteria are met" in done.stdout
    assert "Skill used: What time is it in {timezone}" in done.stdout
    assert re.search(r"^Plan: t1 system_health_team\w*: How full is the disk, and how", done.stdout, re.MULTILINE)


def test_demo_in_a_private_folder_uses_specialists_and_a_team_and_fails_if_only_one_was_used(
    closed_folder: Path,
) -> None:
    _tour(closed_folder, "make", "demo")

    done = _demo(closed_folder, sys.executable, _DEMO / "run.py", "What time is it in Lima?")

    assert done.stdout.count("Succeeded:") == 1, done.stdout + done.stderr
    assert done.returncode == 1
    assert _running_in(closed_folder) == []


@pytest.mark.soak
def test_second_tour_of_a_folder_is_like_the_first() -> None:
    with new_workspace() as workspace:
        for _ in range(2):
            _tour(workspace.folder, sys.executable, _DEMO / "run.py")


def test_killed_demo_leaves_no_process() -> None:
    with new_workspace() as workspace:
        variables = {**os.environ, "STARLING_DEMO_CACHE": str(workspace.folder), "STARLING_MODEL": "offline:rules"}
        with subprocess.Popen([sys.executable, _DEMO / "run.py"], stdout=subprocess.PIPE, env=variables) as demo:
            assert demo.stdout is not None
            demo.stdout.readline()
            family = psutil.Process(demo.pid).children(recursive=True)

            demo.kill()

            assert len(family) > 1
            assert psutil.wait_procs(family, timeout=30)[1] == []


def test_demo_marks_foreign_servers_as_read_only() -> None:
    servers = json.loads((_DEMO / "mcp.json").read_text())["mcpServers"]
    effects = servers["git"]["x-starling"]["tools"]

    assert "effect" not in servers["git"]["x-starling"]
    assert {item["effect"] for item in effects.values()} == {"read"}
    assert not {"git_commit", "git_add", "git_reset", "git_checkout", "git_create_branch"} & effects.keys()
