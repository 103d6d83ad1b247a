"""`starling prompt`: prompts in force, their texts, and what their sources have now."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer

from starling.app.cli.options import Json
from starling.app.cli.platform.connection import connection_of
from starling.app.cli.terminal.output import print_fields, print_json, print_line, print_list, print_result, progress
from starling.client.api import Document, path_of

app = typer.Typer(add_completion=False, no_args_is_help=True)

_PATH: Final = "/v1/prompts"
_LANGFUSE: Final = "langfuse"  # the source, among the names of prompts in warnings
_HASH_CHARS: Final = 12
_ASKING: Final = "Asking the sources of prompts …"
DIFFERENCES: Final = 10  # the exit code where there are some


@app.callback()
def root() -> None:
    """Show prompts. Runs that have begun keep the wordings that they began with; `registry reload` takes new ones."""


@app.command("list")
def list_prompts(context: typer.Context, as_json: Json = False) -> None:
    """List the prompts in force: where each text is from, its hash, and since which epoch."""

    def cells(one: Document) -> tuple[str, ...]:
        return one["name"], source(one), one["hash"][:_HASH_CHARS], str(one["since"])

    found = connection_of(context).api().get(_PATH)["prompts"]
    print_list(
        found, ("NAME", "SOURCE", "HASH", "SINCE EPOCH"), cells, empty="There are no prompts yet.", as_json=as_json
    )


@app.command()
def show(
    context: typer.Context,
    wanted: Annotated[str, typer.Argument(metavar="NAME|HASH", help="A prompt in force, or the hash of any text.")],
    text: Annotated[bool, typer.Option("--text", help="Print only the text, as Langfuse or a file takes it.")] = False,
    as_json: Json = False,
) -> None:
    """Show the text of a prompt: by its name the one in force, or any by its hash or how that begins."""
    found = connection_of(context).api().get(path_of("prompts", wanted))
    if not (text or as_json):
        label = f", label {found['label']}" if found["label"] else ""
        fields = {
            "name": found["name"],
            "hash": found["hash"],
            "source": f"{source(found)}{label}",
            "in force": "yes" if found["in_force"] else "no",
            "variables": ", ".join(found["variables"]),
        }
        print_fields(fields, 10)
        print_line()
    print_result(found, found["text"], as_json=as_json)


@app.command()
def diff(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="One prompt; default: all.")] = None,
    as_json: Json = False,
) -> None:
    """Compare the texts in force with those that their sources have now. Exits with 10 if some differ."""
    with progress(_ASKING):
        found = connection_of(context).api().get(f"{_PATH}/diff", name=name)
    if as_json:
        print_json(found)
    else:
        for change in found["changes"].values():
            before, after = place(change["before"]), place(change["after"])
            for line in change["diff"] or [f"{change['after']['name']}: {before} → {after}, the same text"]:
                print_line(line)
        _print_warnings(found)
        if not found["changes"]:
            print_line(f"{'The local texts' if _is_unasked(found) else 'The sources'} have nothing new.")
    if found["changes"]:
        raise typer.Exit(DIFFERENCES)


@app.command()
def pull(context: typer.Context, as_json: Json = False) -> None:
    """Fetch and store the texts that the sources have now, for a reload at which Langfuse can't be reached.

    No run gets them before `starling registry reload`. Exits with 1 if Langfuse can't be asked.
    """
    with progress(_ASKING):
        found = connection_of(context).api().post(f"{_PATH}/pull")
    print_result(found, lambda: _print_pulled(found), as_json=as_json)
    if _is_unasked(found):
        raise typer.Exit(1)


def _print_pulled(found: Document) -> None:
    for prompt, change in found["changes"].items():
        print_line(f"~ prompt {prompt}: {place(change['before'])} → {place(change['after'])}")
    _print_warnings(found)
    if _is_unasked(found):
        print_line("Nothing was stored.")
    elif found["changes"]:
        print_line("`starling prompt diff` shows what differs, `starling registry reload` takes it.")
    else:
        print_line("The sources have nothing new.")


def _is_unasked(found: Document) -> bool:
    """Whether Langfuse is configured and could not be asked."""
    return _LANGFUSE in found["warnings"]


def _print_warnings(found: Document) -> None:
    for prompt, why in found["warnings"].items():
        print_line(f"! prompt {prompt}: {why}", "yellow")


def place(wording: Mapping[str, Any] | None) -> str:
    """Return where a text is from and how its hash begins."""
    return f"{source(wording)} ({wording['hash'][:_HASH_CHARS]})" if wording else "nothing"


def source(wording: Mapping[str, Any]) -> str:
    """Return where a text is from: the name and version that it has in Langfuse, or `local`."""
    if wording["source"] == "local":
        return "local"
    return f"{wording['source']} {wording['remote_name']} v{wording['version']}"
