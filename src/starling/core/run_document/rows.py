"""The rows that a document is read from, beside interrupts and feedback, and the model calls that its steps hold."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from starling.core.run_document.document import LeftOutTask, ModelCall, RunHeader, TaskAttempt


@dataclass(frozen=True, slots=True)
class RunRow(RunHeader):
    """The row of a run. Events up to number `trimmed`, and all steps then, were pruned."""

    trimmed: int = 0


@dataclass(frozen=True, slots=True)
class EventRow:
    """An event of a run's stream; `seq` counts from 1 without a gap, `data` is as its JSON has it.

    `json` is that JSON where the process that wrote the event has it.
    """

    seq: int
    type: str
    data: Mapping[str, Any]
    json: bytes = field(default=b"", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class StepRow:
    """A step; `number` counts from 1, `metadata` is as the step has it."""

    number: int
    type: str
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """A model's answer in the journal. `malformed` are the indices of tool calls whose arguments could not be read."""

    path: str
    position: int
    content: str
    malformed: frozenset[int] = field(default_factory=frozenset[int])


@dataclass(frozen=True, slots=True)
class CallRow:
    """The ledger's row of a call that may change something; `code` is that of its outcome."""

    call_id: str
    effect: str
    state: str
    code: str
    sent_at: datetime | None
    settled_at: datetime | None
    settled_by: str | None


@dataclass(frozen=True, slots=True)
class Kept:
    """The ids of the artifacts that are still kept, None where they weren't read.

    `unread` are sentences about kinds of rows of which only some were read.
    """

    artifacts: frozenset[str] | None
    unread: tuple[str, ...] = ()


REVIEWS: Final = ("/review", ".review")
"""How the path of a review ends, after that of its task."""

type TimedStep = tuple[StepRow, datetime]


@dataclass(slots=True)
class ReadSteps:
    """The steps of a run by what they belong to.

    `attempts` are those of each path, `attempt_of` is the number of the attempt of each call.
    """

    attempts: Mapping[str, Sequence[TaskAttempt]]
    attempt_of: Mapping[str, int]
    decisions: list[ModelCall] = field(default_factory=list[ModelCall])
    by_attempt: defaultdict[tuple[str, int], list[ModelCall]] = field(default_factory=lambda: defaultdict(list))
    by_call: dict[str, StepRow] = field(default_factory=dict[str, StepRow])
    left_out: list[LeftOutTask] = field(default_factory=list[LeftOutTask])

    def read(self, steps: Iterable[TimedStep]) -> None:
        """Add the steps of the run, in their order."""
        by_task: defaultdict[str, list[TimedStep]] = defaultdict(list)
        for step, at in steps:
            path = str(step.metadata.get("path") or "")
            owner = next((path.removesuffix(end) for end in REVIEWS if path.endswith(end)), path)
            if step.type == "plan":
                version = step.metadata["version"]
                self.left_out += [LeftOutTask(**one, version=version) for one in step.metadata.get("left_out") or ()]
            elif step.type == "tool_call":
                self.by_call[str(step.metadata.get("call_id"))] = step
            if owner in self.attempts:
                by_task[owner].append((step, at))
            elif step.type == "llm_call":
                self.decisions.append(_model_call(step, at))
        for path, found in by_task.items():
            self._assign(path, found)

    def _assign(self, path: str, steps: Iterable[TimedStep]) -> None:
        """Give each answer to the attempt of the tool call that follows it; a review ends its attempt."""
        numbers = [attempt.number for attempt in self.attempts[path]]
        number, pending, reviewed = numbers[0], list[ModelCall](), False
        for step, at in steps:
            if step.type == "tool_call":
                number = self.attempt_of.get(str(step.metadata.get("call_id")), number)
                self.by_attempt[path, number] += pending
                pending, reviewed = [], False
            elif step.type == "llm_call" and step.metadata.get("path") != path:
                self.by_attempt[path, number] += [*pending, _model_call(step, at)]
                pending, reviewed = [], True
            elif step.type == "llm_call":
                number, reviewed = number + (reviewed and number < numbers[-1]), False
                pending.append(_model_call(step, at))
        self.by_attempt[path, number] += pending


def _model_call(step: StepRow, at: datetime) -> ModelCall:
    data = step.metadata
    used = int(data.get("input_tokens") or 0)
    return ModelCall(
        path=str(data.get("path") or ""),
        model=str(data.get("model") or ""),
        role=str(data.get("model_role") or ""),
        prompt=data.get("prompt"),
        tokens=used + int(data.get("output_tokens") or 0),
        input_tokens=used,
        ms=data.get("duration_ms"),
        error=str(data.get("error") or ""),
        step=step.number,
        at=at,
    )
