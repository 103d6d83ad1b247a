"""The commit that a process names: of a released package, of a checkout, or none."""

import subprocess
from pathlib import Path

import pytest

from starling.app.telemetry.build_info import commit_of

_AUTHOR = ("-c", "user.name=test", "-c", "user.email=test@localhost")


def git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "src" / "starling"
    folder.mkdir(parents=True)
    return folder


def test_released_package_names_the_commit_that_was_written_into_it(package: Path) -> None:
    (package / "commit.txt").write_text("0123456789ab\n")

    assert commit_of(package) == "0123456789ab"


def test_checkout_names_its_commit_and_whether_files_differ(package: Path) -> None:
    file = package / "code.py"
    file.write_text("a")
    git(package.parents[1], "init", "-q")
    git(package.parents[1], "add", ".")
    git(package.parents[1], *_AUTHOR, "commit", "-qm", "first")
    git(package.parents[1], *_AUTHOR, "tag", "-am", "no name of a commit", "v1")
    clean = commit_of(package)
    file.write_text("b")

    assert clean == git(package, "rev-parse", "--short=12", "HEAD")
    assert commit_of(package) == f"{clean}+changes"


def test_checkout_names_its_own_commit_within_a_hook_of_another_repository(
    package: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path_factory.mktemp("other")
    for folder in (package.parents[1], other):
        git(folder, "init", "-q")
        git(folder, *_AUTHOR, "commit", "-q", "--allow-empty", "-m", folder.name)
    own = git(package, "rev-parse", "--short=12", "HEAD")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))

    assert commit_of(package) == own


@pytest.mark.parametrize("broken", [False, True])
def test_commit_is_unknown_without_a_file_and_a_readable_checkout(package: Path, broken: bool) -> None:
    if broken:
        (package.parents[1] / ".git").write_text("gitdir: /nowhere")

    assert commit_of(package) == "unknown"
