"""Reads a history from rows: one pass over the events, completed by journal, ledger, steps and skills."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from brain.explanation.english import English, are_english
from brain.explanation.history import Attempt, Call, History, Notice, PlanRecord, Task, TaskEnd, Try, VerdictRecord
from brain.explanation.rows import AnswerRow, EventRow, RunRows
from brain.planning.decision import Verdict
from starling.core.model_output.json_document import read_document
from starling.core.task_paths import without_numbers

type _Data = Mapping[str, Any]
_INTERRUPTS = ("approval_required", "budget_required", "clarification", "in_doubt")
_POSITIONS_PER_REVIEW = 4


def read_history(rows: RunRows) -> History:
    """Return what the rows tell. Rows that were pruned are missing in it."""
    reader = _Reader(History(rows))
    for event in rows.events:
        reader.take(event)
    reader.complete()
    return reader.history


class _Reader:
    def __init__(self, history: History) -> None:
        self.history = history
        self._tries: dict[str, Try] = {}
        self._answers: defaultdict[str, list[AnswerRow]] = defaultdict(list)
        for answer in history.rows.answers:
            self._answers[answer.path].append(answer)
        self._takes: Mapping[str, Callable[[EventRow, _Data], None]] = {
            "plan": self._plan,
            "task_start": self._start,
            "tool_start": self._call,
            "tool_result": self._result,
            "reflection": self._verdict,
            "task_result": self._end,
            "warning": self._notice,
            "error": self._notice,
        }

    def take(self, event: EventRow) -> None:
        if event.type in _INTERRUPTS:
            self.history.asked[event.data["id"]] = event.seq
        elif take := self._takes.get(event.type):
            take(event, event.data)

    def complete(self) -> None:
        """Add what only other rows know."""
        history = self.history
        history.english = English(
            are_english([history.rows.run.input, *(task.text for task in history.tasks.values())])
        )
        history.skills = {skill.id: skill for skill in history.rows.skills}
        for outcome in history.rows.outcomes:
            if call := history.calls.get(outcome.call_id):
                call.code, call.milliseconds = outcome.code, outcome.milliseconds
        for row in history.rows.ledger:
            if call := history.calls.get(row.call_id):
                call.effect, call.state = row.effect.value, call.state or row.state.value
                call.code = str((row.outcome or {}).get("code", ""))
                if row.dispatched_at and row.settled_at:
                    call.milliseconds = (row.settled_at - row.dispatched_at).total_seconds() * 1000
        for answer in history.rows.answers:
            for index in answer.malformed:
                if call := history.calls.get(f"{answer.path}.{answer.position}.{index}"):
                    call.malformed = True
        for one in self._tries.values():
            self._add_texts(one)

    def _add_texts(self, one: Try) -> None:
        """Add what the agent wrote: the last answer of a text agent for each attempt, that of a single one else."""
        written = sorted(self._answers.get(one.path, ()), key=lambda answer: answer.position)
        if not one.attempts or not written:
            return
        if len(written) == len(one.attempts):
            for attempt, answer in zip(one.attempts, written, strict=True):
                attempt.text = answer.content
        else:
            one.attempts[-1].text = written[-1].content

    def _plan(self, event: EventRow, data: _Data) -> None:
        path = str(data.get("path") or "")
        star = without_numbers(path)
        if path:
            self.history.last_star[star] = path
        plan = PlanRecord(event.seq, event.at, star, data["version"], data["thought_process"], data["tasks"])
        self.history.plans.append(plan)
        for planned in data["tasks"]:
            task = self._task(f"{star}/{planned['id']}" if star else planned["id"])
            task.agent, task.text, task.depends_on = planned["agent"], planned["task"], planned["depends_on"]
            task.planned = task.planned or event.seq

    def _start(self, event: EventRow, data: _Data) -> None:
        one = self._try(data)
        one.attempts.append(Attempt(data["attempt"], event.seq, event.at))

    def _call(self, event: EventRow, data: _Data) -> None:
        one = self._try(data)
        attempt = one.attempts[-1] if one.attempts else Attempt(1, event.seq, event.at)
        if not one.attempts:
            one.attempts.append(attempt)
        call = Call(data["call_id"], data["name"], one.path, attempt.number, data["args"], event.seq, event.at)
        attempt.calls.append(call)
        self.history.calls[call.id] = call

    def _result(self, event: EventRow, data: _Data) -> None:
        call = self.history.calls.get(data["call_id"])
        if call is not None:
            call.status, call.text, call.end, call.ended_at = data["status"], data["result"], event.seq, event.at
            call.state, call.simulated = data.get("state") or "", bool(data.get("simulated"))

    def _verdict(self, event: EventRow, data: _Data) -> None:
        one = self._tries.get(data.get("path") or data["task_id"])
        attempts = [item for item in one.attempts if item.number == data["attempt"]] if one else []
        if one and attempts:
            refined = self._refined(one.path, data["attempt"]) if data["status"] == "FIXED" else ""
            verdict = VerdictRecord(event.seq, data["attempt"], data["status"], data["reasons"], refined)
            attempts[-1].verdict = verdict

    def _refined(self, path: str, attempt: int) -> str:
        position = (attempt - 1) * _POSITIONS_PER_REVIEW
        places = (f"{path}/review", f"{path}.review")
        for answer in (answer for place in places for answer in self._answers.get(place, ())):
            if answer.position in (position, position + 1):
                document = read_document(answer.content, Verdict).document
                if document and document.refined_output:
                    return document.refined_output
        return ""

    def _end(self, event: EventRow, data: _Data) -> None:
        skills = [used["id"] for used in data.get("skills") or ()]
        code = str(data.get("code") or "")
        kept = data.get("artifacts") or ()
        self._try(data).end = TaskEnd(event.seq, event.at, data["status"], data["summary"], code, skills, kept)

    def _notice(self, event: EventRow, data: _Data) -> None:
        star, task = without_numbers(str(data.get("path") or "")), str(data.get("task_id") or "")
        error = event.type == "error"
        notice = Notice(event.seq, event.at, data["code"], data["message"], task, star, error)
        self.history.notices.append(notice)

    def _try(self, data: _Data) -> Try:
        path = data.get("path") or data["task_id"]
        if (known := self._tries.get(path)) is not None:
            return known
        task = self._task(without_numbers(path))
        agent = data.get("agent") or task.agent
        task.agent = task.agent or agent
        one = self._tries[path] = Try(path, agent)
        task.tries.append(one)
        if star := path.rpartition("/")[0]:
            self.history.last_star[without_numbers(star)] = star
        return one

    def _task(self, place: str) -> Task:
        star, _, name = place.rpartition("/")
        return self.history.tasks.setdefault(place, Task(place, name, star))
