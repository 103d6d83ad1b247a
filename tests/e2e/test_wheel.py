"""The built wheel in an environment of its own: its dependencies suffice, and it answers in an empty folder."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command_line import Service, new_workspace
from tests.support.documented_commands import ROOT

pytestmark = pytest.mark.timeout(300)  # nothing of the new environment is compiled yet


def run(*command: str | Path, folder: Path = ROOT) -> str:
    return subprocess.run(command, cwd=folder, text=True, check=True, stdout=subprocess.PIPE).stdout


def test_installed_wheel_answers_a_request_in_an_empty_folder(tmp_path: Path) -> None:
    python = tmp_path / "environment" / "bin" / "python"
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path)
    run("scripts/uv", "venv", "--quiet", "--python", sys.executable, python.parents[1])
    (wheel,) = tmp_path.glob("*.whl")
    run("scripts/uv", "pip", "install", "--quiet", "--python", python, "--constraint", "requirements.lock", wheel)
    starling = python.with_name("starling")

    with new_workspace() as workspace:
        folder = workspace.folder
        environment = {name: value for name, value in workspace.environment.items() if name != "PYTHONPATH"}
        subprocess.run([starling, "init"], cwd=folder, env=environment, check=True)
        up = [starling, "up", "--port", "0", "--json"]
        with subprocess.Popen(
            up, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            try:
                Service.ready(process)
                asked = subprocess.run(
                    [starling, "ask", "How full is the disk?"],
                    cwd=folder, env=environment, text=True, capture_output=True, check=False,
                )  # fmt: skip
            finally:
                process.terminate()

    assert asked.returncode == 0, asked.stdout + asked.stderr
    assert "disk" in asked.stdout
