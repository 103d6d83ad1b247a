"""`starling doctor`: check the installation."""

from dataclasses import asdict
from typing import Annotated

import typer

from starling.app.cli.options import Json
from starling.app.cli.platform.command_settings import settings_of, with_servers_found_here
from starling.app.cli.signals import run_until_stopped
from starling.app.cli.terminal.output import print_json, print_line, progress
from starling.app.doctor.model_trial import ModelReport, try_models
from starling.app.doctor.runner import run_checks
from starling.core.llm import ModelRole

app = typer.Typer(add_completion=False)

_STYLES = {"ok": "green", "warning": "yellow", "problem": "bold red"}
_ABILITY_STYLES = {"works": "green", "emulated": "yellow", "missing": "bold red", "untried": "dim"}
RULES = (
    "not a language model. It answers by rules and needs neither key nor network: a demonstration, whose abilities are "
    "not tried. Set STARLING_MODEL to a language model."
)


@app.command()
def doctor(
    context: typer.Context,
    model: Annotated[
        str | None,
        typer.Argument(metavar="PROVIDER:MODEL", help="With --model: the model to try, else those of the settings."),
    ] = None,
    try_model: Annotated[
        bool, typer.Option("--model", help="Try ten abilities of the model instead, within two minutes.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check Python, Postgres, disk, clock, models, MCP servers and configured services; suggest remedies.

    Starts each MCP server once and asks each model for one word. Exits with 1 if there is a problem.

    With --model it tries what a model can do and names the roles that it suits. Then it exits with 1 if a model does
    not suit a role that the settings use it for.
    """
    if try_model:
        settings = settings_of(context)
        with progress("Trying …"):
            reports = run_until_stopped(try_models(settings, model))
        if as_json:
            print_json({"models": [_as_json(report) for report in reports]})
        for report in () if as_json else reports:
            _say_report(report)
        raise typer.Exit(1 if any(report.fails for report in reports) else 0)
    if model is not None:
        raise typer.BadParameter("a model is tried only with --model", param_hint="PROVIDER:MODEL")
    settings = with_servers_found_here(settings_of(context))
    with progress("Looking …"):
        findings = run_until_stopped(run_checks(settings))
    if as_json:
        print_json([asdict(finding) for finding in findings])
    width = max(len(finding.subject) for finding in findings)
    for finding in () if as_json else findings:
        said = " ".join(f"{finding.message} {finding.remedy}".split())
        print_line(f"{finding.state:<8} {finding.subject:<{width}}  {said}", _STYLES[finding.state])
    if any(finding.state == "problem" for finding in findings):
        raise typer.Exit(1)


def _say_report(report: ModelReport) -> None:
    if not report.results:
        print_line(f"{report.model}: {RULES}")
        return
    print_line(f"{report.model}: {report.requests} requests in {report.seconds:.1f} s", "bold")
    width = max(len(result.ability.name) for result in report.results)
    for result in report.results:
        line = f"{result.state:<8}  {result.ability.name:<{width}}  {result.detail}"
        print_line(line, _ABILITY_STYLES[result.state])
    for role in ModelRole:
        used = " (the settings use it for this role)" if role in report.used_for else ""
        fits = f"does not suit{used}; missing: {', '.join(report.lacking.get(role, ()))}"
        print_line(f"{role.value:<{len('reasoning')}}  {f'suits{used}' if role in report.suits else fits}")
    for hint in report.hints:
        print_line(hint)


def _as_json(report: ModelReport) -> dict[str, object]:
    return {
        "model": report.model,
        "kind": "language model" if report.results else "rules",
        "abilities": [
            {
                "ability": result.ability.code,
                "state": result.state,
                "detail": result.detail,
                "seconds": round(result.seconds, 3),
            }
            for result in report.results
        ],
        "suits": list(report.suits),
        "lacking": report.lacking,
        "used_for": list(report.used_for),
        "hints": list(report.hints),
        "requests": report.requests,
        "seconds": round(report.seconds, 3),
    }
