"""Commands that are imported when they are chosen."""

import typer
from typer.testing import CliRunner

from starling.app.cli.lazy_commands import Lazy, lazy_group


def test_help_of_a_command_wraps_its_later_paragraphs_like_the_first() -> None:
    app = typer.Typer(cls=lazy_group({"worker": Lazy("starling.app.cli.worker", "Execute runs only.")}))
    app.callback()(lambda: None)

    shown = CliRunner().invoke(app, ["worker", "--help"], terminal_width=70).stdout

    lines = [line.strip() for line in shown.splitlines()]
    begin = next(number for number, line in enumerate(lines) if line.startswith("Uses the database"))
    paragraph = lines[begin : lines.index("", begin)]
    assert len(paragraph) > 2
    assert min(len(line) for line in paragraph[:-1]) > 50  # none ends early, where the source has a line end
