"""A run as lines of text, live or stored: its tasks with their calls and verdicts as a tree, and its answer."""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from operator import itemgetter
from typing import Final

from rich.cells import cell_len, set_cell_size

from starling.app.cli.terminal.build_text import build_lines, wrapped
from starling.app.cli.terminal.formats import (
    Line,
    arguments_text,
    bounds_text,
    case_of,
    log_text,
    result_lines,
    result_text,
    seconds_text,
)
from starling.app.cli.terminal.interrupt_text import behind_line, interrupt_lines
from starling.app.cli.terminal.output import printable
from starling.core.run_document.document import (
    Call,
    ModelCall,
    Notice,
    PlanChange,
    PlanVersion,
    RunDocument,
    TaskAttempt,
    TaskRecord,
)
from starling.core.run_document.rows import REVIEWS
from starling.core.run_status import RunStatus
from starling.core.task_paths import is_within, without_numbers
from starling.core.text import one_line

_TEXT_CHARS: Final = 200
_READ_CHARS: Final = 1_000  # of a text that may be long: a frame is drawn eight times a second
_TROUBLE_CHARS: Final = 800  # a refused answer is quoted with 300 of them
_LEAST_TEXT: Final = 16
_ARTIFACT_CHARS: Final = 12  # of an id, as `run artifacts` takes its beginning
_INDENT: Final = "    "
_NEVER: Final = datetime.max.replace(tzinfo=UTC)
_QUIET: Final = frozenset({"debug", "info", "notice"})
_INSIDE: Final = re.compile(r"(:\d+|\.[a-z][^/.:]*)$")  # what the path of a star has after that of its task
_NODE: Final = re.compile(r"(^|/)(supervisor|qa)/\d+$")
_MARKS: Final = {
    **dict.fromkeys(("approved", "succeeded", "APPROVED", "resolved"), ("✓", "green")),
    **dict.fromkeys(("failed", "REJECTED", "unusable", "in_doubt", "expired"), ("✗", "red")),
    "FIXED": ("✎", "yellow"),
    "waiting": ("?", "yellow"),
    "warning": ("!", "yellow"),
    "error": ("!", "red"),
    "unfinished": ("–", "yellow"),
    "cancelled": ("–", "yellow"),
    "pending": ("·", "dim"),
}
_WAITS: Final = {
    "approval": "waiting for approval",
    "clarification": "waiting for an answer",
    "budget": "waiting for more tokens",
    "in_doubt": "waiting for a decision",
}

type _Part = tuple[datetime, str, Callable[[str], Iterable[Line]]]
"""A decision or a task: when it began, the path of its star, and what yields its lines at an indentation."""


@dataclass(frozen=True, slots=True)
class TreeForm:
    """How a tree is drawn: in lines of at most `width` columns, with the times of things that `now` is the end of.

    With `details` it has decisions, model calls, tokens and ids. While a run is followed, `frame` marks what works;
    tasks that ended up to event `after`, and the first `built` events of builds, are on the screen already.
    """

    width: int
    now: datetime | None = None
    details: bool = False
    live: bool = False
    frame: str = "…"
    after: int = 0
    built: int = 0


def stored_lines(document: RunDocument, form: TreeForm, run: str) -> Iterator[Line]:
    """Yield the lines of a stored run; `run` is how commands name it."""
    for name in ("run_id", "status", "thread_id", "epoch", "trace_id"):
        yield f"{name:<10} {getattr(document, name)}", None
    yield from _part("Request", filter(None, [" ".join(document.input.split())]))
    if origin := document.forked_from:
        yield f"forked at  {origin['at']} of run {origin['run']}{', live' if origin['live'] else ''}", None
    if behind := document.behind:
        yield behind_line(behind.run_id, behind.status), "yellow"
    if (allowed := document.governance) and (form.details or allowed["source"] != "table"):
        yield f"allowed    {bounds_text(allowed['row'])} (by the {allowed['source']})", None
    if tree := [*RunTree(document, form).lines()]:
        yield "Tasks", "bold"
        yield from tree
    changes = ((one, plan) for plan in document.plans for one in plan.changes)
    yield from _part("Changes of the plan", (_change_text(one, plan) for one, plan in changes))
    waits: list[str] = []
    for item in document.interrupts:
        if item.state == "open":
            _, *others = interrupt_lines(item.kind, asdict(item), run)
            waits += [f"{item.kind} {item.id}: {item.message}", *others]
    yield from _part("Waits for", waits)
    judged = (f"{one.score:g} by {one.by}{one.comment and ': '}{one.comment}" for one in document.feedback)
    yield from _part("Feedback", (one_line(text, _TEXT_CHARS) for text in judged))
    yield from ((one.text, "yellow") for one in document.pruned)
    if document.result:
        yield from result_lines(document.result, run_times(document))


def run_times(document: RunDocument) -> str:
    """Return when a run had its plan and its end, from its acceptance on; empty where it isn't known."""
    plan = document.plans[0].at if document.plans else None
    times = ((name, at - document.created_at) for name, at in (("plan", plan), ("done", document.ended_at)) if at)
    return ", ".join(f"{name} {seconds_text(time.total_seconds())}" for name, time in times)


def _change_text(change: PlanChange, plan: PlanVersion) -> str:
    of_team = f" of {plan.star}" if plan.star else ""
    return f"version {plan.version}{of_team}: {change.kind} {change.task_id}: {change.reason}"


def _part(title: str, texts: Iterable[str]) -> Iterator[Line]:
    for number, text in enumerate(texts):
        if not number:
            yield title, "bold"
        yield f"  {text}", None


class RunTree:
    """What a run did, as lines."""

    def __init__(self, document: RunDocument, form: TreeForm) -> None:
        self.document, self.form = document, form
        proofs = [one for one in document.builds if one["type"] == "proof"]
        self.proofs = {without_numbers(one["trial_path"]): bool(one["passed"]) for one in proofs}
        planned = {without_numbers(plan.star): {task["id"] for task in plan.tasks} for plan in document.plans}
        paths = {"", *(task.path for task in document.tasks)}
        self.parts: defaultdict[str, list[_Part]] = defaultdict(list)  # by the task whose team they are of
        tries: dict[str, str] = {}  # the path of the last try of each task
        for call in document.decisions if form.details else ():
            star = _NODE.sub("", call.path)
            owner = _INSIDE.sub("", star)
            star = star if star != call.path else owner  # else it is about a task
            self.parts[owner if owner in paths else ""].append((call.at, star, partial(self._model_call, call)))
        for task in document.tasks:
            dropped = task.status == "pending" and task.id not in planned.get(without_numbers(task.star), ())
            if not dropped and not 0 < task.seq <= form.after:
                begin = task.attempts[0].at if task.attempts else task.ended_at or _NEVER
                owner = _INSIDE.sub("", task.star)
                self.parts[owner if owner in paths else ""].append((begin, task.star, partial(self._task, task)))
                tries[task.place] = task.path
        self.notices: defaultdict[str, list[Notice]] = defaultdict(list)
        for notice in document.notices:
            if notice.seq > form.after:
                place = without_numbers("/".join(filter(None, (notice.star, notice.task))))
                self.notices[tries.get(place, "")].append(notice)
        waits = document.status is RunStatus.WAITING
        self.asking = [item for item in document.interrupts if waits and item.state == "open"]

    def lines(self) -> Iterator[Line]:
        """Yield the lines, each with its style."""
        yield from self._star("", "")
        yield from self._troubles("", "")
        for item in () if self.form.live else self.document.interrupts:
            if item.state != "open":
                by = f" by {item.answered_by}" if item.answered_by else ""
                text = f"{item.kind} of {item.path or 'the run'}: {item.message}"
                took = self._took(item.createdAt, item.answered_at)
                yield self._line("", item.state, text, f"{item.state}{by}", took)

    def _star(self, owner: str, indent: str) -> Iterator[Line]:
        """Yield what a team did, or the main star: its decisions and its tasks, in order."""
        before = ""
        for _, star, lines in sorted(self.parts[owner], key=itemgetter(0)):
            case, passed = case_of(star.removeprefix(owner)), self.proofs.get(without_numbers(star))
            if case and passed is not None and not self.form.details:
                continue  # its outcome is shown with the build
            if case and case != before:
                state = "running" if passed is None else "succeeded" if passed else "failed"
                yield self._line(indent, state, f"Case {case}")
            before = case
            yield from lines(f"{indent}{_INDENT}" if case else indent)

    def _task(self, task: TaskRecord, indent: str) -> Iterator[Line]:
        below = f"{indent}{_INDENT}"
        asked = next((_WAITS[item.kind] for item in self.asking if is_within(item.path, task.path)), "")
        state = task.status
        if state == "running":
            state = "waiting" if asked else "unfinished" if self.document.ended_at else state
        text = f"{task.path.rpartition('/')[2]} {task.agent}{': ' if task.text else ''}{task.text}"
        ids = asked if state == "waiting" else "running" if state == "running" and not self.form.live else ""
        ids = "inherited" if task.inherited else ids
        begin = task.attempts[0].at if task.attempts else None
        end = task.ended_at or (self.form.now if state in ("running", "waiting") else None)
        calls = (call for call in self.document.model_calls() if is_within(call.path, task.path))  # and of its team
        yield self._line(indent, state, text, ids, self._took(begin, end), self._spent(calls))
        for event in self.document.builds[self.form.built :]:
            if event["path"] == task.path:
                yield from self._wrapped(below, build_lines(event))
        yield from self._star(task.path, below)
        for attempt in task.attempts:
            yield from self._attempt(attempt, below)
        if task.status == "failed":
            yield self._line(below, "failed", task.summary, task.code if self.form.details else "")
        for fact in () if self.form.live else task.facts:
            value = fact.value if isinstance(fact.value, str) else json.dumps(fact.value)
            yield f"{below}fact {fact.key}: {one_line(value, _TEXT_CHARS)}", "dim"
        for skill in () if self.form.live else task.skills:
            followed = "followed" if skill.followed else "not followed"
            yield f"{below}skill {skill.id} {followed}: {one_line(skill.task, _TEXT_CHARS)}", "dim"
        yield from self._troubles(task.path, below)

    def _attempt(self, attempt: TaskAttempt, indent: str) -> Iterator[Line]:
        if attempt.number > 1:
            yield f"{indent}attempt {attempt.number}", None
        models = attempt.model_calls if self.form.details else ()
        reviews = [call for call in models if call.path.endswith(REVIEWS)]
        for model in (call for call in models if call not in reviews):
            yield from self._model_call(model, indent)
        for call in attempt.calls:
            yield from self._call(call, indent)
        for review in reviews:
            yield from self._model_call(review, indent)
        verdict = attempt.verdict
        if verdict and (self.form.details or verdict.status != "APPROVED"):
            reasons = "; ".join(verdict.reasons)
            yield self._line(indent, verdict.status, f"{verdict.status}{reasons and ': '}{reasons}")

    def _call(self, call: Call, indent: str) -> Iterator[Line]:
        logs = [log for log in self.document.logs if log["call_id"] == call.id]
        asked = next((_WAITS[item.kind] for item in self.asking if (item.call or {}).get("call_id") == call.id), "")
        state = call.state if call.state in ("in_doubt", "unusable") else call.status
        said = result_text(call.result, call.simulated)
        if not call.status:
            said = call.progress or (log_text(logs[-1]) if logs else "")
            state = state or ("waiting" if asked else "unfinished" if self.document.ended_at else "running")
        notes = [call.id] if self.form.details or call.effect != "read" else []
        notes += [call.effect, call.state] if call.effect != "read" else []
        notes += [asked, f"settled by {call.settled_by}" if call.settled_by else ""]
        notes += [f"artifact {call.artifact[:_ARTIFACT_CHARS]}" if call.artifact and not self.form.live else ""]
        now = self.form.now if state == "running" else None
        took = seconds_text(call.ms / 1000) if call.ms is not None and self.form.now else self._took(call.at, now)
        text = f"{call.name}({arguments_text(call.args)}){said and ': '}{said}"
        yield self._line(indent, state, text, ", ".join(filter(None, [*notes, call.code])), took)
        for log in logs:
            if not self.form.live or log["level"] not in _QUIET:
                style = "dim" if log["level"] in _QUIET else "yellow"
                yield from self._wrapped(f"{indent}{_INDENT}", [(f"logs {log_text(log)}", style)])

    def _model_call(self, call: ModelCall, indent: str) -> Iterator[Line]:
        star, node, number = ["", "", *call.path.rsplit("/", 2)][-3:]
        plans = [plan.thought_process for plan in self.document.plans if plan.star == star]
        what = {"supervisor": f"decision {number}", "qa": "final answer"}.get(node, "")
        if node == "supervisor" and number.isdigit() and int(number) <= len(plans):
            what = f"{what}: {plans[int(number) - 1]}"
        model = f"{call.model}{f' ({call.role})' if call.role else ''}{f': {call.error}' if call.error else ''}"
        took = seconds_text(call.ms / 1000) if call.ms is not None else ""
        notes = (model if what else "", f"step {call.step}", took, self._spent([call]))
        yield self._line(indent, "failed" if call.error else "model", what or model, *notes)

    def _troubles(self, path: str, indent: str) -> Iterator[Line]:
        for notice in self.notices[path]:
            mark, style = _MARKS[notice.kind]
            place = "" if path else "/".join(filter(None, (notice.star, notice.task)))
            text = f"{notice.kind.capitalize()}{place and f' in {place}'}: {one_line(notice.message, _TROUBLE_CHARS)}"
            yield from self._wrapped(indent, [(f"{mark} {text}", style)])

    def _spent(self, calls: Iterable[ModelCall]) -> str:
        tokens = sum(call.tokens for call in calls) if self.form.details else 0
        return f"{tokens:,} tokens" if tokens else ""

    def _took(self, begin: datetime | None, end: datetime | None) -> str:
        return seconds_text((end - begin).total_seconds()) if begin and end and self.form.now else ""

    def _wrapped(self, indent: str, lines: Iterable[Line]) -> Iterator[Line]:
        return ((line, style) for text, style in lines for line in wrapped(f"{indent}{text}", self.form.width))

    def _line(self, indent: str, state: str, text: str, *notes: str) -> Line:
        """Return a line: its text is cut where the notes behind it have no room."""
        mark, style = _MARKS.get(state, (self.form.frame, "cyan")) if state != "model" else ("∙", None)
        tail = "".join(f"  {note}" for note in notes if note)
        room = max(_LEAST_TEXT, self.form.width - cell_len(indent) - cell_len(tail) - 2)
        shown = printable(one_line(text[:_READ_CHARS], min(room, _TEXT_CHARS)))
        if cell_len(shown) > room:  # of wide characters fewer fit in
            shown = set_cell_size(shown, room)
        return f"{indent}{mark} {shown}{tail}", style
