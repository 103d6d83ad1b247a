"""Whether the command line takes a command, without running it."""

from collections.abc import Sequence
from typing import Any

from typer.main import get_command

from starling.app.cli.root_command import app


def parse_command(arguments: Sequence[str]) -> dict[str, Any]:
    """Return the options of a command such as `db upgrade --json`. Raises click's UsageError where it is none."""
    command: Any = get_command(app)
    context = command.make_context("starling", list(arguments))
    while hasattr(command, "resolve_command"):
        _, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        context = command.make_context(command.name, rest, parent=context)
    return context.params
