"""`starling run cancel` and `feedback`."""

from typing import Annotated

import typer

from starling.app.cli.id_name import Run, find_run
from starling.app.cli.options import Json, Tenant
from starling.app.cli.platform.connection import connection_of
from starling.app.cli.terminal.output import print_result
from starling.core.principal import DEFAULT_TENANT
from starling.core.run_status import RunStatus

app = typer.Typer(add_completion=False)


@app.command()
def cancel(context: typer.Context, run: Run, tenant: Tenant = DEFAULT_TENANT, as_json: Json = False) -> None:
    """Cancel a run. The worker of a running run ends it within a second."""
    api = connection_of(context).api(tenant)
    run_id = find_run(api, run)
    status = RunStatus(api.post(f"/v1/runs/{run_id}/cancel")["status"])
    print_result({"run_id": run_id, "status": status.value}, cancellation_text(run_id, status), as_json=as_json)


def cancellation_text(run_id: str, status: RunStatus) -> str:
    """Return the outcome of a cancellation, by the status that it returned."""
    if status.terminal:
        return f"Run {run_id} has ended: {status.value}."
    return f"Run {run_id} is {status.value}; its worker will end it."


@app.command()
def feedback(
    context: typer.Context,
    run: Run,
    score: Annotated[float, typer.Option(min=0, max=1, help="From 0, useless, to 1, as it should be.")],
    comment: Annotated[str, typer.Option(help="Why.")] = "",
    tenant: Tenant = DEFAULT_TENANT,
    as_json: Json = False,
) -> None:
    """Give feedback on a run, in place of your earlier one. It is a score of the run's trace, too."""
    api = connection_of(context).api(tenant)
    run_id = find_run(api, run)
    given = api.post(f"/v1/runs/{run_id}/feedback", {"score": score, "comment": comment})
    text = f"Run {run_id} has the feedback {given['score']:g} of {given['by']}."
    print_result({"run_id": run_id, **given}, text, as_json=as_json)
