"""Fails if a lock for images differs from what the platform needs here, in packages or versions.

Usage: .venv/bin/python scripts/runtime_lock_fits.py LOCK [EXTRA…]. Needed is what pyproject.toml asks for, and what
that asks for by the metadata of the installed packages. Needs no network.
"""

import re
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_LINE = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;]+)(?: ; (.+?))? \\$", re.MULTILINE)


def needed(requirements: Iterable[str]) -> dict[str, str]:
    """Return name and installed version of each package that these requirements ask for on this machine."""
    found: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    open_ones = [(Requirement(text), "") for text in requirements]
    while open_ones:
        requirement, extra = open_ones.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        package = distribution(requirement.name)
        found[canonicalize_name(requirement.name)] = package.version
        for asked in ("", *requirement.extras):
            if (requirement.name, asked) not in seen:
                seen.add((requirement.name, asked))
                open_ones += [(Requirement(text), asked) for text in package.requires or ()]
    return found


def locked(text: str) -> dict[str, str]:
    """Return name and version of each package of a lock that is for this machine."""
    lines = (
        (name, version, Requirement(f"{name} ; {marker}").marker if marker else None)
        for name, version, marker in _LINE.findall(text)
    )
    return {canonicalize_name(name): version for name, version, marker in lines if marker is None or marker.evaluate()}


def main(lock: str, *extras: str) -> int:
    """Compare, say what differs, and return the exit code."""
    project = tomllib.loads(Path("pyproject.toml").read_text("utf-8"))["project"]
    of_extras = (project["optional-dependencies"][extra] for extra in extras)
    asked: list[str] = [*project["dependencies"], *(one for each in of_extras for one in each)]
    wanted, has = needed(asked).items(), locked(Path(lock).read_text("utf-8")).items()
    for name, version in sorted(wanted - has):
        print(f"{lock} lacks {name} {version}: run make lock.", file=sys.stderr)
    for name, version in sorted(has - wanted):
        print(f"{lock} has {name} {version}, which the platform doesn't need: run make lock.", file=sys.stderr)
    return int(wanted != has)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
