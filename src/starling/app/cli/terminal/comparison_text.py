"""Two runs side by side, as lines."""

from collections.abc import Mapping, Sequence
from typing import Any

from starling.app.cli.terminal.output import print_line, print_paragraph
from starling.core.json import canonical


def print_comparison(document: Mapping[str, Any], *, every: bool) -> None:
    """Print where two runs differ; with `every` what is the same, too."""
    for name in ("a", "b"):
        run = document[name]
        print_line(f"{name.upper()}  {run['run_id']}  {run['status']}, epoch {run['epoch']}")
    print_line(document["text"], "bold" if document["same_request"] else "bold yellow")
    for part in document["parts"] if every else document["differences"]:
        named = part["kind"] if part["place"] == part["kind"] else f"{part['kind']} {part['place']}"
        if part["same"]:
            print_line(f"{named}: the same", "dim")
            continue
        print_line(named, "bold")
        for name in ("a", "b"):
            print_paragraph(f"{name.upper()}: {'(nothing)' if part[name] is None else part[name]}")
    for text in document["unread"]:
        print_paragraph(text, 0)


def effect_lines(run: Mapping[str, Any]) -> list[str]:
    """Return what a run has changed by tools, a line each; neither a rewind nor a fork undoes it."""
    result: Mapping[str, Any] = run["result"] or {}
    effects: Sequence[Mapping[str, Any]] = result.get("effects", ())
    return [f"{call['name']} {canonical(call['args'])}: {call['state']}" for call in effects]
