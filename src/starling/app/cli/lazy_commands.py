"""Commands that are imported when they are chosen, so that `--help` is quick."""

import gc
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

_LINE_END = re.compile(r"(?<=\S)\n(?=\S)")


@dataclass(frozen=True, slots=True)
class Lazy:
    """A command: `app` of `module`, or the command of the same name in it."""

    module: str
    help: str


def lazy_group(commands: Mapping[str, Lazy]) -> type[TyperGroup]:
    """Return a group class that lists `commands` from this table alone and imports the one that is run."""

    class LazyGroup(TyperGroup):
        def __init__(self, **attributes: Any) -> None:
            super().__init__(**attributes)
            for name, lazy in commands.items():
                self.add_command(TyperCommand(name, help=lazy.help), name)

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            if args and args[0] in commands:
                app: typer.Typer = import_quietly(commands[args[0]].module).app
                loaded: Any = get_command(app)
                _join_lines(loaded)
                several = isinstance(loaded, TyperGroup)
                self.add_command(loaded.commands.get(args[0], loaded) if several else loaded, args[0])
            return super().resolve_command(ctx, args)

    return LazyGroup


def _join_lines(command: Any) -> None:
    """Make each paragraph of the help one line, which the terminal wraps; Typer does so with the first one only."""
    command.help = _LINE_END.sub(" ", command.help or "")
    for each in getattr(command, "commands", {}).values():
        _join_lines(each)


def import_quietly(module: str) -> Any:
    """Import a module without garbage collection, which would walk through the growing modules again and again."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return import_module(module)
    finally:
        gc.freeze()
        if collects:
            gc.enable()
