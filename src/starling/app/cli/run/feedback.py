"""`starling run feedback`: say how good a run was."""

from typing import Annotated

import typer

from starling.app.cli.platform.connection import connection_of
from starling.app.cli.run.run_name import RUN_HELP, find_run
from starling.app.cli.terminal.output import print_json, print_line
from starling.core.principal import DEFAULT_TENANT

app = typer.Typer(add_completion=False)


@app.command()
def feedback(
    context: typer.Context,
    run: Annotated[str, typer.Argument(help=RUN_HELP)],
    score: Annotated[float, typer.Option(min=0, max=1, help="From 0, useless, to 1, as it should be.")],
    comment: Annotated[str, typer.Option(help="Why.")] = "",
    tenant: Annotated[str, typer.Option(help="The tenant of the run.")] = DEFAULT_TENANT,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Give feedback on a run, in place of your earlier one. It is a score of the run's trace, too."""
    source = connection_of(context).source(tenant)
    run_id = find_run(source, run)
    given = source.give_feedback(run_id, score, comment)
    if as_json:
        print_json({"run_id": run_id, **given})
    else:
        print_line(f"Run {run_id} has the feedback {given['score']:g} of {given['by']}.")
