"""`starling run`: what runs did, and what they wait for. Each command is imported when it is chosen."""

import typer

from starling.app.cli.lazy_commands import Lazy, lazy_group

_COMMANDS = {
    "list": Lazy("starling.app.cli.run.list", "List the latest runs."),
    "show": Lazy("starling.app.cli.run.queries", "Show a run: its plan, its steps and its result."),
    "explain": Lazy("starling.app.cli.run.explain", "Explain a run: what went wrong first, and what followed."),
    "compare": Lazy("starling.app.cli.run.queries", "Compare two runs, the first difference first."),
    "tail": Lazy("starling.app.cli.run.tail", "Follow a run's events, from any point on, up to its end."),
    "artifacts": Lazy(
        "starling.app.cli.run.queries", "List or print results that were too long for a model, or binary."
    ),
    "approve": Lazy("starling.app.cli.run.approve", "Answer what runs wait for, or list it."),
    "fork": Lazy("starling.app.cli.run.fork", "Begin an ended run again with what it had decided."),
    "feedback": Lazy("starling.app.cli.run.changes", "Say how good a run was."),
    "export": Lazy("starling.app.cli.run.export", "Print runs as lines of JSON, for programs that judge them."),
    "cancel": Lazy("starling.app.cli.run.changes", "Cancel a run."),
}

app = typer.Typer(cls=lazy_group(_COMMANDS), add_completion=False, no_args_is_help=True)


@app.callback()
def root() -> None:
    """List, show, explain, follow and fork runs, answer what they wait for, and cancel them."""
