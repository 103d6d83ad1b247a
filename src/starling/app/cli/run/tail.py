"""`starling run tail`: the events of a run, up to its end."""

from typing import Annotated

import typer

from starling.app.cli.platform.connection import connection_of
from starling.app.cli.run.conversation import conversation, display_for, fixed_answers, follow
from starling.app.cli.run.run_name import RUN_HELP, find_run
from starling.core.principal import DEFAULT_TENANT

app = typer.Typer(add_completion=False)


@app.command()
def tail(  # noqa: PLR0913, PLR0917 - its options
    context: typer.Context,
    run: Annotated[str, typer.Argument(help=RUN_HELP)],
    after: Annotated[int, typer.Option(min=0, help="Begin after the event with this number.")] = 0,
    tenant: Annotated[str, typer.Option(help="The tenant of the run.")] = DEFAULT_TENANT,
    yes: Annotated[bool, typer.Option("--yes", help="Approve every call that asks for approval.")] = False,
    no: Annotated[bool, typer.Option("--no", help="Refuse every call, and answer no questions.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print each event as a line of JSON.")] = False,
) -> None:
    """Follow the events of a run from any point on, up to its end.

    On a terminal it asks for what the run waits for, if a platform is running. Ctrl-C leaves the run working, or
    cancels it if you say so.
    """
    fixed = fixed_answers(yes=yes, no=no)
    source = connection_of(context).lasting_source(tenant)
    run_id = find_run(source, run)
    display = display_for(live=False, after=after, tenant=tenant, as_json=as_json)
    display.run_id = run_id
    talk = conversation(source, display, fixed, as_json=as_json, patient=True, tenant=tenant, run_id=run_id)
    with display:
        follow(talk, lambda: source.follow(run_id, after, talk))
    if not talk.status:
        typer.echo(f"There is nothing after event {after}: the run has ended.", err=True)
    if talk.status not in ("", "succeeded"):
        raise typer.Exit(1)
