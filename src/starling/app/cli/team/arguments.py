"""Arguments that commands about teams share, and the paths of teams in the API."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer

from starling.app.cli.completion import TEAMS
from starling.client.api import Document, path_of
from starling.core.errors import InvalidRequestError

PATH: Final = "/v1/teams"
HASH_CHARS: Final = 12  # of a hash that is shown

File = Annotated[Path, typer.Argument(help="A YAML or JSON file with the team's spec.")]
Name = Annotated[str, typer.Argument(help="The team.", autocompletion=TEAMS)]
Versioned = Annotated[str, typer.Argument(metavar="NAME[@VERSION]", help="The team and version.", autocompletion=TEAMS)]


def team_path(name: str, *parts: str) -> str:
    """Return the path of a team, or of something below it."""
    return path_of("teams", name, *parts)


def split_version(team: str) -> tuple[str, int | None]:
    """Return name and version of `NAME@VERSION`. Raises InvalidRequestError."""
    name, at, version = team.partition("@")
    if at and not (version.isascii() and version.isdigit() and int(version)):
        raise InvalidRequestError(f"{version!r} is not a version of a team.", f"Write a number, as in {name}@1.")
    return name, int(version) if at else None


def finding_line(finding: Document) -> str:
    """Return what is wrong with a spec: where, why, and what to do."""
    place = f"{finding['path']}: " if finding["path"] else ""
    return f"{place}{finding['reason']} {finding['remedy']}"


def chosen_version(name: str, versions: Sequence[Document], wanted: int | None) -> Document:
    """Return a version, default the active, else the newest one. Raises InvalidRequestError."""
    if wanted is None:
        return next((one for one in versions if one["state"] == "active"), versions[-1])
    found = next((one for one in versions if one["version"] == wanted), None)
    if found is None:
        known = ", ".join(str(one["version"]) for one in versions)
        remedy = f"It has the version{'s' if len(versions) > 1 else ''} {known}."
        raise InvalidRequestError(f"There is no version {wanted} of the team {name!r}.", remedy)
    return found


@contextmanager
def unreadable(file: Path) -> Generator[None]:
    """Raise InvalidRequestError where the block can't read a file."""
    try:
        yield
    except (OSError, UnicodeDecodeError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise InvalidRequestError(f"{file} can't be read: {reason}.", "Give a YAML or JSON file in UTF-8.") from None
