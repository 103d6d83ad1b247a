"""What README, guides and others write of commands is what there is, also where nothing runs it."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import typer
from typer._click.exceptions import MissingParameter, NoArgsIsHelpError, UsageError  # typer carries a click of its own
from typer.core import TyperGroup
from typer.main import get_command

from starling.app.cli.root_command import app
from tests.support.documented_commands import PAGES, REFERENCE, ROOT, mentions

WRITTEN = (*PAGES, *REFERENCE, "CHANGELOG.md", "CONTRIBUTING.md")
ROOT_COMMAND: Any = get_command(app)


def is_group(command: Any) -> bool:
    return isinstance(command, TyperGroup)


def parse(words: Sequence[str]) -> None:
    """Read a command line as `starling` does, without running it; that it is cut short is no mistake."""
    command: Any = ROOT_COMMAND
    try:
        context: Any = command.make_context("starling", list(words))
        while is_group(command) and (rest := [*context._protected_args, *context.args]):
            name, command, rest = command.resolve_command(context, rest)
            context = command.make_context(name, rest, parent=context)
    except (MissingParameter, NoArgsIsHelpError, typer.Exit):
        return


def options(command: Any, context: Any) -> Iterator[str]:
    """Give the options of a command and of all below it."""
    for parameter in command.params:
        yield from parameter.opts
    for name in command.commands if is_group(command) else ():
        _, below, _ = command.resolve_command(context, [name])
        yield from options(below, context)


def complaint(words: Sequence[str]) -> str:
    """Return what is wrong with what was written, nothing where it is right."""
    program, *rest = words
    if program.startswith("-"):
        return "" if program in KNOWN else f"there is no option {program}"
    if program == "make":
        missing = [word for word in rest if not re.search(_in_makefile(word), MAKEFILE, re.MULTILINE)]
        return f"there is no target or variable {missing[0]}" if missing else ""
    if program.startswith("scripts/"):
        return "" if (ROOT / program).exists() else "there is no such script"
    try:
        parse(rest)
    except UsageError as error:
        return error.format_message()
    return ""


def _in_makefile(word: str) -> str:
    """Return what makes a target, or the use of a variable that is set."""
    name, given, _ = word.partition("=")
    return rf"\$\({name}\)" if given else rf"^{name}:"


MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
KNOWN = {*options(ROOT_COMMAND, ROOT_COMMAND.make_context("starling", ["up"])), "--help"}


@pytest.mark.parametrize("page", WRITTEN)
def test_what_is_written_of_commands_is_so(page: str) -> None:
    found = mentions(page)

    wrong = {" ".join(words): interrupt_lines for words in found if (interrupt_lines := complaint(words))}

    assert wrong == {}


@pytest.mark.parametrize(
    "words",
    [
        ["starling", "run", "tial", "ID"],
        ["starling", "up", "--wach"],
        ["starling", "run", "tail", "ID", "too-much"],
        ["starling", "server", "add", "NAME", "URL", "--effect", "none"],
        ["starling", "nonsense"],
        ["make", "nonsense"],
        ["make", "chaos", "NONSENSE=1"],
        ["--nonsense"],
    ],
)
def test_what_isnt_so_is_noticed(words: Sequence[str]) -> None:
    assert complaint(words)
