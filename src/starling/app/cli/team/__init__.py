"""`starling team`: teams and their versions. Each command is imported when it is chosen."""

import typer

from starling.app.cli.lazy_commands import Lazy, lazy_group

_BUILDING, _CHANGING, _READING = (f"starling.app.cli.team.{name}" for name in ("builds", "changes", "queries"))
_COMMANDS = {
    "build": Lazy(_BUILDING, "Build a team for a goal: designed, checked, proved and activated."),
    "prove": Lazy(_BUILDING, "Try a version of a team on its cases again."),
    "import": Lazy(_CHANGING, "Store a spec as a new version of its team."),
    "export": Lazy(_READING, "Print the spec of a team."),
    "list": Lazy(_READING, "List the teams of a tenant."),
    "show": Lazy(_READING, "Show a team with its members and versions, a proof, or its graph."),
    "history": Lazy(_READING, "List who built, proved, approved and changed a team."),
    "diff": Lazy(_READING, "Compare the specs of two versions."),
    "schema": Lazy(_READING, "Print the JSON schema of team specs."),
    "check": Lazy(_CHANGING, "Say what is wrong with a spec, changing nothing."),
    "activate": Lazy(_CHANGING, "Let runs use a version."),
    "rollback": Lazy(_CHANGING, "Activate the version that was active before."),
    "archive": Lazy(_CHANGING, "Archive a team."),
}

app = typer.Typer(cls=lazy_group(_COMMANDS), add_completion=False, no_args_is_help=True)


@app.callback()
def root() -> None:
    """Manage teams. Runs that have begun keep the versions that they began with."""
