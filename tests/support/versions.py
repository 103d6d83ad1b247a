"""Versions of Starling whose processes run side by side: this checkout, and an earlier commit of its history."""

import asyncio
import os
import subprocess
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path

from tests.support.command_line import STARLING

ROOT = Path(__file__).parents[2]
_MIGRATIONS = Path("migrations/versions")


@dataclass(frozen=True)
class Version:
    """The code of a version, in a folder with `src` and `migrations`."""

    folder: Path

    @property
    def variables(self) -> Mapping[str, str]:
        """Return the environment variables with which the installed programs run this code."""
        return {"PYTHONPATH": f"{self.folder / 'src'}{os.pathsep}{self.folder}"}

    @cached_property
    def revision(self) -> str:
        """The newest revision of the schema that this version knows."""
        return _revision(_newest_migration(self.folder))

    @cached_property
    def graph_version(self) -> int:
        """The version of the state of runs that this version reads: it leaves runs with a later one to others."""
        state = (self.folder / "src" / "brain" / "state.py").read_text()
        return int(state.partition("GRAPH_VERSION = ")[2].partition("\n")[0])

    async def upgrade(self, database_url: str, folder: Path) -> None:
        """Run this version's `starling db upgrade`, in `folder`."""
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
        here = {"HOME": str(folder), "STARLING_DATA_DIR": str(folder), "DATABASE_URL": database_url}
        process = await asyncio.create_subprocess_exec(
            STARLING,
            "db",
            "upgrade",
            cwd=folder,
            env={**kept, **here, **self.variables},
            stdout=asyncio.subprocess.PIPE,
        )
        said, _ = await process.communicate()
        assert process.returncode == 0
        assert said.decode().strip() == f"The database has schema {self.revision}."


THIS = Version(ROOT)


class HistoryMissingError(Exception):
    """The earlier commit can't be had: there is no git, or the clone is shallow."""


def previous_version(folder: Path, checkout: Path = ROOT) -> Version:
    """Extract the newest earlier commit with another revision of the schema. Raises HistoryMissingError."""
    newest = _revision(_newest_migration(checkout))
    changes = _git(checkout, "rev-list", "HEAD", "--", str(_MIGRATIONS)).decode().split()
    commits = ["HEAD", *(f"{change}^" for change in changes)]  # HEAD where the newest migration isn't committed yet
    commit = next(commit for commit in commits if _is_before(newest, commit, checkout))
    archive = _git(checkout, "archive", "--format=tar", commit, "src", "migrations")
    with tarfile.open(fileobj=BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")
    return Version(folder)


def _is_before(newest: str, commit: str, checkout: Path) -> bool:
    """Whether a commit has earlier revisions only, each once. Raises HistoryMissingError."""
    files = _git(checkout, "ls-tree", "--name-only", f"{commit}:{_MIGRATIONS}").decode().split()
    revisions = [_revision(Path(file)) for file in files if file[0].isdigit()]
    return max(revisions) < newest and len(set(revisions)) == len(revisions)


def _revision(migration: Path) -> str:
    return migration.name.partition("_")[0]


def _git(checkout: Path, *arguments: str) -> bytes:
    try:
        done = subprocess.run(["git", *arguments], cwd=checkout, capture_output=True, check=True)
    except FileNotFoundError as error:
        raise HistoryMissingError("There is no git.") from error
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode().strip()
        raise HistoryMissingError(f"The history of this checkout lacks the earlier version: {said}") from error
    return done.stdout


def _newest_migration(folder: Path) -> Path:
    return max((folder / _MIGRATIONS).glob("[0-9]*.py"))
