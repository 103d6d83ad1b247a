"""`starling run approve`: list and answer the interrupts of runs."""

import json
from collections.abc import Sequence
from typing import Annotated, Any
from uuid import UUID

import typer

from starling.app.cli.command_settings import settings_of
from starling.app.cli.signals import run_until_stopped
from starling.app.cli.terminal.interrupt_text import document_of, event_of, interrupt_lines, run_reference
from starling.app.cli.terminal.output import print_json, print_line
from starling.app.container.services import open_services
from starling.app.runtime.database import find_database
from starling.core.errors import InvalidRequestError, NotFoundError
from starling.core.principal import DEFAULT_TENANT
from starling.core.settings import Settings
from starling.infra.postgres.audit import Actor
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.interrupts import InterruptAnswer, StoredInterrupt

app = typer.Typer(add_completion=False)


@app.command()
def approve(  # noqa: PLR0913, PLR0917 - its options
    context: typer.Context,
    run: Annotated[str, typer.Argument(help="The id of the run; default: list the interrupts of all runs.")] = "",
    interrupt: Annotated[
        str, typer.Option("--id", help="The id of the interrupt; default: all, if they are of one kind.")
    ] = "",
    reject: Annotated[bool, typer.Option("--reject", help="Refuse the call, or withdraw the question.")] = False,
    payload: Annotated[str, typer.Option(help="The answer as JSON that fits the schema of the question.")] = "",
    note: Annotated[str, typer.Option(help="A note for the agent; for approvals only.")] = "",
    tenant: Annotated[str, typer.Option(help="The tenant of the run.")] = DEFAULT_TENANT,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Approve, refuse or answer what a run waits for; without a run, list all open interrupts."""
    settings = settings_of(context)
    _check_options(run, answer=bool(interrupt or reject or payload or note), both=bool(payload and (reject or note)))
    if not run:
        _list(run_until_stopped(_waiting(settings, tenant)), tenant, as_json=as_json)
        return
    key = RunKey(tenant, _id(run, "a run"))
    answer = {"reject": reject, "payload": payload, "note": note}
    answers = run_until_stopped(_answer(settings, key, _id(interrupt, "an interrupt") if interrupt else "", answer))
    if as_json:
        print_json({"run_id": key.id, "answers": [_document(answer) for answer in answers]})
        return
    for each in answers:
        print_line(f"{each.id} is {_outcome(each)}.")
    print_line(f"Run {key.id} continues; `starling run tail {run_reference(key.id, tenant)}` follows it.")


def _check_options(run: str, *, answer: bool, both: bool) -> None:
    """Refuse combinations in which an option would be ignored."""
    if answer and not run:
        raise InvalidRequestError(
            "The id of the run is missing.",
            "`starling run approve` lists open interrupts with the commands that answer them.",
        )
    if both:
        raise InvalidRequestError(
            "--payload cannot be combined with --reject or --note.", "Give either --payload or the others."
        )


def _document(answer: InterruptAnswer) -> dict[str, Any]:
    return {"status": answer.state, "payload": answer.payload, "interruptId": answer.id}


def _outcome(answer: InterruptAnswer) -> str:
    if answer.state == "cancelled":
        return "withdrawn"
    if "approved" in answer.payload:
        return "approved" if answer.payload["approved"] else "refused"
    return f"answered: {json.dumps(answer.payload, ensure_ascii=False)}"


async def _waiting(settings: Settings, tenant: str) -> Sequence[StoredInterrupt]:
    async with open_services(settings, find_database(settings)) as services:
        return await services.answering.all_waiting(tenant)


async def _answer(settings: Settings, key: RunKey, interrupt: str, answer: dict[str, Any]) -> Sequence[InterruptAnswer]:
    async with open_services(settings, find_database(settings)) as services:
        asked = [
            item for item in await services.interrupts.waiting(key.tenant, run=key.id) if interrupt in ("", item.id)
        ]
        if not asked:
            remedy = "`starling run approve` lists open interrupts; --tenant names another tenant."
            kind, name = ("interrupt", interrupt) if interrupt else ("open question of run", key.id)
            raise NotFoundError(kind, name, remedy)
        if len({item.kind for item in asked}) > 1:
            kinds = "; ".join(f"{item.id} ({item.kind})" for item in asked)
            raise InvalidRequestError(f"The run has several open interrupts: {kinds}.", "Choose one with --id.")
        replies = [_reply(item, **answer) for item in asked]
        await services.answering.answer(key, replies, Actor.local("cli"))
        return replies


def _reply(asked: StoredInterrupt, *, reject: bool, payload: str, note: str) -> InterruptAnswer:
    if asked.kind == "approval" and not payload:
        given = {"approved": not reject} | ({"note": note} if note else {})
    elif reject:
        return InterruptAnswer(asked.id, "cancelled", {})
    else:
        given = _payload(payload, asked)
    return InterruptAnswer(asked.id, "resolved", given)


def _payload(text: str, asked: StoredInterrupt) -> dict[str, Any]:
    wanted = f"It has to fit {json.dumps(asked.response_schema)}."
    if not text:
        raise InvalidRequestError(f"{asked.reason} An answer to that needs --payload.", wanted)
    try:
        payload = json.loads(text)
    except ValueError as error:
        raise InvalidRequestError(f"--payload is not JSON: {error}.", wanted) from None
    if not isinstance(payload, dict):
        raise InvalidRequestError(f"--payload {text} is not a JSON object.", wanted)
    return payload  # pyright: ignore[reportUnknownVariableType]


def _list(found: Sequence[StoredInterrupt], tenant: str, *, as_json: bool) -> None:
    if as_json:
        print_json([document_of(item) for item in found])
        return
    if not found:
        print_line("No run waits for an answer.")
    for item in found:
        print_line(f"{item.kind} of run {item.run_id}", "bold")
        for line in interrupt_lines(event_of(item.kind), document_of(item), run_reference(item.run_id, tenant)):
            print_line(line)


def _id(text: str, kind: str) -> str:
    try:
        return str(UUID(text))
    except ValueError:
        raise InvalidRequestError(
            f"{text!r} is not the id of {kind}.", "`starling run approve` shows the ids."
        ) from None
