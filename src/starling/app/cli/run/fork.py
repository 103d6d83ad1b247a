"""`starling run fork`: begin an ended run again with what it had decided, or those that failed."""

import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice, takewhile
from typing import Annotated, Any, Final

import typer

from starling.app.cli.id_name import RUN_HELP, RunArgument, find_run
from starling.app.cli.options import JsonEvents, No, Yes, split_pairs
from starling.app.cli.platform.connection import connection_of
from starling.app.cli.run.conversation import conversation, fixed_answers, follow
from starling.app.cli.terminal.comparison_text import effect_lines
from starling.app.cli.terminal.formats import counted, parse_duration
from starling.app.cli.terminal.output import print_json, print_line, print_note, print_result, print_table
from starling.app.cli.terminal.prompts import confirmed
from starling.client.api import Api, Document
from starling.core.clock import SystemClock
from starling.core.errors import InvalidRequestError, StarlingError
from starling.core.llm import ModelRole

app = typer.Typer(add_completion=False)

_MOST: Final = 50  # runs at once
_POLL_SECONDS: Final = 0.5
_ROLES: Final = tuple(role.value for role in ModelRole)
_FAILED: Final = (
    "Fork the runs that failed, at most 50, latest first; no question is asked in them, and they are never live."
)
_DONE: Final = "The original changed this, which stays changed; an equal call asks first:"


@app.command()
def fork(  # noqa: PLR0913, PLR0917 - its options
    context: typer.Context,
    run: Annotated[str, RunArgument(help=f"{RUN_HELP} Without it: those of --failed.")] = "",
    at: Annotated[str, typer.Option(help="start, a decision (d2) or a task of the main plan (t3).")] = "start",
    model: Annotated[list[str] | None, typer.Option(metavar="[ROLE=]MODEL", help="Ask this configured model.")] = None,
    prompt: Annotated[list[str] | None, typer.Option(metavar="NAME=HASH", help="Use a stored wording.")] = None,
    epoch: Annotated[int | None, typer.Option(min=1, help="Use the agents and tools of this epoch.")] = None,
    team: Annotated[list[str] | None, typer.Option(metavar="NAME@V", help="Use this version of a team.")] = None,
    text: Annotated[str | None, typer.Option("--input", help="Ask something else; only at start.")] = None,
    live: Annotated[bool, typer.Option("--live", help="Make calls that may change something.")] = False,
    failed: Annotated[bool, typer.Option("--failed", help=_FAILED)] = False,
    since: Annotated[str, typer.Option(help="With --failed: those accepted in the last 45m, 12h, 30d or 8w.")] = "1d",
    yes: Yes = False,
    no: No = False,
    as_json: JsonEvents = False,
) -> None:
    """Begin an ended run again, before a decision or at a task, and follow the new run as `ask` does.

    What it inherits is not done again. Without --live, calls that may change something are simulated: they get the
    original's result of an equal call. With --failed, an estimate is confirmed first, and all forks are shown last.
    """
    if failed is bool(run) or (failed and (live or text)):
        raise InvalidRequestError("Name a run, or --failed without --live and --input.", "See --help.")
    changes: dict[str, Any] = {
        "model": _models(model or ()),
        "prompts": split_pairs(prompt or (), "--prompt NAME=HASH"),
        "teams": dict(_team(one) for one in team or ()),
        "epoch": epoch,
        "input": text,
    }
    body = {"at": at, "changes": {name: value for name, value in changes.items() if value}, "live": live}
    api = connection_of(context).platform()
    if failed:
        _fork_failed(api, body, since, yes=yes, as_json=as_json)
        return
    original, answers = find_run(api, run), fixed_answers(yes=yes, no=no)
    if live and (done := effect_lines(api.get(f"/v1/runs/{original}"))):
        print_note("\n".join([_DONE, *done]))
    run_id = str(api.start(f"/v1/runs/{original}/fork", body)["run_id"])
    talk = conversation(api, answers, as_json=as_json, run_id=run_id)
    follow(talk, lambda: api.watch(run_id, 0, talk.event))
    if talk.status != "succeeded":
        raise typer.Exit(1)


def _fork_failed(api: Api, body: Document, since: str, *, yes: bool, as_json: bool) -> None:
    """Fork what failed once an estimate was confirmed, wait for all, and show each beside its original."""
    failed = list(islice(_failed(api, SystemClock().now() - parse_duration(since)), _MOST))
    tokens = sum(_tokens(run) for run in failed)
    estimate = f"{counted(len(failed), 'run')} failed, and used {tokens:,} tokens."
    question, otherwise = f"{estimate} Fork them?", f"{estimate} `--yes` forks them."
    if not failed or not confirmed(question, yes=yes, quiet=as_json, otherwise=otherwise):
        print_result({"failed": len(failed), "tokens": tokens, "right": 0, "forks": []}, estimate, as_json=as_json)
        return
    request = {**body, "limits": {"max_clarifications": 0}}
    begun = [_begun(api, run, request) for run in failed]
    ended = [(run, _ended(api, one)) for run, one in zip(failed, begun, strict=True)]
    rows = [
        {"run_id": run["run_id"], "was": run["result"]["code"] or "", "tokens_before": _tokens(run)}
        | {"fork": now.get("run_id", ""), "now": now["status"], "tokens": _tokens(now)}
        for run, now in ended
    ]
    right = sum(row["now"] == "succeeded" for row in rows)
    if as_json:
        print_json({"failed": len(failed), "tokens": tokens, "right": right, "forks": rows})
    else:
        columns = ("RUN", "WAS", "TOKENS", "FORK", "NOW", "TOKENS")
        names = ("run_id", "was", "tokens_before", "fork", "now", "tokens")
        print_table(columns, [[f"{row[name]}" for name in names] for row in rows])
        print_line(f"{right} of {counted(len(rows), 'run')} came out right now.", "bold")
    if not any(row["fork"] for row in rows):
        raise typer.Exit(1)


def _failed(api: Api, begin: datetime) -> Iterator[Document]:
    """Yield the runs that failed and are not forks, latest first."""
    listed = api.pages("/v1/runs", "runs", {"status": "failed"}, most=_MOST)
    for run in takewhile(lambda one: datetime.fromisoformat(one["created_at"]) >= begin, listed):
        found = api.get(f"/v1/runs/{run['run_id']}")
        if not found["forked_from"]:
            yield found


def _begun(api: Api, run: Document, request: Document) -> Document:
    """Return the id of a new fork, or why there is none as its status."""
    try:
        return {"run_id": api.start(f"/v1/runs/{run['run_id']}/fork", request)["run_id"]}
    except StarlingError as error:
        return {"status": error.message}


def _ended(api: Api, fork: Document) -> Document:
    """Return a fork that has ended, or waits for a person; where it can't be read, with the reason as its status."""
    if "run_id" not in fork:
        return fork
    try:
        while (run := api.get(f"/v1/runs/{fork['run_id']}"))["ended_at"] is None and run["status"] != "waiting":
            time.sleep(_POLL_SECONDS)
    except StarlingError as error:
        return {**fork, "status": error.message}
    return run


def _tokens(run: Document) -> int:
    return int(run["result"]["usage"]["tokens"]) if run.get("result") else 0


def _models(given: Sequence[str]) -> Mapping[str, str]:
    """Return models by role; one without a role is that of all roles."""
    models: dict[str, str] = {}
    for one in given:
        role, separator, name = one.partition("=")
        models |= {role: name} if separator and role in _ROLES else dict.fromkeys(_ROLES, one)
    return models


def _team(given: str) -> tuple[str, int]:
    name, _, version = given.partition("@")
    if not (name and version.isdecimal()):
        raise InvalidRequestError(f"{given!r} is not a name and the number of a version.", "Write NAME@3.")
    return name, int(version)
