"""`starling conversation`: threads with their branches and states; fork, check out, rewind, compare, prune, delete."""

import json
from collections.abc import Iterable, Sequence
from typing import Annotated, Final

import typer

from starling.app.cli.completion import THREADS
from starling.app.cli.options import Full, Json, Latest, Tenant, Utc, Yes
from starling.app.cli.platform.connection import connection_of
from starling.app.cli.terminal.comparison_text import effect_lines, print_comparison
from starling.app.cli.terminal.formats import counted, moment
from starling.app.cli.terminal.output import print_json, print_line, print_list, print_note, print_part, print_result
from starling.app.cli.terminal.prompts import confirmed
from starling.client.api import Api, Document, path_of
from starling.core.principal import DEFAULT_TENANT
from starling.core.text import one_line

app = typer.Typer(add_completion=False, no_args_is_help=True)

_PATH: Final = "/v1/threads"
_PAGE: Final = 200
_TEXT_CHARS: Final = 100
_SAID: Final = ("text", "content", "message")
_UNDONE: Final = "A rewind doesn't undo what tools have changed:"

_Thread = Annotated[str, typer.Argument(help="The thread.", autocompletion=THREADS)]
_Branch = Annotated[str | None, typer.Option(help="The branch; default: the one that runs go to.")]
_Position = Annotated[int, typer.Argument(min=0, help="The position of the last state that stays; 0 is the beginning.")]


@app.callback()
def root() -> None:
    """Manage conversations: threads, their branches, and the states on these."""


@app.command("list")
def list_threads(
    context: typer.Context,
    limit: Latest = 20,
    tenant: Tenant = DEFAULT_TENANT,
    utc: Utc = False,
    as_json: Json = False,
) -> None:
    """List threads, the one that began last first."""

    def cells(thread: Document) -> tuple[str, ...]:
        branches = thread["branches"]
        last = max((branch["last_at"] for branch in branches if branch["last_at"]), default="")
        counts = sum(not branch["hidden"] for branch in branches), sum(branch["runs"] for branch in branches)
        return thread["id"], thread["branch"], *map(str, counts), moment(last, utc=utc) if last else ""

    found = list(connection_of(context).api(tenant).pages(_PATH, "threads", {}, most=_PAGE, limit=limit))
    columns = ("THREAD", "BRANCH", "BRANCHES", "RUNS", "LAST RUN")
    print_list(found, columns, cells, empty="There are no conversations yet.", as_json=as_json)


@app.command()
def show(  # noqa: PLR0913, PLR0917 - its options
    context: typer.Context,
    thread: _Thread,
    branch: _Branch = None,
    agent: Annotated[str | None, typer.Option(help="Only the states of this agent.")] = None,
    full: Full = False,
    tenant: Tenant = DEFAULT_TENANT,
    as_json: Json = False,
) -> None:
    """Show the branches of a thread, its last plan and what it has used, and the states on the line of a branch."""
    api = connection_of(context).api(tenant)
    found = api.get(path_of("threads", thread))
    states = list(_states(api, thread, branch, agent=agent))
    if as_json:
        print_json({**found, "states": states})
        return
    print_part("Branches", [_branch_line(one, found["branch"]) for one in found["branches"]])
    if found["last_plan"]:
        print_part("Last plan", [_task_line(one) for one in found["last_plan"]["tasks"]])
    used = found["session_metrics"]
    print_part(
        "Used", [", ".join(counted(number, name.replace("_", " ").removesuffix("s")) for name, number in used.items())]
    )
    print_part(f"States of {branch or found['branch']}", [_state_line(one, full=full) for one in states])


@app.command()
def fork(  # noqa: PLR0913, PLR0917 - its options
    context: typer.Context,
    thread: _Thread,
    position: Annotated[int | None, typer.Argument(min=0, help="The last state that both have; default: all.")] = None,
    branch: _Branch = None,
    name: Annotated[str | None, typer.Option(help="The name of the new branch.")] = None,
    tenant: Tenant = DEFAULT_TENANT,
    as_json: Json = False,
) -> None:
    """Begin a branch at a state of another one, also while runs go on."""
    body = {"branch": branch, "position": position, "name": name}
    made = connection_of(context).api(tenant).post(path_of("threads", thread, "fork"), body)
    print_result(made, f"Branch {made['id']} begins after position {made['fork_position']}.", as_json=as_json)


@app.command()
def checkout(
    context: typer.Context,
    thread: _Thread,
    branch: Annotated[str, typer.Argument(help="The branch.")],
    tenant: Tenant = DEFAULT_TENANT,
    as_json: Json = False,
) -> None:
    """Make a branch the one that runs go to where they name none."""
    found = connection_of(context).api(tenant).post(path_of("threads", thread, "checkout"), {"branch": branch})
    print_result(found, f"Runs of {thread} go to branch {branch} from now on.", as_json=as_json)


@app.command()
def rewind(  # noqa: PLR0913, PLR0917 - its options
    context: typer.Context,
    thread: _Thread,
    position: _Position,
    branch: _Branch = None,
    yes: Yes = False,
    tenant: Tenant = DEFAULT_TENANT,
    as_json: Json = False,
) -> None:
    """Hide what lies beyond a position; forks that begin there stay. Names first what tools have changed there."""
    api = connection_of(context).api(tenant)
    effects = _effects_beyond(api, thread, branch, position)
    if effects:
        print_note("\n".join([_UNDONE, *effects]))
        if not confirmed("Rewind all the same?", yes=yes, quiet=as_json, otherwise="Repeat it with --yes to rewind."):
            raise typer.Exit(1)
    made = api.post(path_of("threads", thread, "rewind"), {"branch": branch, "position": position})
    hidden = made["hidden"]
    left = f" What was beyond is on the hidden branch {hidden['id']}." if hidden else ""
    print_result(made, f"Branch {made['branch']['id']} ends at position {position}.{left}", as_json=as_json)


@app.command()
def diff(  # noqa: PLR0913, PLR0917 - its options
    context: typer.Context,
    thread: _Thread,
    first: Annotated[str, typer.Argument(metavar="A", help="A branch.")],
    second: Annotated[
        str | None, typer.Argument(metavar="B", help="Another branch; default: the one that runs go to.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Show what is the same, too.")] = False,
    tenant: Tenant = DEFAULT_TENANT,
    as_json: Json = False,
) -> None:
    """Compare two branches: their runs beyond what they share, in pairs, and what tools have changed on each."""
    found = connection_of(context).api(tenant).get(path_of("threads", thread, "diff"), a=first, b=second)
    if as_json:
        print_json(found)
        return
    print_line(f"Both have the same states up to position {found['common']}.")
    for side in (found["a"], found["b"]):
        print_line(f"{side['branch']}: {len(side['runs'])} runs beyond")
        changed = [line for run in side["runs"] for line in effect_lines({"result": run})]
        print_part("Changed there, which a rewind doesn't undo", changed)
    for pair in found["pairs"]:
        print_line()
        print_comparison(pair, every=every)


@app.command()
def prune(context: typer.Context, thread: _Thread, tenant: Tenant = DEFAULT_TENANT, as_json: Json = False) -> None:
    """Delete the states, with their runs, that no visible branch reaches: what rewinds left."""
    removed = connection_of(context).api(tenant).post(path_of("threads", thread, "prune"))
    count = len(removed["branches"])
    print_result(removed, f"{count} hidden branches with {removed['runs']} runs were deleted.", as_json=as_json)


@app.command()
def delete(
    context: typer.Context, thread: _Thread, yes: Yes = False, tenant: Tenant = DEFAULT_TENANT, as_json: Json = False
) -> None:
    """Delete a thread with its runs, their artifacts, and the skills that were learned only there."""
    question, otherwise = f"Delete {thread} with all its runs?", "Repeat it with --yes to delete."
    if not confirmed(question, yes=yes, quiet=as_json, otherwise=otherwise):
        raise typer.Exit(1)
    removed = connection_of(context).api(tenant).delete(path_of("threads", thread)).json()
    runs, artifacts, skills = (counted(removed[f"{one}s"], one) for one in ("run", "artifact", "skill"))
    print_result(removed, f"Thread {thread} was deleted with {runs}, {artifacts} and {skills}.", as_json=as_json)


def _states(
    api: Api, thread: str, branch: str | None, *, agent: str | None = None, after: int = 0
) -> Iterable[Document]:
    query = {"branch": branch, "agent": agent, "after": after}
    return api.pages(path_of("threads", thread, "states"), "states", query, most=_PAGE, cursor="after")


def _task_line(task: Document) -> str:
    return f"{task['id']}  {task['status']:<8}  {task['agent']}: {one_line(task['task'], _TEXT_CHARS)}"


def _branch_line(branch: Document, current: str) -> str:
    begins = f", from {branch['parent']} at {branch['fork_position']}" if branch["parent"] else ""
    marks = ", ".join(
        text
        for text, holds in (
            ("current", branch["id"] == current),
            ("hidden", branch["hidden"]),
            (f"run {branch['live_run']} goes on", branch["live_run"]),
        )
        if holds
    )
    return f"{branch['id']}: {branch['tip']} states{begins}{f' ({marks})' if marks else ''}"


def _state_line(state: Document, *, full: bool) -> str:
    """Return a state on a line, indented where it is a part of another one."""
    data = state["data"]
    said = next((data[name] for name in _SAID if isinstance(data.get(name), str)), None)
    text = json.dumps(data, ensure_ascii=False) if full or said is None else one_line(said, _TEXT_CHARS)
    inside = "  " if state["parent"] else ""
    agent = f" {state['agent']}" if state["agent"] else ""
    return f"{state['position']:>4} {inside}{state['t'].removesuffix('State')}{agent}: {text}"


def _effects_beyond(api: Api, thread: str, branch: str | None, position: int) -> Sequence[str]:
    """Return what the runs beyond a position have changed, a line each."""
    runs = dict.fromkeys(state["run_id"] for state in _states(api, thread, branch, after=position))
    return [line for run in runs if run for line in effect_lines(api.get(f"/v1/runs/{run}"))]
