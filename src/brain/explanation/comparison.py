"""Two runs side by side: requests, epochs, prompts, plans, calls, verdicts and ends, the first difference first."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from brain.explanation.causes import find_causes
from brain.explanation.facts import RunFacts, call_text, event, shortened
from brain.explanation.shape import Ref
from starling.core.json import canonical
from starling.core.run_document.document import RunDocument, TaskRecord
from starling.core.run_status import RunStatus

_MOST: Final = 500
_TEXT_CHARS: Final = 300
_BEFORE_CHARS: Final = 60  # of what is the same before a difference

type PartKind = Literal[
    "request", "config", "epoch", "prompt", "plan", "task", "call", "verdict", "end", "cause", "cost"
]
type _Key = tuple[PartKind, str]


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


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of one run. `text` is shown; `whole` is compared, where the text is only the beginning of it."""

    kind: PartKind
    place: str
    text: str
    refs: tuple[Ref, ...] = ()
    whole: str = ""

    @property
    def compared(self) -> str:
        return " ".join(self.whole.split()) or self.text


def compare(first: RunDocument, second: RunDocument) -> Comparison:
    """Return two runs side by side. What was pruned of one is missing on its side."""
    parts = list(_side_by_side(list(_parts(first)), list(_parts(second))))
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


def _side_by_side(first: Sequence[_Part], second: Sequence[_Part]) -> Iterator[ComparedPart]:
    """Yield the parts of both by kind and place, each once: those of the first run, with others where they stand."""
    by_key: dict[_Key, _Part] = {(part.kind, part.place): part for part in first}
    others: dict[_Key, _Part] = {(part.kind, part.place): part for part in second}
    # what only the second run has comes after what it follows there
    after, last = defaultdict[_Key | None, list[_Key]](list), None
    for key in others:
        last = key if key in by_key else last
        after[last] += [] if key in by_key else [key]
    for key in (*after[None], *(each for known in by_key for each in (known, *after[known]))):
        one, other = by_key.get(key), others.get(key)
        same = one is not None and other is not None and one.compared == other.compared
        refs, other_refs = (part.refs if part else () for part in (one, other))
        yield ComparedPart(*key, *_shown(one, other), same, refs, other_refs)


def _shown(one: _Part | None, other: _Part | None) -> tuple[str | None, str | None]:
    """Return the texts of both; where only what follows them differs, what is around the first difference."""
    if one is None or other is None or one.text != other.text or one.compared == other.compared:
        return one and one.text, other and other.text
    wholes = one.compared, other.compared
    shorter = min(map(len, wholes))
    differ = next((at for at in range(shorter) if wholes[0][at] != wholes[1][at]), shorter)
    begin = max(0, differ - _BEFORE_CHARS)
    first, second = (f"…{shortened(whole[begin:], _TEXT_CHARS)}" for whole in wholes)
    return first, second


def _parts(run: RunDocument) -> Iterator[_Part]:
    yield _Part("request", "request", shortened(run.input, _TEXT_CHARS), whole=run.input)
    for name, value in sorted(run.config.items()):
        yield _Part("config", name, str(value))
    yield _Part("epoch", "epoch", str(run.epoch))
    yield from _prompts(run)
    for plan in run.plans:
        place = f"version {plan.version}{f' of the team at {plan.star}' if plan.star else ''}"
        tasks = "; ".join(map(_planned, plan.tasks)) or plan.thought_process
        yield _Part("plan", place, shortened(tasks, 4 * _TEXT_CHARS), (event(plan.seq),), tasks)
    facts = RunFacts(run)
    for place, tries in facts.tries.items():
        yield from _task(place, tries)
    result: Mapping[str, Any] = run.result or {}
    yield _Part("end", "status", f"{run.status}{f' ({run.code})' if run.code else ''}")
    named = [f"{cause.code}{f' at {cause.task}' if cause.task else ''}" for cause in find_causes(facts)]
    yield _Part("cause", "cause", ", ".join(named) or "none")
    if result.get("reply"):
        yield _Part("end", "answer", shortened(str(result["reply"]), _TEXT_CHARS), whole=str(result["reply"]))
    if usage := result.get("usage"):
        calls = f"{usage.get('model_calls', 0)} model calls, {usage.get('tool_calls', 0)} tool calls"
        yield _Part("cost", "usage", f"{usage.get('tokens', 0):,} tokens, {calls}")


def _prompts(run: RunDocument) -> Iterator[_Part]:
    """Yield the wording of each prompt that a model call names, by the first call with it."""
    known: dict[str, _Part] = {}
    for call in sorted(run.model_calls(), key=lambda call: call.step):
        if call.prompt and (name := str(call.prompt.get("name") or "")):
            values = [call.prompt.get(one) for one in ("source", "version", "label")]
            text = " ".join(str(one) for one in (*values, str(call.prompt.get("hash") or "")[:12]) if one)
            known.setdefault(name, _Part("prompt", name, text, (Ref("step", str(call.step)),)))
    yield from (part for _, part in sorted(known.items()))


def _planned(task: Mapping[str, Any]) -> str:
    after = f" after {', '.join(task['depends_on'])}" if task["depends_on"] else ""
    return f"{task['id']} {task['agent']}{after}: {task['task']}"


def _task(place: str, tries: Sequence[TaskRecord]) -> Iterator[_Part]:
    for number, attempt in ((number, attempt) for number, one in enumerate(tries, start=1) for attempt in one.attempts):
        where = f"{place}{f', try {number}' if number > 1 else ''}, attempt {attempt.number}"
        for index, call in enumerate(attempt.calls, start=1):
            state = call.state or call.status or "no answer"
            text = f"{call_text(call)}: {state}{f', {shortened(call.result, 160)}' if call.failed else ''}"
            whole = f"{call.name} with {canonical(call.args)}: {state}, {call.result if call.failed else ''}"
            yield _Part("call", f"{where}, call {index}", text, (Ref("call", call.id),), whole)
        if verdict := attempt.verdict:
            whole = f"{verdict.status} {' '.join(verdict.reasons)}"
            yield _Part("verdict", where, shortened(whole, _TEXT_CHARS), (event(verdict.seq),), whole)
    yield _Part("task", place, f"{tries[-1].agent}: {tries[-1].status}", (Ref("task", place),))
