"""A run that is told row by row, for tests of what is made of its document."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from brain.explanation.explain import explain
from brain.explanation.shape import Explanation
from starling.core.run_document.builder import Row, RunDocumentBuilder
from starling.core.run_document.document import RunDocument, RunInterrupt
from starling.core.run_document.rows import AnswerRow, CallRow, EventRow, RunRow, StepRow
from starling.core.run_status import RunStatus

WEATHER, SHOP, WRITER = "mcp_agent_weather", "mcp_agent_shop", "generalist"
BEGAN = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
RUN = RunRow(
    run_id="018f0000-0000-7000-8000-000000000001",
    thread_id="thread",
    trace_id="trace",
    correlation_id="correlation",
    epoch=1,
    status=RunStatus.SUCCEEDED,
    input="Do it all.",
    config={"mode": "MODERATE", "channel": "CHAT"},
    created_at=BEGAN,
    started_at=BEGAN,
)


def planned(task_id: str, agent: str, text: str, *after: str) -> dict[str, Any]:
    return {"id": task_id, "agent": agent, "task": text, "depends_on": list(after), "status": "pending"}


@dataclass(slots=True)
class RunStory:
    """What happened in a run, in order; each method adds the rows of one thing that happened."""

    run: RunRow = RUN
    rows: list[tuple[Row, datetime]] = field(default_factory=list[tuple[Row, datetime]])
    events: int = 1
    steps: int = 0
    _agents: dict[str, str] = field(default_factory=dict[str, str])
    _texts: dict[str, str] = field(default_factory=dict[str, str])
    _attempts: dict[str, int] = field(default_factory=dict[str, int])
    _places: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    _failed: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def now(self) -> datetime:
        return BEGAN + timedelta(seconds=self.events)

    def event(self, kind: str, **data: Any) -> int:
        self.events += 1
        self.rows.append((EventRow(self.events, kind, {"type": kind, **data}), self.now))
        return self.events

    def step(self, kind: str, **metadata: Any) -> None:
        self.steps += 1
        self.rows.append((StepRow(self.steps, kind, metadata), self.now))

    def plan(self, *tasks: dict[str, Any], version: int = 1, star: str = "", why: str = "It is needed.") -> None:
        for task in tasks:
            place = f"{star}/{task['id']}" if star else task["id"]
            self._agents[place], self._texts[place] = task["agent"], task["task"]
        self.event("plan", version=version, plan=[], tasks=list(tasks), thought_process=why, path=star)

    def leave_out(self, path: str, agent: str, text: str, code: str) -> None:
        """A task of the first decision that could not be planned."""
        self.step("plan", version=1, left_out=[{"path": path, "agent": agent, "task": text, "code": code}])
        self._failed |= {} if "/" in path else {text: "It can't be done."}

    def start(self, path: str) -> None:
        self._attempts[path] = self._attempts.get(path, 0) + 1
        self.event("task_start", task_id="t", agent=self._agent(path), path=path, attempt=self._attempts[path])

    def call(
        self,
        path: str,
        name: str,
        text: str,
        code: str = "",
        *,
        args: Mapping[str, Any] | None = None,
        same_answer: bool = False,
        state: str = "",
    ) -> str:
        """A call with its result; one with a `state` may change something and is in the ledger."""
        call_id = self.begin_call(path, name, args, same_answer=same_answer)
        told = {"name": name, "call_id": call_id, "result": text, "status": "failed" if code else "succeeded"}
        self.event("tool_result", **told, **({"state": state} if state else {}))
        self.step("tool_call", path=path, call_id=call_id, error=code or None, duration_ms=1500.0)
        if state:
            self.rows.append((CallRow(call_id, "unsafe", state, code, self.now, self.now, None), self.now))
        return call_id

    def begin_call(
        self, path: str, name: str, args: Mapping[str, Any] | None = None, *, same_answer: bool = False
    ) -> str:
        """A call without a result."""
        position, index = self._places.get(path, (-1, 0))
        position, index = (position, index + 1) if same_answer else (position + 1, 0)
        self._places[path] = position, index
        call_id = f"{path}.{position}.{index}"
        self.event("tool_start", name=name, call_id=call_id, args=dict(args or {}), task_id="t", path=path)
        return call_id

    def write(self, path: str, text: str, *, malformed: Sequence[int] = ()) -> None:
        """What a model wrote at this position of a task."""
        position = self._places.get(path, (0, 0))[0]
        self.rows.append((AnswerRow(path, position, text, frozenset(malformed)), self.now))

    def verdict(self, path: str, status: str, *reasons: str) -> None:
        attempt = self._attempts[path]
        self.event("reflection", task_id="t", attempt=attempt, status=status, reasons=list(reasons), path=path)

    def end(self, path: str, text: str = "Done.", code: str = "", **more: Any) -> None:
        """The end of a task: failed with a code, approved without one."""
        status = "failed" if code else "approved"
        shared: dict[str, Any] = {"task_id": "t", "agent": self._agent(path), "path": path, "artifacts": [], **more}
        self.event("task_result", **shared, status=status, summary=text, code=code or None)
        if "/" not in path:
            self._failed.pop(self._text(path), None)
            self._failed |= {self._text(path): text} if code else {}

    def done(self, path: str, name: str = "weather.now", text: str = "18 degrees") -> None:
        """A whole task that went well with one call."""
        self.start(path)
        self.call(path, name, text)
        self.verdict(path, "APPROVED")
        self.end(path, text)

    def fail(self, path: str, name: str, text: str, code: str, **more: Any) -> str:
        """A whole task that failed with one call."""
        self.start(path)
        call_id = self.call(path, name, text, code, **more)
        self.verdict(path, "REJECTED", text)
        self.end(path, f"{name} failed: {text}", code)
        return call_id

    def warn(self, code: str, message: str = "It happened.", task_id: str | None = None) -> int:
        return self.event("warning", code=code, message=message, task_id=task_id)

    def ask(self, kind: Any, state: Any, path: str = "", **more: Any) -> None:
        """A question to a person, with its answer."""
        item = RunInterrupt(
            id=f"018f0000-0000-7000-8000-{self.events:012}",
            run_id=self.run.run_id,
            kind=kind,
            path=path,
            reason="It is asked.",
            message="May it?",
            responseSchema={},
            call=None,
            state=state,
            createdAt=self.now,
            expiresAt=self.now + timedelta(hours=1),
            seq=self.event("question"),
        )
        self.rows.append((replace(item, **more), self.now))

    def model(self, path: str, tokens: int = 0, **metadata: Any) -> None:
        """A step of a model call."""
        self.step("llm_call", path=path, model="m", input_tokens=tokens, output_tokens=0, **metadata)

    def document(self, status: str = "succeeded", code: str = "", **result: Any) -> RunDocument:
        """The document of the run, which has ended so, with its failed tasks as the missing parts of its answer."""
        degraded = [{"part": text, "reason": reason} for text, reason in self._failed.items()]
        known = {"status": status, "reply": "Done.", "code": code or None, "degraded": degraded, **result}
        over = RunStatus(status).terminal
        ended = {"ended_at": self.now, "result": known} if over else {}
        builder = RunDocumentBuilder()
        row = replace(self.run, status=RunStatus(status), events=self.events + 1, **ended)
        for one, at in [(row, BEGAN), *self.rows]:
            builder.take(one, at)
        return builder.document()

    def explained(self, status: str = "succeeded", code: str = "", **result: Any) -> Explanation:
        return explain(self.document(status, code, **result), self.now)

    def _agent(self, path: str) -> str:
        return self._of(self._agents, path)

    def _text(self, path: str) -> str:
        return self._of(self._texts, path)

    def _of(self, known: Mapping[str, str], path: str) -> str:
        star, _, name = path.rpartition("/")
        return known.get(path) or known[f"{star}/{name.partition('.')[0]}" if star else name.partition(".")[0]]
