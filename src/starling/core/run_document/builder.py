"""Builds the document of a run row by row: from live events, or from what is stored."""

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime
from typing import Any, Final, cast

from starling.core.json import canonical
from starling.core.run_document.document import (
    Call,
    Fact,
    Feedback,
    InterruptKind,
    Notice,
    PlanChange,
    PlanVersion,
    Pruned,
    RecalledSkill,
    ReviewVerdict,
    RunDocument,
    RunFailure,
    RunHeader,
    RunInterrupt,
    TaskAttempt,
    TaskRecord,
)
from starling.core.run_document.rows import REVIEWS, AnswerRow, CallRow, EventRow, Kept, ReadSteps, RunRow, StepRow
from starling.core.run_document.task_places import with_places
from starling.core.run_status import RunStatus
from starling.core.task_paths import without_numbers

TEXT_CHARS: Final = 4_000
"""How much is kept of one text: of a result, an answer or a reason."""

_LOGS: Final = 200
_POSITIONS_PER_REVIEW: Final = 4
_KINDS: Final[Mapping[str, InterruptKind]] = {
    "approval_required": "approval",
    "clarification": "clarification",
    "budget_required": "budget",
    "in_doubt": "in_doubt",
}
_BUILD_EVENTS: Final = frozenset({"design", "checks", "proof", "published"})

type Row = RunRow | EventRow | StepRow | AnswerRow | CallRow | RunInterrupt | Feedback | Kept
type _Data = Mapping[str, Any]


class RunDocumentBuilder:
    """Takes the rows of one run: events in their order, steps in theirs, the rest in any.

    Texts are taken as they are masked, and cut to `chars` characters, but for results of the `quoted` calls.
    """

    def __init__(self, chars: int = TEXT_CHARS, quoted: Collection[str] = ()) -> None:
        self._chars, self._quoted = chars, frozenset(quoted)
        self._run: RunRow | None = None
        self._status: RunStatus | None = None
        self._plans: list[PlanVersion] = []
        self._planned: dict[str, TaskRecord] = {}
        self._tasks: dict[str, TaskRecord] = {}
        self._attempts: defaultdict[str, list[TaskAttempt]] = defaultdict(list)
        self._calls: dict[str, Call] = {}
        self._made_in: defaultdict[tuple[str, int], list[str]] = defaultdict(list)  # calls by path and attempt
        self._attempt_of: dict[str, int] = {}
        self._verdicts: dict[tuple[str, int], ReviewVerdict] = {}
        self._notices: list[Notice] = []
        self._asked: dict[str, RunInterrupt] = {}
        self._interrupts: list[RunInterrupt] = []
        self._builds: list[_Data] = []
        self._logs: list[_Data] = []
        self._steps: list[tuple[StepRow, datetime]] = []
        self._answers: defaultdict[str, list[AnswerRow]] = defaultdict(list)
        self._ledger: dict[str, CallRow] = {}
        self._feedback: list[Feedback] = []
        self._kept: Kept | None = None
        self._last_seq = 0
        self._takes: Mapping[str, Callable[[EventRow, datetime], None]] = {
            "run_started": self._start,
            "plan": self._plan,
            "task_start": self._attempt,
            "tool_start": self._call,
            "tool_progress": self._progress,
            "tool_result": self._result,
            "tool_log": self._log,
            "reflection": self._reflection,
            "task_result": self._end,
            "warning": self._notice,
            "error": self._notice,
            "done": self._done,
            **dict.fromkeys(_KINDS, self._interrupt),
            **dict.fromkeys(_BUILD_EVENTS, self._build),
        }

    def take(self, row: Row, at: datetime) -> None:
        """Add a row; `at` is the time of an event or a step. Unknown and repeated events are left out."""
        match row:
            case RunRow():
                self._run = row
            case EventRow():
                take = self._takes.get(row.type) if row.seq > self._last_seq else None
                self._last_seq = max(self._last_seq, row.seq)
                if take:
                    take(row, at)
            case StepRow():
                self._steps.append((row, at))
            case AnswerRow():
                self._answers[row.path].append(row)
            case CallRow():
                self._ledger[row.call_id] = row
            case RunInterrupt():
                self._interrupts.append(row)
            case Feedback():
                self._feedback.append(row)
            case Kept():
                self._kept = row

    def document(self) -> RunDocument:
        """Return the document as it is now.

        Raises ValueError where neither the run's row nor `run_started` was taken.
        """
        if (run := self._run) is None:
            raise ValueError("a document needs the row of its run, or the event `run_started`")
        steps = ReadSteps(self._attempts, self._attempt_of)
        steps.read(self._steps)
        tasks = [self._complete(task, steps) for task in self._in_order()]
        header = {one.name: getattr(run, one.name) for one in fields(RunHeader)}
        header |= {"status": self._status or run.status, "events": max(run.events, self._last_seq)}
        return RunDocument(
            **header,
            interrupts=self._all_interrupts(),
            feedback=tuple(self._feedback),
            pruned=tuple(self._pruned(run, tasks)),
            plans=tuple(self._plans_now()),
            tasks=with_places(tasks),
            decisions=tuple(steps.decisions),
            left_out=tuple(steps.left_out),
            notices=tuple(self._notices),
            builds=tuple(self._builds),
            logs=tuple(self._logs),
        )

    def _start(self, event: EventRow, at: datetime) -> None:
        if self._run is None:  # a live stream: the row of the run is elsewhere
            names = ("run_id", "thread_id", "trace_id", "correlation_id", "epoch")
            known = {name: event.data[name] for name in names}
            self._run = RunRow(**known, status=RunStatus.RUNNING, input="", config={}, created_at=at)

    def _plan(self, event: EventRow, at: datetime) -> None:
        seq, data = event.seq, event.data
        star = data.get("path") or ""
        tasks = tuple({**task, "task": task["task"][: self._chars]} for task in data["tasks"])
        why = data["thought_process"][: self._chars]
        steps = tuple(step[: self._chars] for step in data["plan"])
        changes, inherited = [PlanChange(**one) for one in data.get("changes") or ()], bool(data.get("inherited"))
        self._plans.append(PlanVersion(seq, at, star, data["version"], steps, why, tasks, inherited, changes))
        for change in changes:
            if change.kind == "removed":
                self._planned.pop(without_numbers(f"{star}/{change.task_id}" if star else change.task_id), None)
        for task in tasks:
            path = f"{star}/{task['id']}" if star else task["id"]
            place = without_numbers(path)
            planned = TaskRecord(place, star, task["agent"], task["task"], tuple(task["depends_on"]))
            self._planned[place] = planned

    def _begin(self, path: str, agent: str | None) -> TaskRecord:
        """Return the try of a task, which begins now if it is not known."""
        if (known := self._tasks.get(path)) is not None:
            return known
        star, place = path.rpartition("/")[0], without_numbers(path)
        planned = self._planned.get(place) or TaskRecord(path, star, agent or place, "")
        begun = replace(planned, path=path, star=star, agent=agent or planned.agent, status="running")
        self._tasks[path] = begun
        return begun

    def _attempt(self, event: EventRow, at: datetime) -> None:
        path = event.data["path"]
        self._begin(path, event.data.get("agent"))
        self._attempts[path].append(TaskAttempt(event.data["attempt"], event.seq, at))

    def _call(self, event: EventRow, at: datetime) -> None:
        seq, data = event.seq, event.data
        path = self._begin(data["path"], None).path
        attempts = self._attempts[path]
        if not attempts:
            attempts.append(TaskAttempt(1, seq, at))
        number = attempts[-1].number
        text = canonical(data["args"])
        args = data["args"] if len(text) <= self._chars else {"…": text[: self._chars]}  # else the text's beginning
        call = Call(data["call_id"], data["name"], args, seq, at)
        self._calls[call.id], self._attempt_of[call.id] = call, number
        self._made_in[path, number].append(call.id)

    def _progress(self, event: EventRow, at: datetime) -> None:
        del at
        if call := self._calls.get(event.data["call_id"]):
            self._calls[call.id] = replace(call, progress=progress_text(event.data))

    def _result(self, event: EventRow, at: datetime) -> None:
        data = event.data
        if call := self._calls.get(data["call_id"]):
            self._calls[call.id] = replace(
                call,
                status=data["status"],
                result=data["result"] if call.id in self._quoted else data["result"][: self._chars],
                state=data.get("state") or "",
                artifact=data.get("artifact"),
                simulated=data.get("simulated"),
                ms=(at - call.at).total_seconds() * 1000,
                result_seq=event.seq,
                result_at=at,
            )

    def _log(self, event: EventRow, at: datetime) -> None:
        del at
        if len(self._logs) < _LOGS:
            self._logs.append(event.data)

    def _reflection(self, event: EventRow, at: datetime) -> None:
        del at
        data = event.data
        reasons = tuple(reason[: self._chars] for reason in data["reasons"])
        self._verdicts[data.get("path") or data["task_id"], data["attempt"]] = ReviewVerdict(
            data["status"], reasons, event.seq
        )

    def _end(self, event: EventRow, at: datetime) -> None:
        seq, data = event.seq, event.data
        path = data.get("path") or data["task_id"]
        self._tasks[path] = replace(
            self._begin(path, data.get("agent")),
            status=data["status"],
            code=str(data.get("code") or ""),
            summary=data["summary"][: self._chars],
            skills=tuple(RecalledSkill(one["id"], one["task"], one["followed"]) for one in data.get("skills") or ()),
            artifacts=tuple(data.get("artifacts") or ()),
            facts=tuple(Fact(**fact) for fact in data.get("facts") or ()),
            seq=seq,
            ended_at=at,
            inherited=bool(data.get("inherited")),
        )

    def _notice(self, event: EventRow, at: datetime) -> None:
        seq, kind, data = event.seq, event.type, event.data
        task, star = str(data.get("task_id") or ""), str(data.get("path") or "")
        message = data["message"][: self._chars]
        self._notices.append(
            Notice(seq, at, "error" if kind == "error" else "warning", data["code"], message, task, star)
        )
        if kind == "error" and not task and self._run is not None and self._run.why is None:
            self._run = replace(self._run, why=RunFailure(data["code"], message))

    def _interrupt(self, event: EventRow, at: datetime) -> None:
        data = event.data
        call, expires = data.get("call"), data["expiresAt"]
        self._asked[data["id"]] = RunInterrupt(
            id=data["id"],
            run_id=self._run.run_id if self._run else "",
            kind=_KINDS[event.type],
            path=call["path"] if call else "",
            reason=data["reason"],
            message=data["message"][: self._chars],
            responseSchema=data["responseSchema"],
            call=call,
            state="open",
            createdAt=at,
            expiresAt=expires if isinstance(expires, datetime) else datetime.fromisoformat(expires),
            seq=event.seq,
        )

    def _build(self, event: EventRow, at: datetime) -> None:
        del at
        self._builds.append({"type": event.type, **event.data})

    def _done(self, event: EventRow, at: datetime) -> None:
        data = event.data
        run = self._run
        if run is not None and run.result is None:
            result = {name: value for name, value in data.items() if name != "type"}
            self._run = replace(run, result=result, ended_at=run.ended_at or at)
        self._status = RunStatus(data["status"])

    def _plans_now(self) -> Iterator[PlanVersion]:
        """Yield the plans; the last one of each star has the states of its tasks now, earlier ones those of then."""
        last = {plan.star: plan for plan in self._plans}
        now = {(task.star, task.id): task.status for task in self._tasks.values()}
        for plan in self._plans:
            states = now if plan is last[plan.star] else {}
            tasks = ({**task, "status": states.get((plan.star, task["id"]), task["status"])} for task in plan.tasks)
            yield replace(plan, tasks=tuple(tasks))

    def _in_order(self) -> Iterator[TaskRecord]:
        """Yield the tries of tasks in the order in which they began, then the tasks that never did."""
        yield from self._tasks.values()
        begun = {task.place for task in self._tasks.values()}
        yield from (task for place, task in self._planned.items() if place not in begun)

    def _complete(self, task: TaskRecord, steps: ReadSteps) -> TaskRecord:
        """Return a try with its attempts, and these with their calls, verdicts and texts."""
        planned = self._planned.get(task.place)
        made = self._attempts.get(task.path, [])
        texts = self._texts(task.path, len(made))
        attempts = [
            replace(
                attempt,
                text=texts.get(number, ""),
                model_calls=tuple(steps.by_attempt.get((task.path, attempt.number), ())),
                calls=tuple(
                    self._completed(self._calls[name], steps.by_call.get(name))
                    for name in self._made_in[task.path, attempt.number]
                ),
                verdict=self._verdict(task.path, attempt.number),
            )
            for number, attempt in enumerate(made)
        ]
        text = task.text or (planned.text if planned else "")
        return replace(task, text=text, attempts=tuple(attempts))

    def _completed(self, call: Call, step: StepRow | None) -> Call:
        """Return a call with what only the journal, its step and the ledger know."""
        path, position, index = call.id.rsplit(".", 2)
        malformed = any(
            answer.position == int(position) and int(index) in answer.malformed
            for answer in self._answers.get(path, ())
        )
        code, ms = (str(step.metadata.get("error") or ""), step.metadata.get("duration_ms")) if step else ("", call.ms)
        call = replace(call, malformed=malformed, code=code, ms=ms)
        row = self._ledger.get(call.id)
        if row is None:
            return call
        took = (row.settled_at - row.sent_at).total_seconds() * 1000 if row.sent_at and row.settled_at else None
        return replace(
            call,
            effect=row.effect,
            state=call.state or row.state,
            sent_at=row.sent_at,
            settled_at=row.settled_at,
            settled_by=row.settled_by,
            code=row.code or code,
            ms=ms if took is None else took,
        )

    def _verdict(self, path: str, attempt: int) -> ReviewVerdict | None:
        verdict = self._verdicts.get((path, attempt))
        if verdict is None or verdict.status != "FIXED":
            return verdict
        position = (attempt - 1) * _POSITIONS_PER_REVIEW
        for answer in (answer for end in REVIEWS for answer in self._answers.get(f"{path}{end}", ())):
            if answer.position in (position, position + 1) and (refined := _refined(answer.content)):
                return replace(verdict, refined=refined[: self._chars])
        return verdict

    def _texts(self, path: str, attempts: int) -> Mapping[int, str]:
        """Return what the agent wrote by the index of the attempt: each answer of a text agent, else its last one."""
        written = sorted(self._answers.get(path, ()), key=lambda answer: answer.position)
        if not written or not attempts:
            return {}
        if len(written) == attempts:
            return {number: answer.content[: self._chars] for number, answer in enumerate(written)}
        return {attempts - 1: written[-1].content[: self._chars]}

    def _all_interrupts(self) -> tuple[RunInterrupt, ...]:
        """Return the stored interrupts with the numbers of their events, else those that the events tell."""
        if not self._interrupts:
            return tuple(self._asked.values())
        seqs = {name: asked.seq for name, asked in self._asked.items()}
        return tuple(replace(item, seq=seqs.get(item.id, 0)) for item in self._interrupts)

    def _pruned(self, run: RunRow, tasks: Sequence[TaskRecord]) -> Iterator[Pruned]:
        if run.trimmed:
            yield Pruned("events", f"Events 1 to {run.trimmed} were deleted by retention.")
            if not self._steps:
                yield Pruned("steps", "Steps were deleted by retention: the cost of each agent is not known.")
            if not self._answers:
                yield Pruned("journal", "The answers of models were deleted by retention.")
        if self._kept is None:
            return
        known = self._kept.artifacts
        if known is not None and (gone := sorted({name for task in tasks for name in task.artifacts} - known)):
            yield Pruned("artifacts", f"Whole results of tools were deleted: {', '.join(gone[:5])}.")
        yield from (Pruned("not_read", text) for text in self._kept.unread)


def progress_text(report: _Data) -> str:
    """Return how far a call is, as its server said: `2 of 5: reading the index`."""
    of = "" if report["total"] is None else f" of {report['total']:g}"
    return ": ".join(filter(None, (f"{report['progress']:g}{of}", report["message"])))


def _refined(content: str) -> str:
    """Return the output that a reviewer wrote in place of the attempt's, empty where its answer isn't JSON."""
    try:
        document: object = json.loads(content[content.index("{") : content.rindex("}") + 1])
    except ValueError:
        return ""
    found = cast("dict[str, object]", document).get("refined_output") if isinstance(document, dict) else None
    return found if isinstance(found, str) else ""
