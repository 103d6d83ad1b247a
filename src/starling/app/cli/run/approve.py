"""`starling run approve`: list and answer the interrupts of runs."""

import json
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import typer

from starling.app.cli.completion import INTERRUPTS
from starling.app.cli.id_name import RUN_HELP, RunArgument, ending_in, find_id, find_run
from starling.app.cli.options import Json, Tenant
from starling.app.cli.platform.connection import connection_of
from starling.app.cli.terminal.interrupt_text import interrupt_lines, run_reference
from starling.app.cli.terminal.output import print_json, print_line
from starling.client.api import Api, Document
from starling.core.errors import InvalidRequestError, NotFoundError
from starling.core.principal import DEFAULT_TENANT

app = typer.Typer(add_completion=False)

_PAGE = 500
_REMEDY = "`starling run approve` lists open interrupts; --tenant names another tenant."


@app.command()
def approve(  # noqa: PLR0913, PLR0917 - its options
    context: typer.Context,
    run: Annotated[str, RunArgument(help=f"{RUN_HELP} Default: list the interrupts of all runs.")] = "",
    interrupt: Annotated[
        str, typer.Option("--id", help="Id of the interrupt; default: all, if of one kind.", autocompletion=INTERRUPTS)
    ] = "",
    reject: Annotated[bool, typer.Option("--reject", help="Refuse the call, or withdraw the question.")] = False,
    payload: Annotated[str, typer.Option(help="The answer as JSON that fits the schema of the question.")] = "",
    note: Annotated[str, typer.Option(help="A note for the agent; for approvals only.")] = "",
    tenant: Tenant = DEFAULT_TENANT,
    as_json: Json = False,
) -> None:
    """Approve, refuse or answer what a run waits for; without a run, list all open interrupts."""
    if not run and (interrupt or reject or payload or note):
        remedy = "`starling run approve` lists open interrupts with the commands that answer them."
        raise InvalidRequestError("The id of the run is missing.", remedy)
    if payload and (reject or note):
        remedy = "Give either --payload or the others."
        raise InvalidRequestError("--payload cannot be combined with --reject or --note.", remedy)
    api = connection_of(context).api(tenant)
    if not run:
        _list(open_interrupts(api), tenant, as_json=as_json)
        return
    run_id = find_run(api, run)
    answers = _answer(api, run_id, interrupt, {"reject": reject, "payload": payload, "note": note})
    if as_json:
        print_json({"run_id": run_id, "answers": answers})
        return
    for each in answers:
        print_line(f"{each['interruptId']} is {_outcome(each)}.")
    print_line(f"Run {run_id} continues; `starling run tail {run_reference(run_id, tenant)}` follows it.")


def open_interrupts(api: Api, run_id: str | None = None) -> Sequence[Document]:
    """Return the open interrupts of a run, or of all runs, oldest first."""
    found = api.pages("/v1/approvals", "interrupts", {"run_id": run_id}, most=_PAGE, cursor="after")
    return [{name: value for name, value in item.items() if name != "createdAt"} for item in found]


def _outcome(answer: Document) -> str:
    if answer["status"] == "cancelled":
        return "withdrawn"
    if "approved" in answer["payload"]:
        return "approved" if answer["payload"]["approved"] else "refused"
    return f"answered: {json.dumps(answer['payload'], ensure_ascii=False)}"


def _answer(api: Api, run_id: str, interrupt: str, answer: dict[str, Any]) -> Sequence[Document]:
    """Answer the interrupts of a run, all or the one named, and return the answers."""
    asked = open_interrupts(api, run_id)
    if interrupt:
        ids = [item["id"] for item in asked]
        wanted = find_id("interrupt", interrupt, partial(ending_in, ids), remedy=_REMEDY)
        asked = [item for item in asked if item["id"] == wanted]
    if not asked:
        kind, name = ("interrupt", interrupt) if interrupt else ("open question of run", run_id)
        raise NotFoundError(kind, name, _REMEDY)
    if len({item["kind"] for item in asked}) > 1:
        kinds = "; ".join(f"{item['id']} ({item['kind']})" for item in asked)
        raise InvalidRequestError(f"The run has several open interrupts: {kinds}.", "Choose one with --id.")
    replies = [_reply(item, **answer) for item in asked]
    api.post(f"/v1/runs/{run_id}/resume", replies)
    return replies


def _reply(asked: Document, *, reject: bool, payload: str, note: str) -> Document:
    if asked["kind"] == "approval" and not payload:
        given = {"approved": not reject} | ({"note": note} if note else {})
    elif reject:
        return {"status": "cancelled", "payload": {}, "interruptId": asked["id"]}
    else:
        given = _payload(payload, asked)
    return {"status": "resolved", "payload": given, "interruptId": asked["id"]}


def _payload(text: str, asked: Document) -> dict[str, Any]:
    wanted = f"It has to fit {json.dumps(asked['responseSchema'])}."
    if not text:
        raise InvalidRequestError(f"{asked['reason']} An answer to that needs --payload.", wanted)
    try:
        payload = json.loads(text)
    except ValueError as error:
        raise InvalidRequestError(f"--payload is not JSON: {error}.", wanted) from None
    if not isinstance(payload, dict):
        raise InvalidRequestError(f"--payload {text} is not a JSON object.", wanted)
    return payload  # pyright: ignore[reportUnknownVariableType]


def _list(found: Sequence[Document], tenant: str, *, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    if not found:
        print_line("No run waits for an answer.")
    for item in found:
        print_line(f"{item['kind']} of run {item['run_id']}", "bold")
        for line in interrupt_lines(item["kind"], item, run_reference(item["run_id"], tenant)):
            print_line(line)
