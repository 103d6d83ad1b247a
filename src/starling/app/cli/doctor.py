"""`starling doctor`: check the installation."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from starling.app.cli.command_settings import settings_of, with_servers_found_here
from starling.app.cli.signals import run_until_stopped
from starling.app.cli.terminal.output import print_json, print_line, progress
from starling.app.doctor.finding import Finding
from starling.app.doctor.runner import run_checks

app = typer.Typer(add_completion=False)

_STYLES = {"ok": "green", "warning": "yellow", "problem": "bold red"}


@app.command()
def doctor(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Check Python, Postgres, disk, clock, models, MCP servers and configured services; suggest remedies.

    Starts each MCP server once and asks each model for one word. Exits with 1 if there is a problem.
    """
    settings = with_servers_found_here(settings_of(context))
    with progress("Looking …"):
        findings = run_until_stopped(run_checks(settings))
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        _say(findings)
    if any(finding.state == "problem" for finding in findings):
        raise typer.Exit(1)


def _say(findings: Sequence[Finding]) -> None:
    width = max(len(finding.subject) for finding in findings)
    for finding in findings:
        said = " ".join(f"{finding.message} {finding.remedy}".split())
        print_line(f"{finding.state:<8} {finding.subject:<{width}}  {said}", _STYLES[finding.state])
