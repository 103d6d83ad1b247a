"""The files of a release: checksums, bill of materials, and the wheel in an environment of its own."""

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from starling.app.telemetry.build_info import build_info
from tests.support.command_line import Service, new_workspace
from tests.support.documented_commands import ROOT

pytestmark = pytest.mark.timeout(300)  # nothing of the new environment is compiled yet


def run(*command: str | Path, folder: Path = ROOT) -> str:
    return subprocess.run(command, cwd=folder, text=True, check=True, stdout=subprocess.PIPE).stdout


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the files of a release."""
    folder = tmp_path_factory.mktemp("release")
    run("scripts/release-files", folder)
    return folder


def test_release_has_wheel_source_locks_bill_of_materials_and_their_checksums(release: Path) -> None:
    checked = run("sha256sum", "--check", "SHA256SUMS", folder=release).splitlines()
    bill = json.loads((release / "sbom.json").read_text("utf-8"))

    endings = sorted(name.removesuffix(": OK").rpartition("-")[2].rpartition(".")[2] for name in checked)
    assert endings == ["gz", "json", "lock", "lock", "whl"]
    assert {file.name for file in release.iterdir()} == {"SHA256SUMS", *(line.removesuffix(": OK") for line in checked)}
    assert (bill["bomFormat"], bill["metadata"]["component"]["name"]) == ("CycloneDX", "starling-swarm")
    assert {part["purl"]: hashes(part) for part in bill["components"]} == locked("requirements-runtime.lock")


def hashes(part: dict[str, Sequence[dict[str, Sequence[dict[str, str]]]]]) -> set[str]:
    return {each["content"] for reference in part["externalReferences"] for each in reference["hashes"]}


def locked(lock: str) -> dict[str, set[str]]:
    """Return the hashes that a lock file allows, by package."""
    found: dict[str, set[str]] = {}
    for entry in re.split(r"\n(?=\S)", (ROOT / lock).read_text("utf-8")):
        if named := re.match(r"([a-z0-9._-]+)==([^ ]+)", entry):
            found[f"pkg:pypi/{named[1]}@{named[2]}"] = set(re.findall(r"sha256:([0-9a-f]+)", entry))
    return found


def test_installed_wheel_answers_a_request_in_an_empty_folder(release: Path, tmp_path: Path) -> None:
    python = tmp_path / "environment" / "bin" / "python"
    run("scripts/uv", "venv", "--quiet", "--python", sys.executable, python.parents[1])
    (wheel,) = release.glob("*.whl")
    lock = "requirements-runtime.lock"
    run("scripts/uv", "pip", "install", "--quiet", "--python", python, "--constraint", lock, wheel)
    starling = python.with_name("starling")

    with new_workspace() as workspace:
        folder = workspace.folder
        environment = {name: value for name, value in workspace.environment.items() if name != "PYTHONPATH"}

        def command(*words: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [starling, *words], cwd=folder, env=environment, text=True, capture_output=True, check=False
            )

        said = command("--version").stdout
        command("init").check_returncode()
        with subprocess.Popen(
            [starling, "up", "--port", "0", "--json"],
            cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        ) as process:  # fmt: skip
            try:
                Service.ready(process)
                asked = command("ask", "How full is the disk?")
            finally:
                process.terminate()

    assert said == f"starling {build_info().version} (commit {build_info().commit})\n"
    assert asked.returncode == 0, asked.stdout + asked.stderr
    assert "disk" in asked.stdout


def test_release_does_not_mix_with_files_of_another_one(tmp_path: Path) -> None:
    (tmp_path / "starling_swarm-0.0.1.tar.gz").touch()

    done = subprocess.run([ROOT / "scripts/release-files", tmp_path], capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "name a new folder" in done.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["starling_swarm-0.0.1.tar.gz"]
