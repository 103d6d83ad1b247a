"""Two runs side by side: requests, prompts, plans, calls, verdicts, effects and ends, the first difference first."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from brain.explanation.causes import find_causes
from brain.explanation.facts import RunFacts, event
from brain.explanation.shape import Ref
from starling.core.json import canonical
from starling.core.run_document.document import RunDocument, TaskRecord
from starling.core.run_status import RunStatus
from starling.core.text import one_line

_MOST: Final = 500
_TEXT_CHARS: Final = 300
_PLAN_CHARS: Final = 1_200
_BEFORE_CHARS: Final = 60  # of what is the same before a difference

type PartKind = Literal[
    "request", "config", "epoch", "prompt", "plan", "task", "call", "verdict", "effects", "end", "cause", "cost"
]
type _Key = tuple[PartKind, str]
type _Part = tuple[_Key, str, Sequence[Ref]]
"""A part of one run: its kind and place, its whole text, and the rows that have it."""


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """One of two compared runs."""

    run_id: str
    status: RunStatus
    epoch: int


@dataclass(frozen=True, slots=True)
class ComparedPart:
    """A part of both runs, side by side; None where a run has no such part."""

    kind: PartKind
    place: str
    a: str | None
    b: str | None
    same: bool
    a_refs: Sequence[Ref]
    b_refs: Sequence[Ref]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs side by side, in the order of the first.

    `differences` are the parts that are not the same; `first_difference` is None where nothing differs.
    """

    a: ComparedRun
    b: ComparedRun
    same_request: bool
    text: str
    first_difference: ComparedPart | None
    differences: Sequence[ComparedPart]
    parts: Sequence[ComparedPart]
    unread: Sequence[str]


def compare(first: RunDocument, second: RunDocument) -> Comparison:
    """Return two runs side by side. What was pruned of one is missing on its side."""
    parts = list(_side_by_side(first, second))
    # A prompt that only one run used differs because of something else.
    parts.sort(key=lambda part: part.kind == "prompt" and (part.a is None or part.b is None))
    same_request = first.input.strip() == second.input.strip()
    differences = [part for part in parts if not part.same]
    text = "The runs do not differ in what is compared."
    if differences:
        first_kind, place = differences[0].kind, differences[0].place
        where = "" if place == first_kind else f" ({place})"
        asked = "" if same_request else "The requests of the runs differ. "
        text = f"{asked}The runs differ first in {first_kind}{where}."
    unread = [f"Run {name}: {one.text}" for name, run in (("A", first), ("B", second)) for one in run.pruned]
    unread += [f"Only the first {_MOST} of {len(parts):,} parts are shown."] if len(parts) > _MOST else []
    return Comparison(
        a=ComparedRun(first.run_id, first.status, first.epoch),
        b=ComparedRun(second.run_id, second.status, second.epoch),
        same_request=same_request,
        text=text,
        first_difference=differences[0] if differences else None,
        differences=differences[:_MOST],
        parts=parts[:_MOST],
        unread=unread,
    )


def _side_by_side(first: RunDocument, second: RunDocument) -> Iterator[ComparedPart]:
    """Yield the parts of both by kind and place, each once: those of the first run, with others where they stand."""
    ours, theirs = ({key: (" ".join(text.split()), refs) for key, text, refs in _parts(run)} for run in (first, second))
    # what only the second run has comes after what it follows there
    after, last = defaultdict[_Key | None, list[_Key]](list), None
    for key in theirs:
        last = key if key in ours else last
        after[last] += [] if key in ours else [key]
    for key in (*after[None], *(each for known in ours for each in (known, *after[known]))):
        (one, refs), (other, other_refs) = (side.get(key, (None, ())) for side in (ours, theirs))
        shown = _shown(one, other, _PLAN_CHARS if key[0] == "plan" else _TEXT_CHARS)
        yield ComparedPart(*key, *shown, one == other, refs, other_refs)


def _shown(one: str | None, other: str | None, limit: int) -> tuple[str | None, str | None]:
    """Return the beginnings of both texts; where these are the same, what is around the first difference."""
    begin = 0
    if one and other and one != other and one[: limit - 1] == other[: limit - 1]:
        shorter = min(len(one), len(other))
        begin = next((at for at in range(shorter) if one[at] != other[at]), shorter) - _BEFORE_CHARS
    first, second = (text and f"{'…' if begin else ''}{one_line(text[begin:], limit)}" for text in (one, other))
    return first, second


def _parts(run: RunDocument) -> Iterator[_Part]:
    yield ("request", "request"), run.input, ()
    for name, value in sorted(run.config.items()):
        yield ("config", name), str(value), ()
    yield ("epoch", "epoch"), str(run.epoch), ()
    yield from _prompts(run)
    for plan in run.plans:
        place = f"version {plan.version}{f' of the team at {plan.star}' if plan.star else ''}"
        yield ("plan", place), "; ".join(map(_planned, plan.tasks)) or plan.thought_process, [event(plan.seq)]
    facts = RunFacts(run)
    for place, tries in facts.tries.items():
        yield from _task(place, tries)
    changes = (run.result or {}).get("effects") or ()  # by the ledger; neither a rewind nor a fork undoes them
    done = [f"{one['name']} {canonical(one['args'])}: {one['state']}" for one in changes]
    yield ("effects", "effects"), "; ".join(done) or "none", [Ref("call", one["call_id"]) for one in changes]
    yield ("end", "status"), f"{run.status}{f' ({run.code})' if run.code else ''}", ()
    named = [f"{cause.code}{f' at {cause.task}' if cause.task else ''}" for cause in find_causes(facts)]
    yield ("cause", "cause"), ", ".join(named) or "none", ()
    if facts.reply:
        yield ("end", "answer"), facts.reply, ()
    if usage := (run.result or {}).get("usage"):
        calls = f"{usage.get('model_calls', 0)} model calls, {usage.get('tool_calls', 0)} tool calls"
        yield ("cost", "usage"), f"{usage.get('tokens', 0):,} tokens, {calls}", ()


def _prompts(run: RunDocument) -> Iterator[_Part]:
    """Yield the wording of each prompt that a model call names, by the first call with it."""
    known: dict[str, _Part] = {}
    for call in sorted(run.model_calls(), key=lambda call: call.step):
        if call.prompt and (name := str(call.prompt.get("name") or "")):
            values = [call.prompt.get(one) for one in ("source", "version", "label")]
            text = " ".join(str(one) for one in (*values, str(call.prompt.get("hash") or "")[:12]) if one)
            known.setdefault(name, (("prompt", name), text, [Ref("step", str(call.step))]))
    yield from (part for _, part in sorted(known.items()))


def _planned(task: Mapping[str, Any]) -> str:
    after = f" after {', '.join(task['depends_on'])}" if task["depends_on"] else ""
    return f"{task['id']} {task['agent']}{after}: {task['task']}"


def _task(place: str, tries: Sequence[TaskRecord]) -> Iterator[_Part]:
    for number, attempt in ((number, attempt) for number, one in enumerate(tries, start=1) for attempt in one.attempts):
        where = f"{place}{f', try {number}' if number > 1 else ''}, attempt {attempt.number}"
        for index, call in enumerate(attempt.calls, start=1):
            state = call.state or call.status or "no answer"
            text = f"{call.name} with {canonical(call.args)}: {state}{f', {call.result}' if call.failed else ''}"
            yield ("call", f"{where}, call {index}"), text, [Ref("call", call.id)]
        if verdict := attempt.verdict:
            yield ("verdict", where), " ".join((verdict.status, *verdict.reasons)), [event(verdict.seq)]
    yield ("task", place), f"{tries[-1].agent}: {tries[-1].status}", [Ref("task", place)]
