"""`starling team build` and `prove`: runs of the architect, shown as they go on."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from starling.app.cli.ask import input_text
from starling.app.cli.options import JsonEvents, No, Yes
from starling.app.cli.platform import late_imports
from starling.app.cli.platform.connection import connection_of
from starling.app.cli.run.conversation import conversation, fixed_answers, follow
from starling.app.cli.team.arguments import PATH, Versioned, finding_line, split_version, team_path, unreadable
from starling.app.cli.terminal.output import print_result
from starling.app.cli.terminal.prompts import FixedAnswers
from starling.client.api import Api
from starling.core.errors import InvalidRequestError

app = typer.Typer(add_completion=False)

_Cases = Annotated[
    list[Path] | None,
    typer.Option("--case", help="A YAML or JSON file with a case, or a list of cases, that the team is tried on too."),
]
_Background = Annotated[bool, typer.Option("--background", help="Print the id of the run and end.")]


def _show_run(
    api: Api, path: str, body: Mapping[str, Any], *, fixed: FixedAnswers | None, background: bool, as_json: bool
) -> None:
    """Send the request that starts a run of the architect, and show its events up to the end.

    Raises Exit where it fails; UnansweredError where it waits for what neither a person nor `fixed` answers.
    """
    if background:
        accepted = api.start(path, body)
        run = accepted["run_id"]
        text = f"Run {run} is {accepted['status']}: `starling run tail {run}` follows it."
        print_result(accepted, text, as_json=as_json)
        return
    talk = conversation(api, fixed, as_json=as_json, bounded=True)

    def read() -> None:
        talk.run_id = talk.display.run_id = api.start(path, body)["run_id"]
        api.watch(talk.run_id, 0, talk.event)

    follow(talk, read)
    if talk.status != "succeeded":
        raise typer.Exit(1)


@app.command()
def build(  # noqa: PLR0913, PLR0917 - its options
    context: typer.Context,
    goal: Annotated[
        str, typer.Argument(help="What the team is to do, in plain words; - reads it from standard input.")
    ],
    name: Annotated[str | None, typer.Option(help="The name of the team; default: one that fits the goal.")] = None,
    change: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[@VERSION]",
            help="Build the next version of this team instead; the goal says what is to be changed.",
        ),
    ] = None,
    servers: Annotated[
        list[str] | None, typer.Option("--server", help="Use only this server; repeat it for several.")
    ] = None,
    members: Annotated[int | None, typer.Option(min=1, max=12, help="At most so many members.")] = None,
    cases: _Cases = None,
    no_activate: Annotated[bool, typer.Option("--no-activate", help="Only build and prove it.")] = False,
    partial: Annotated[
        bool, typer.Option("--partial", help="Also build a team that serves only a part of the goal.")
    ] = False,
    yes: Yes = False,
    no: No = False,
    background: _Background = False,
    as_json: JsonEvents = False,
) -> None:
    """Build a team for a goal: designed, checked, proved on cases, stored, and activated if it may be.

    The build is a run, and goes on if this command is ended. It is activated at once if it is proven and calls nothing
    unsafe; otherwise an admin is asked. Set STARLING_API_KEY where the API needs a key.
    """
    if name is not None and change is not None:
        raise InvalidRequestError("--name and --change can't be combined.", "A new version has the name of its team.")
    path, more = PATH, {"name": name} if name is not None else {}
    if change is not None:
        team, base = split_version(change)
        if not team:
            raise InvalidRequestError("--change names no team.", "Write --change NAME or --change NAME@VERSION.")
        path, more = team_path(team, "versions"), {"version": base} if base is not None else {}
    body: dict[str, Any] = {
        "goal": input_text(goal),
        "constraints": {"servers": servers or [], "members": members},
        "cases": _read(cases),
        "activate": not no_activate,
        "partial": partial,
    }
    fixed, api = fixed_answers(yes=yes, no=no), connection_of(context).platform()
    _show_run(api, path, {**body, **more}, fixed=fixed, background=background, as_json=as_json)


@app.command()
def prove(  # noqa: PLR0913, PLR0917 - its options
    context: typer.Context,
    team: Versioned,
    cases: _Cases = None,
    yes: Yes = False,
    no: No = False,
    background: _Background = False,
    as_json: JsonEvents = False,
) -> None:
    """Try a version on its cases again, by default the active, else the newest one. Nothing unsafe is executed."""
    name, wanted = split_version(team)
    body = {"version": wanted, "cases": _read(cases)}
    fixed, api = fixed_answers(yes=yes, no=no), connection_of(context).platform()
    _show_run(api, team_path(name, "prove"), body, fixed=fixed, background=background, as_json=as_json)


def _read(files: Sequence[Path] | None) -> Sequence[Mapping[str, Any]]:
    """Return the cases of files. Raises InvalidRequestError with all that is wrong in one of them."""
    found: list[Mapping[str, Any]] = []
    for file in files or ():
        with unreadable(file):
            cases, findings = late_imports.read_team_file(file, cases=True)
        if findings:
            raise InvalidRequestError(f"{file} has no cases that can be tried.", "\n".join(map(finding_line, findings)))
        found += cases
    return found
