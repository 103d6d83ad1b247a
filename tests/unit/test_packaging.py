"""What is installed: the wheel, the locks and the Python that they are installed with."""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCKS = [
    ROOT / "requirements.lock",
    ROOT / "requirements-runtime.lock",
    ROOT / "requirements-runtime-crewai.lock",
    ROOT / "deploy/build.lock",
    *sorted((ROOT / "scripts").glob("*.lock")),
    *sorted((ROOT / "examples/servers").glob("*.lock")),
    *sorted((ROOT / "bench/environments").glob("*.lock")),
]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> frozenset[str]:
    """The names of the files that a built wheel holds."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as archive:
        return frozenset(archive.namelist())


def test_the_wheel_holds_the_four_packages(wheel: frozenset[str]) -> None:
    tops = {name.partition("/")[0] for name in wheel if ".dist-info/" not in name}

    assert tops == {"starling", "brain", "architect", "mcp_gateway"}


def test_the_wheel_carries_what_code_reads_at_run_time(wheel: frozenset[str]) -> None:
    read = [file for ending in ("md", "sql", "typed") for file in (ROOT / "src").rglob(f"*.{ending}")]
    migrations = [file for file in (ROOT / "migrations").rglob("*") if file.suffix in (".py", ".sql", ".mako")]

    wanted = {str(file.relative_to(ROOT / "src")) for file in read}
    wanted |= {f"starling/{file.relative_to(ROOT)}" for file in migrations}

    assert migrations
    assert wanted <= wheel


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_a_lock_has_hashes_and_no_address(lock: Path) -> None:
    text = lock.read_text("utf-8")

    packages = [line for line in text.splitlines() if "==" in line]

    assert packages
    assert all(line.endswith("\\") for line in packages)  # a hash follows
    assert "://" not in text


@pytest.mark.parametrize("name", ["requirements-runtime.lock", "requirements-runtime-crewai.lock"])
def test_lock_for_images_has_versions_of_the_development_lock(name: str) -> None:
    image, development = versions(ROOT / name), versions(ROOT / "requirements.lock")

    assert image.items() < development.items()


def lock_fits(lock: Path, *extra: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "scripts/runtime_lock_fits.py", str(lock), *extra]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("extras", [["langfuse", "responses"], ["crewai", "langfuse", "responses"]])
def test_lock_for_images_holds_what_the_image_runs_and_nothing_else(extras: list[str]) -> None:
    outcome = lock_fits(ROOT / f"requirements-runtime{'-crewai' * ('crewai' in extras)}.lock", *extras)

    assert (outcome.returncode, outcome.stderr) == (0, "")


def test_lock_for_images_with_a_development_package_or_without_a_needed_one_is_refused(tmp_path: Path) -> None:
    text = (ROOT / "requirements-runtime.lock").read_text("utf-8")
    pytest_lines = (ROOT / "requirements.lock").read_text("utf-8").partition("\npytest==")[2]
    changed = tmp_path / "changed.lock"
    changed.write_text(
        f"pytest=={pytest_lines.partition('==')[0]}\n" + re.sub(r"^aiohttp==", "aio==", text, flags=re.MULTILINE)
    )

    outcome = lock_fits(changed, "langfuse", "responses")

    assert outcome.returncode == 1
    assert "lacks aiohttp" in outcome.stderr
    assert "has pytest" in outcome.stderr


def versions(lock: Path) -> dict[str, str]:
    found = re.findall(r"^([a-z0-9._-]+)==([^ ]+)", lock.read_text("utf-8"), re.MULTILINE)
    return dict(found)


@pytest.mark.parametrize("folder", ["tests/servers/node", "console"])
def test_the_npm_lock_names_no_registry(folder: str) -> None:
    text = (ROOT / folder / "package-lock.json").read_text("utf-8")

    assert '"integrity"' in text
    assert '"resolved"' not in text


def executable(file: Path, script: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


def find_python(path: Path, pyenv: Path) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": f"{path}:/nowhere", "PYENV_ROOT": str(pyenv), "HOME": str(path)}
    command = ["/bin/sh", ROOT / "scripts/find-python"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_a_python_that_only_pyenv_has_is_found_behind_shims_that_fail(tmp_path: Path) -> None:
    executable(tmp_path / "bin/python3.12", "exit 127")
    executable(tmp_path / "bin/python3", "exit 1")  # as one that is too old answers
    executable(tmp_path / "pyenv/versions/3.12.1/bin/python3", f'exec "{sys.executable}" "$@"')

    outcome = find_python(tmp_path / "bin", tmp_path / "pyenv")

    assert outcome.returncode == 0, outcome.stderr
    assert os.access(outcome.stdout.strip(), os.X_OK)


def test_without_any_python_it_says_what_to_install(tmp_path: Path) -> None:
    executable(tmp_path / "bin/cat", 'exec /bin/cat "$@"')

    outcome = find_python(tmp_path / "bin", tmp_path / "pyenv")

    assert outcome.returncode == 1
    assert "needs Python 3.12 or newer" in outcome.stderr
