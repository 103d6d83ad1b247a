"""Completion by Tab: names and ids that the running platform knows."""

from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Final

import typer

from starling.app.cli.platform.connection import connection_of
from starling.core.errors import StarlingError
from starling.core.principal import DEFAULT_TENANT

_SECONDS: Final = 0.5
_END_CHARS: Final = 8  # of an id, as tables show it


def _known(path: str, items: str, name: str, about: str, *more: str) -> Callable[..., list[tuple[str, str]]]:
    """Return the completion by a list of the API: by the field `name` of its items; ids also by the end of them."""

    def complete(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
        found = dict.fromkeys(more, "")
        # a shell that completes doesn't call the root command, which would keep this
        context.find_root().obj = context.find_root().params.get("settings")
        with suppress(StarlingError, LookupError, OSError, TypeError, ValueError):  # a shell shows no errors
            api = connection_of(context).named()
            if api and context.params.get("tenant", DEFAULT_TENANT) == DEFAULT_TENANT:
                for item in api.send("GET", path, seconds=_SECONDS).json()[items]:
                    found[item[name]] = word = str(item[about])
                    if incomplete and name in ("id", "run_id"):
                        found[item[name].replace("-", "")[-_END_CHARS:]] = word
        return list(found.items())

    return complete


RUNS: Final = _known("/v1/runs", "runs", "run_id", "status", "last")
THREADS: Final = _known("/v1/threads", "threads", "id", "branch")
INTERRUPTS: Final = _known("/v1/approvals", "interrupts", "id", "kind")
SERVERS: Final = _known("/v1/servers", "servers", "name", "state")
AGENTS: Final = _known("/v1/agents", "agents", "name", "kind")
TEAMS: Final = _known("/v1/teams", "teams", "name", "state")
SKILLS: Final = _known("/v1/skills", "skills", "id", "state")

Server = Annotated[str, typer.Argument(help="The server.", autocompletion=SERVERS)]
