"""Builds and proofs of teams as lines of text: what was designed, checked, tried and stored."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from rich.text import Text

from starling.app.cli.terminal.event_text import Data, counted, one_line, seconds_text
from starling.app.cli.terminal.output import print_line, printable, results

WIDTH: Final = 80
_TOOLS: Final = 4  # of a member, up to which they are named
_REPLY_CHARS: Final = 400
_SOURCES: Final = ("live", "fixture", "simulated")

type Line = tuple[str, str | None]
"""A line of text and its style."""


def build_lines(kind: str, data: Data, width: int = WIDTH) -> Iterator[Line]:
    """Yield the lines of one event of a build, each of at most `width` columns."""
    for text, style in _LINES[kind](data):
        for line in wrapped(text, width):
            yield line, style


def proof_report_lines(version: str, report: Data, width: int = WIDTH) -> Iterator[Line]:
    """Yield the lines of the whole proof of a version, `name@number`, each of at most `width` columns."""
    for text, style in _report(version, report):
        for line in wrapped(text, width):
            yield line, style


def print_lines(lines: Iterable[Line]) -> None:
    """Print lines in their styles."""
    for text, style in lines:
        print_line(text, style)


def activation_lines(arguments: Data, width: int = WIDTH) -> Iterator[str]:
    """Yield the lines of what is to be activated: a team's version, its tools, and the state of its proof."""
    for name, value in arguments.items():
        yield from wrapped(f"  {name.replace('_', ' ')}: {_said(value)}", width)


def _design(data: Data) -> Iterator[Line]:
    again = f", attempt {data['attempt']}" if data["attempt"] > 1 else ""
    yield f"Design of {data['team']}{again}: {data['purpose'] or 'no team'}", "bold"
    for member in data["members"]:
        yield f"  {member['name']}: {member['role']} ({_works_with(member)})", None
    for missing in data.get("missing", ()):
        nearest = f"; nearest: {', '.join(missing['nearest'])}" if missing["nearest"] else ""
        yield f"  Not served: {missing['part']}{nearest}", "yellow"


def _works_with(member: Data) -> str:
    if member.get("team"):
        return f"team {member['team']}"
    if not member.get("server"):
        return "no tools"
    server, tools = member["server"], [tool.removeprefix(f"{member['server']}.") for tool in member["tools"]]
    return f"{server}: {', '.join(tools) if len(tools) <= _TOOLS else counted(len(tools), 'tool')}"


def _checks(data: Data) -> Iterator[Line]:
    findings: Sequence[Data] = data["findings"]
    if not findings:
        yield "Checks: sound", "green"
        return
    yield f"Checks: {counted(len(findings), 'finding')}", "yellow"
    for one in findings:
        place = f"{one['path']}: " if one["path"] else ""
        yield f"  {place}{one['reason']} {one['remedy']}", "yellow"


def _proof(data: Data) -> Iterator[Line]:
    yield from _case(data["case"], data, {source: data[source] for source in _SOURCES})


def _published(data: Data) -> Iterator[Line]:
    since = f" from epoch {data['epoch']} on" if data.get("epoch") is not None else ""
    state = f"active{since}" if data["state"] == "active" else f"stored: {data['state']}"
    yield (
        f"{data['team']}@{data['version']} is {state}.",
        "yellow" if data["state"] in ("draft", "unproven") else "green",
    )


_LINES: Final[Mapping[str, Callable[[Data], Iterator[Line]]]] = {
    "design": _design,
    "checks": _checks,
    "proof": _proof,
    "published": _published,
}
BUILD_EVENTS: Final = frozenset(_LINES)


def _case(name: str, case: Data, answers: Mapping[str, int], more: str = "") -> Iterator[Line]:
    """Yield whether a case passed, how many of its calls were answered from where, and what is not met."""
    calls = ", ".join(f"{number} {source}" for source, number in answers.items() if number) or "none"
    outcome, style = ("passed", "green") if case["passed"] else ("failed", "red")
    yield f"Case {name} {outcome}; calls: {calls}{more}", style
    for one in case["criteria"]:
        if not one["met"]:
            yield f"  ✗ {one['id']}: {one['reason']}", "red"


def _report(version: str, report: Data) -> Iterator[Line]:
    style = {"proven": "green", "failed": "red"}.get(report["state"], "yellow")
    yield f"The last proof of {version} failed." if style == "red" else f"{version} is {report['state']}.", style
    yield f"{report['score']:.0%} of the criteria are met; {report['threshold']:.0%} are demanded.", None
    yield f"Run {report['run_id']}", "dim"
    yield f"Trace {report['trace_id']}", "dim"
    for case in report["cases"]:
        yield "", None
        yield from _reported(case)


def _reported(case: Data) -> Iterator[Line]:
    trial = case["trial"]
    answers = {source: sum(call["source"] == source for call in trial["calls"]) for source in _SOURCES}
    cost = f"; {counted(trial['tokens'], 'token')}, {seconds_text(trial['seconds'])}"
    yield from _case(case["id"], case, answers, cost)
    for one in case["criteria"]:
        if one["met"]:
            yield f"  ✓ {one['id']}", "green"
    if case["simulation_only"]:
        yield "  No call was answered by a server: this case proves nothing.", "yellow"
    for call in trial["calls"]:
        yield f"  {call['path']} called {call['tool']}: {call['status']}, {call['source']}", "dim"
    for verdict in trial["verdicts"]:
        reason = f": {verdict['reason']}" if verdict["reason"] else ""
        yield f"  {verdict['member']} {verdict['status']}{reason}", "dim"
    yield f"  {one_line(trial['failure'] or trial['reply'], _REPLY_CHARS)}", None


def _said(value: Any) -> str:
    """Return a value as text, a list by its items."""
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"  # pyright: ignore[reportUnknownArgumentType]
    return str(value)


def wrapped(text: str, width: int) -> Iterator[str]:
    """Yield text on lines of at most `width` columns; those after the first are indented by two more."""
    content = " ".join(printable(text).split())
    indent = text[: len(text) - len(text.lstrip(" "))]
    first, *others = Text(content).wrap(results(), width - len(indent) - 2) or [Text()]
    yield f"{indent}{first.plain.rstrip()}"
    for line in others:
        yield f"{indent}  {line.plain.rstrip()}"
