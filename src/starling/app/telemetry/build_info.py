"""Which build of Starling this is."""

import subprocess
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

UNKNOWN = "unknown"
_PACKAGE = Path(__file__).parents[2]
_SECONDS = 5


@dataclass(frozen=True, slots=True)
class BuildInfo:
    """The version, and the first twelve digits of the commit; `+changes` follows where files differ from it."""

    version: str
    commit: str


@cache
def build_info() -> BuildInfo:
    """Return the version and the commit of this process' code."""
    return BuildInfo(version("starling-swarm"), commit_of(_PACKAGE))


def commit_of(package: Path) -> str:
    """Return the commit that a package names in `commit.txt`, as released ones do, or that its checkout is at.

    `unknown` where there is neither, or no git.
    """
    written = package / "commit.txt"
    if written.is_file():
        return written.read_text("utf-8").strip()
    checkout = package.parents[1]
    if not (checkout / ".git").exists():
        return UNKNOWN
    repository = (f"--git-dir={checkout / '.git'}", f"--work-tree={checkout}")  # also where a hook has set GIT_DIR
    command = ["git", *repository, "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+changes"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_SECONDS)
    except (OSError, subprocess.SubprocessError):
        return UNKNOWN
    return done.stdout.strip()
