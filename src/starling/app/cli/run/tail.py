"""`starling run tail`: the events of a run, up to its end."""

from typing import Annotated

import typer

from starling.app.cli.id_name import Run, find_run
from starling.app.cli.options import JsonEvents, No, Tenant, Yes
from starling.app.cli.platform.connection import connection_of
from starling.app.cli.run.conversation import conversation, fixed_answers, follow
from starling.core.principal import DEFAULT_TENANT

app = typer.Typer(add_completion=False)


@app.command()
def tail(  # noqa: PLR0913, PLR0917 - its options
    context: typer.Context,
    run: Run,
    after: Annotated[int, typer.Option(min=0, help="Begin after the event with this number.")] = 0,
    tenant: Tenant = DEFAULT_TENANT,
    yes: Yes = False,
    no: No = False,
    as_json: JsonEvents = False,
) -> None:
    """Follow the events of a run from any point on, up to its end.

    On a terminal it asks for what the run waits for, if a platform is running. Ctrl-C leaves the run working, or
    cancels it if you say so.
    """
    fixed = fixed_answers(yes=yes, no=no)
    api = connection_of(context).api(tenant, lasting=True)
    run_id = find_run(api, run)
    known = {"as_json": as_json, "tenant": tenant, "run_id": run_id}
    talk = conversation(api, fixed, live=False, after=after, patient=True, **known)

    def read() -> None:
        talk.show_run_ahead()
        api.watch(run_id, after, talk.event)

    follow(talk, read)
    if not talk.status:
        typer.echo(f"There is nothing after event {after}: the run has ended.", err=True)
    if talk.status not in ("", "succeeded"):
        raise typer.Exit(1)
