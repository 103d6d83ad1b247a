"""How ids, moments, durations, counts and bounds are written, and text that lines of events and trees of runs share."""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from starling.app.cli.terminal.output import json_text
from starling.core.errors import InvalidRequestError
from starling.core.json import canonical
from starling.core.text import one_line

_SHORTEST: Final = 8
_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_DURATION: Final = re.compile(r"([0-9]{1,7})([mhdw])")
_LONGEST: Final = timedelta(days=36_500)
type Data = Mapping[str, Any]
type Line = tuple[str, str | None]
"""A line of text and its style."""
ARGUMENTS_CHARS: Final = 90
_REASON_CHARS: Final = 200
_EXCERPT_CHARS, _ARTIFACT_CHARS = 120, 12  # of an excerpt, and of an id, as `run artifacts` takes its beginning
_NAMED_CHARS: Final = 300  # of arguments, in replies that name what was changed
_NOT_ANSWERED: Final = "Not answered"  # as replies that no model wrote say it, too
_COUNTED: Final = (("model_calls", "model call"), ("tool_calls", "tool call"), ("tokens", "token"))
_TRIAL: Final = re.compile(r"\.(?=[a-z])(?:case-)?(?P<name>[^/.:]+)")


def moment(written: str | datetime, *, utc: bool = False) -> str:
    """Return a moment to the second with its zone: `2026-11-20 06:12:01 -05`, `2026-11-20 11:12:01 UTC`."""
    found = datetime.fromisoformat(written) if isinstance(written, str) else written
    return f"{found.astimezone(UTC if utc else None):%Y-%m-%d %H:%M:%S %Z}"


def parse_duration(written: str) -> timedelta:
    """Return the duration that a text like `45m`, `12h`, `30d` or `8w` stands for. Raises InvalidRequestError."""
    found = _DURATION.fullmatch(written.strip())
    duration = timedelta(**{_UNITS[found[2]]: int(found[1])}) if found else timedelta()
    if timedelta() < duration <= _LONGEST:
        return duration
    raise InvalidRequestError(
        f"{written!r} is not a duration.",
        "Write a whole number above 0 and a unit, m, h, d or w: 45m, 12h, 30d, 8w; at most 36500d.",
    )


def short_ids(ids: Sequence[str]) -> Sequence[str]:
    """Return as much of the end of each id as tells them apart, 8 characters or more.

    Ids that were made in the same weeks begin alike.
    """
    for length in range(_SHORTEST, max(map(len, ids), default=0)):
        shortened = [each.replace("-", "")[-length:] for each in ids]
        if len(set(shortened)) == len(set(ids)):
            return shortened
    return ids


def counted(number: int, what: str) -> str:
    """Return a number of things: `1 call`, `2 calls`."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def arguments_text(arguments: Data) -> str:
    """Return the arguments of a call in one line."""
    shown = ", ".join(f"{name}={json_text(value)}" for name, value in arguments.items())
    return one_line(shown, ARGUMENTS_CHARS)


def seconds_text(seconds: float) -> str:
    """Return a duration: `< 1 ms`, `40 ms`, `1.2 s`."""
    if seconds < 0.001:
        return "< 1 ms"
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def bounds_text(row: Any) -> str:
    """Return the members of a row of the governance table that set a bound, such as `effects read · seconds 60`."""
    return " · ".join(f"{name} {bound_text(value)}" for name, value in row.items() if value is not None)


def bound_text(value: Any) -> str:
    """Return the value of a member of a row; `–` where there is none."""
    if value is None:
        return "–"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"  # pyright: ignore[reportUnknownArgumentType]
    return f"{value:g}" if isinstance(value, float) else str(value) or "none"


def result_text(result: str, simulated: str | None) -> str:
    """Return the result of a call; of one that a trial didn't make, after what gave it: `[fixture]`."""
    return f"[{simulated}] {result.partition('\n')[2]}" if simulated else result


def log_text(report: Data) -> str:
    """Return what a server wrote to its log during a call: `warning, db: slow today`."""
    source = ", ".join(filter(None, (report["level"], report["logger"])))
    return f"{source}: {report['message']}"


def case_of(path: str) -> str:
    """Return the name of the case that a team is tried on at a path; empty outside of trials."""
    found = _TRIAL.search(path)
    return found["name"] if found else ""


def result_lines(result: Data, times: str = "") -> Iterator[Line]:
    """Yield the answer of a run with its sources, what is missing in it, what it changed, and what it used."""
    reply: str = result["reply"]
    if reply:
        yield "Answer", "bold"
        yield reply, None
    parts = {
        "Sources": [line for one in result.get("citations", ()) for line in _source_lines(one)],
        "Assumptions": result.get("assumptions", ()),
        _NOT_ANSWERED: [
            f"{one['part']}: {one_line(one['reason'], _REASON_CHARS)}"
            for one in result.get("degraded", ())
            if not _is_said(one, reply)
        ],
    }
    for title, lines in parts.items():
        if lines:
            yield title, "bold"
        for line in lines:
            yield f"  {line}", "yellow" if title == _NOT_ANSWERED else None
    for one in result.get("effects", ()):
        if f"{one['name']} {canonical(one['args'])[:_NAMED_CHARS]}" in reply:
            continue
        is_sure = one["declared"] and one["state"] == "succeeded"
        line = f"{'Changed' if is_sure else 'May have changed something'}: {one['name']} {arguments_text(one['args'])}"
        yield line[:_REASON_CHARS], None if is_sure else "yellow"
    used = ", ".join(counted(result["usage"][name], what) for name, what in _COUNTED)
    status = result["status"].replace("_", " ").capitalize()
    yield f"{status}: {used}{times and f'; {times}'}", "green" if result["status"] == "succeeded" else "red"


def _source_lines(source: Data) -> Iterator[str]:
    """Yield a source of an answer, then its excerpts with where they stand: an artifact, a call's result, an output."""
    yield f"[{source['id']}] {': '.join(filter(None, (source['agent'], ', '.join(source['tools']))))}"
    for one in source.get("excerpts", ()):
        artifact, place = one.get("artifact"), one.get("call_id") or source["task_id"]
        held = f"artifact {artifact[:_ARTIFACT_CHARS]}" if artifact else place
        yield f"    “{one_line(one['text'], _EXCERPT_CHARS)}” ({held}, {one['start']}-{one['end']})"


def _is_said(part: Data, reply: str) -> bool:
    """Whether a reply names a part that is missing, or begins with the reason, which may be cut."""
    reason = " ".join(part["reason"].rstrip("…").split())
    named = part["part"] in reply.partition(_NOT_ANSWERED)[2]
    return named or (bool(reason) and " ".join(reply.split()).startswith(reason))
