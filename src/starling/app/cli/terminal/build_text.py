"""Builds and proofs of teams as lines of text: what was designed, checked, tried and stored."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from rich.text import Text

from starling.app.cli.terminal.formats import Data, Line, counted, seconds_text
from starling.app.cli.terminal.output import print_line, printable, results
from starling.core.text import one_line

_WIDTH: Final = 80
_TOOLS: Final = 4  # of a member, up to which they are named
_REPLY_CHARS: Final = 400
_SOURCES: Final = ("live", "fixture", "simulated")
_STYLES: Final = {"proven": "green", "failed": "red"}


def build_lines(event: Data) -> Iterator[Line]:
    """Yield the lines of an event of a build."""
    return _LINES[event["type"]](event)


def _design(data: Data) -> Iterator[Line]:
    again = f", attempt {data['attempt']}" if data["attempt"] > 1 else ""
    yield f"Design of {data['team']}{again}: {data['purpose'] or 'no team'}", "bold"
    for member in data["members"]:
        server, names = member.get("server"), member["tools"]
        tools = [name.removeprefix(f"{server}.") for name in names]
        works_with = f"team {member['team']}" if member.get("team") else "no tools"
        if server:
            works_with = f"{server}: {', '.join(tools) if len(tools) <= _TOOLS else counted(len(tools), 'tool')}"
        yield f"  {member['name']}: {member['role']} ({works_with})", None
    for missing in data.get("missing", ()):
        nearest = f"; nearest: {', '.join(missing['nearest'])}" if missing["nearest"] else ""
        yield f"  Not served: {missing['part']}{nearest}", "yellow"


def _checks(data: Data) -> Iterator[Line]:
    found = data["findings"]
    yield (f"Checks: {counted(len(found), 'finding')}", "yellow") if found else ("Checks: sound", "green")
    for one in found:
        yield f"  {': '.join(filter(None, (one['path'], one['reason'])))} {one['remedy']}", "yellow"


def _published(data: Data) -> Iterator[Line]:
    since = f" from epoch {data['epoch']} on" if data.get("epoch") is not None else ""
    state = f"active{since}" if data["state"] == "active" else f"stored: {data['state']}"
    yield f"{data['team']}@{data['version']} is {state}.", "green" if state.startswith("active") else "yellow"


_LINES: Final[Mapping[str, Callable[[Data], Iterator[Line]]]] = {
    "design": _design,
    "checks": _checks,
    "proof": lambda data: _case(data["case"], data, data),
    "published": _published,
}
BUILD_EVENTS: Final = frozenset(_LINES)


def _case(name: str, case: Data, answers: Mapping[str, Any], cost: str = "") -> Iterator[Line]:
    """Yield whether a case passed, how many of its calls were answered from where, and what is not met."""
    calls = ", ".join(f"{answers[source]} {source}" for source in _SOURCES if answers[source]) or "none"
    outcome, style = ("passed", "green") if case["passed"] else ("failed", "red")
    if case["passed"] and not case.get("counts", True):
        outcome, style = "was not judged", "yellow"
    yield f"Case {name} {outcome}; calls: {calls}{cost}", style
    for one in case["criteria"]:
        if not one.get("decided", True):
            yield f"  ? {one['id']}: {one['reason']}", "yellow"
        elif not one["met"]:
            yield f"  ✗ {one['id']}: {one['reason']}", "red"


def proof_report_lines(version: str, report: Data, width: int = _WIDTH) -> Iterator[Line]:
    """Yield the lines of the whole proof of a version, `name@number`, each of at most `width` columns."""
    failed = report["state"] == "failed"
    said = f"The last proof of {version} failed." if failed else f"{version} is {report['state']}."
    yield said, _STYLES.get(report["state"], "yellow")
    yield f"{report['score']:.0%} of the criteria are met; {report['threshold']:.0%} are demanded.", None
    yield f"Run {report['run_id']}", "dim"
    yield f"Trace {report['trace_id']}", "dim"
    for part in report.get("parts", ()):
        if part["cases"]:
            yield f"Part tried by {', '.join(part['cases'])}: {part['part']}", None
    yield from ((doubt, "yellow") for doubt in report.get("not_judged", ()))
    for case in report["cases"]:
        yield "", None
        yield from ((line, style) for text, style in _reported(case) for line in wrapped(text, width))


def _reported(case: Data) -> Iterator[Line]:
    trial = case["trial"]
    answers = {source: sum(call["source"] == source for call in trial["calls"]) for source in _SOURCES}
    cost = f"; {counted(trial['tokens'], 'token')}, {seconds_text(trial['seconds'])}"
    yield from _case(case["id"], case, answers, cost)
    yield from ((f"  ✓ {one['id']}", "green") for one in case["criteria"] if one["met"])
    if case["simulation_only"]:
        yield "  No call was answered by a server: this case proves nothing.", "yellow"
    for call in trial["calls"]:
        yield f"  {call['path']} called {call['tool']}: {call['status']}, {call['source']}", "dim"
    for verdict in trial["verdicts"]:
        yield f"  {': '.join(filter(None, (f'{verdict["member"]} {verdict["status"]}', verdict['reason'])))}", "dim"
    yield f"  {one_line(trial['failure'] or trial['reply'], _REPLY_CHARS)}", None


def activation_lines(arguments: Data) -> Iterator[str]:
    """Yield the lines of what is to be activated: a team's version, its tools, and the state of its proof."""
    for name, value in arguments.items():
        shown = (", ".join(map(str, value)) or "none") if isinstance(value, list) else str(value)  # pyright: ignore[reportUnknownArgumentType]
        yield from wrapped(f"  {name.replace('_', ' ')}: {shown}", _WIDTH)


def print_lines(lines: Iterable[Line]) -> None:
    """Print lines in their styles."""
    for text, style in lines:
        print_line(text, style)


def wrapped(text: str, width: int) -> Iterator[str]:
    """Yield text on lines of at most `width` columns; those after the first are indented by two more."""
    content = " ".join(printable(text).split())
    indent = text[: len(text) - len(text.lstrip(" "))]
    first, *others = Text(content).wrap(results(), width - len(indent) - 2) or [Text()]
    yield f"{indent}{first.plain.rstrip()}"
    for line in others:
        yield f"{indent}  {line.plain.rstrip()}"
