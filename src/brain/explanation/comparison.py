"""Two runs side by side: requests, epochs, prompts, plans, calls, verdicts and ends, the first difference first."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from brain.explanation.history import Attempt, History, Task
from brain.explanation.history_reading import read_history
from brain.explanation.rows import RunRows
from brain.explanation.rules.incident import call_text
from brain.explanation.rules.table import causes
from brain.explanation.shape import Ref
from brain.explanation.texts import shortened
from starling.core.json import canonical
from starling.core.run_status import RunStatus

_MOST: Final = 500
_TEXT_CHARS: Final = 300
_BEFORE_CHARS: Final = 60  # of what is the same before a difference
_A, _B = "01a1f8ac-cbf4-7cdd-97b7-5ad5f772744e", "01a1f8ad-0b1e-7d0a-8f3c-2b1f4c6d8e90"
_PART: Final[dict[str, Any]] = {
    "kind": "call",
    "place": "t1, attempt 1",
    "a": 'weather.forecast with {"city":"Lima"}: succeeded',
    "b": 'weather.forecast with {"city":"Limaa"}: failed',
    "same": False,
    "a_refs": [{"kind": "call", "id": "t1.0.0"}],
    "b_refs": [{"kind": "call", "id": "t1.0.0"}],
}
_EXAMPLE: Final[dict[str, Any]] = {
    "a": {"run_id": _A, "status": "succeeded", "epoch": 3},
    "b": {"run_id": _B, "status": "failed", "epoch": 3},
    "same_request": True,
    "text": "The runs differ first in call (t1, attempt 1).",
    "first_difference": _PART,
    "differences": [_PART],
    "parts": [_PART],
    "unread": [],
}

type PartKind = Literal[
    "request", "config", "epoch", "prompt", "plan", "task", "call", "verdict", "end", "cause", "cost"
]


class ComparedRun(BaseModel):
    """One of two compared runs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run_id: str
    status: RunStatus
    epoch: int


class ComparedPart(BaseModel):
    """A part of both runs, side by side; null where a run has no such part."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: PartKind
    place: str
    a: str | None = None
    b: str | None = None
    same: bool
    a_refs: list[Ref] = []
    b_refs: list[Ref] = []


class Comparison(BaseModel):
    """Two runs side by side, in the order of the first. `differences` are the parts that are not the same."""

    model_config = ConfigDict(frozen=True, extra="forbid", json_schema_extra={"examples": [_EXAMPLE]})

    a: ComparedRun
    b: ComparedRun
    same_request: bool
    text: str
    first_difference: ComparedPart | None = Field(description="Null where nothing differs that is compared.")
    differences: list[ComparedPart]
    parts: list[ComparedPart]
    unread: list[str]


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


def compare(first: RunRows, second: RunRows) -> Comparison:
    """Return two runs side by side. What was pruned of one is missing on its side."""
    histories = read_history(first), read_history(second)
    parts = list(_side_by_side(*(list(_parts(history)) for history in histories)))
    parts.sort(key=_is_unused_prompt)  # a prompt that only one run used differs because of something else
    same_request = first.run.input.strip() == second.run.input.strip()
    differences = [part for part in parts if not part.same]
    return Comparison(
        a=_run(first),
        b=_run(second),
        same_request=same_request,
        text=_text(same_request, differences),
        first_difference=differences[0] if differences else None,
        differences=differences[:_MOST],
        parts=parts[:_MOST],
        unread=[*_unread("A", first), *_unread("B", second), *_beyond(parts)],
    )


def _is_unused_prompt(part: ComparedPart) -> bool:
    return part.kind == "prompt" and (part.a is None or part.b is None)


def _run(rows: RunRows) -> ComparedRun:
    return ComparedRun(run_id=rows.run.id, status=rows.run.status, epoch=rows.run.epoch)


def _text(same_request: bool, differences: Sequence[ComparedPart]) -> str:
    if not differences:
        return "The runs do not differ in what is compared."
    first = differences[0]
    asked = "" if same_request else "The requests of the runs differ. "
    where = "" if first.place == first.kind else f" ({first.place})"
    return f"{asked}The runs differ first in {first.kind}{where}."


def _unread(name: str, rows: RunRows) -> Iterator[str]:
    if rows.run.trimmed:
        yield f"Run {name}: events 1 to {rows.run.trimmed} and its steps were deleted by retention."
    yield from (f"Run {name}: {text}" for text in rows.unread)


def _beyond(parts: Sequence[object]) -> Iterator[str]:
    if len(parts) > _MOST:
        yield f"Only the first {_MOST} of {len(parts):,} parts are shown."


def _side_by_side(first: Sequence[_Part], second: Sequence[_Part]) -> Iterator[ComparedPart]:
    """Yield the parts of both by kind and place, each once: those of the first run, with others where they stand."""
    by_key: dict[tuple[PartKind, str], _Part] = {(part.kind, part.place): part for part in first}
    others: dict[tuple[PartKind, str], _Part] = {(part.kind, part.place): part for part in second}
    for key in _merged(list(by_key), list(others)):
        one, other = by_key.get(key), others.get(key)
        text, other_text = _shown(one, other)
        yield ComparedPart(
            kind=key[0],
            place=key[1],
            a=text,
            b=other_text,
            same=one is not None and other is not None and one.compared == other.compared,
            a_refs=list(one.refs) if one else [],
            b_refs=list(other.refs) if other else [],
        )


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


def _merged[Key](first: Sequence[Key], second: Sequence[Key]) -> Iterator[Key]:
    """Yield the keys of both in order: what only the second has comes after what it follows there."""
    known, after, last = set(first), dict[Key | None, list[Key]](), None
    for key in second:
        if key in known:
            last = key
        else:
            after.setdefault(last, []).append(key)
    yield from after.get(None, ())
    for key in first:
        yield key
        yield from after.get(key, ())


def _parts(history: History) -> Iterator[_Part]:
    run = history.rows.run
    yield _Part("request", "request", shortened(run.input, _TEXT_CHARS), whole=run.input)
    for name, value in sorted(run.config.items()):
        yield _Part("config", name, str(value))
    yield _Part("epoch", "epoch", str(run.epoch))
    yield from _prompts(history)
    for plan in history.plans:
        place = f"version {plan.version}{f' of the team at {plan.star}' if plan.star else ''}"
        tasks = "; ".join(_planned(task) for task in plan.tasks) or plan.why
        yield _Part("plan", place, shortened(tasks, 4 * _TEXT_CHARS), (_event(plan.seq),), tasks)
    for task in sorted(history.tasks.values(), key=lambda task: (task.began == 0, task.began, task.place)):
        yield from _task(task)
    yield from _end(history)


def _prompts(history: History) -> Iterator[_Part]:
    """Yield the wording of each prompt that a step names."""
    known: dict[str, tuple[str, int]] = {}
    for step in history.rows.steps:
        prompt: Mapping[str, Any] = step.metadata.get("prompt") or {}
        if name := prompt.get("name"):
            parts = (
                prompt.get("source"),
                prompt.get("version"),
                prompt.get("label"),
                str(prompt.get("hash") or "")[:12],
            )
            known.setdefault(str(name), (" ".join(str(part) for part in parts if part), step.number))
    for name, (text, number) in sorted(known.items()):
        yield _Part("prompt", name, text, (Ref(kind="step", id=str(number)),))


def _planned(task: Mapping[str, Any]) -> str:
    after = f" after {', '.join(task['depends_on'])}" if task["depends_on"] else ""
    return f"{task['id']} {task['agent']}{after}: {task['task']}"


def _task(task: Task) -> Iterator[_Part]:
    for number, one in enumerate(task.tries, start=1):
        again = f", try {number}" if number > 1 else ""
        for attempt in one.attempts:
            yield from _attempt(f"{task.place}{again}, attempt {attempt.number}", attempt)
    yield _Part("task", task.place, f"{task.agent}: {task.status}", (Ref(kind="task", id=task.place),))


def _attempt(place: str, attempt: Attempt) -> Iterator[_Part]:
    for number, call in enumerate(attempt.calls, start=1):
        state = call.state or call.status or "no answer"
        error = f", {shortened(call.text, 160)}" if call.failed else ""
        whole = f"{call.name} with {canonical(call.arguments)}: {state}, {call.text if call.failed else ''}"
        refs = (Ref(kind="call", id=call.id),)
        yield _Part("call", f"{place}, call {number}", f"{call_text(call)}: {state}{error}", refs, whole)
    if verdict := attempt.verdict:
        whole = f"{verdict.status} {' '.join(verdict.reasons)}"
        yield _Part("verdict", place, shortened(whole, _TEXT_CHARS), (_event(verdict.seq),), whole)


def _end(history: History) -> Iterator[_Part]:
    run, result = history.rows.run, history.rows.run.result or {}
    code = f" ({run.code})" if run.code else ""
    yield _Part("end", "status", f"{run.status}{code}")
    named: Iterable[str] = (f"{cause.code}{f' at {cause.task}' if cause.task else ''}" for cause in causes(history))
    yield _Part("cause", "cause", ", ".join(named) or "none")
    if result.get("reply"):
        yield _Part("end", "answer", shortened(str(result["reply"]), _TEXT_CHARS), whole=str(result["reply"]))
    usage: Mapping[str, Any] = result.get("usage") or {}
    if usage:
        calls = f"{usage.get('model_calls', 0)} model calls, {usage.get('tool_calls', 0)} tool calls"
        yield _Part("cost", "usage", f"{usage.get('tokens', 0):,} tokens, {calls}")


def _event(seq: int) -> Ref:
    return Ref(kind="event", id=str(seq))
