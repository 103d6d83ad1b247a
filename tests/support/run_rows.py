"""Rows of a run for tests of explanations, written as the run would have written them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from brain.explanation.explain import explain
from brain.explanation.rows import AnswerRow, EventRow, OutcomeRow, RunRow, RunRows, SkillRow, StepRow
from brain.explanation.shape import Explanation
from starling.core.run_status import RunStatus
from starling.core.tool_calls import CallState, Effect
from starling.infra.postgres.runs.interrupts import StoredInterrupt
from starling.infra.postgres.runs.ledger import LedgerRow

type Told = Callable[[], Explanation]

WEATHER, SHOP, FILES, WRITER = "mcp_agent_weather", "mcp_agent_shop", "mcp_agent_files", "generalist"
BEGAN = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
RUN = RunRow(
    id="018f0000-0000-7000-8000-000000000001",
    status=RunStatus.SUCCEEDED,
    epoch=1,
    input="Do it all.",
    config={"mode": "MODERATE", "channel": "CHAT"},
    key_id="",
    grant=None,
    created_at=BEGAN,
    started_at=BEGAN,
)


def planned(task_id: str, agent: str, text: str, after: Sequence[str] = ()) -> dict[str, Any]:
    return {"id": task_id, "agent": agent, "task": text, "depends_on": list(after), "status": "pending"}


@dataclass(slots=True)
class RunStory:
    """What happened in a run, in order; each method adds the rows of one thing that happened."""

    run: RunRow = RUN
    events: list[EventRow] = field(default_factory=list[EventRow])
    steps: list[StepRow] = field(default_factory=list[StepRow])
    answers: list[AnswerRow] = field(default_factory=list[AnswerRow])
    outcomes: list[OutcomeRow] = field(default_factory=list[OutcomeRow])
    ledger: list[LedgerRow] = field(default_factory=list[LedgerRow])
    interrupts: list[StoredInterrupt] = field(default_factory=list[StoredInterrupt])
    skills: list[SkillRow] = field(default_factory=list[SkillRow])
    servers: dict[str, str] = field(default_factory=dict[str, str])
    tools: dict[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    _tasks: dict[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    _positions: dict[str, int] = field(default_factory=dict[str, int])
    _attempts: dict[str, int] = field(default_factory=dict[str, int])
    _failed: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def now(self) -> datetime:
        return BEGAN + timedelta(seconds=len(self.events))

    def event(self, kind: str, **data: Any) -> int:
        self.events.append(EventRow(len(self.events) + 2, kind, data, self.now))
        return self.events[-1].seq

    def plan(self, *tasks: dict[str, Any], version: int = 1, star: str = "", why: str = "It is needed.") -> None:
        for task in tasks:
            self._tasks[f"{star}/{task['id']}" if star else task["id"]] = task
        self.event("plan", version=version, plan=[], tasks=list(tasks), thought_process=why, path=star)

    def start(self, path: str) -> None:
        self._attempts[path] = self._attempts.get(path, 0) + 1
        task = self._task(path)
        self.event("task_start", task_id=task["id"], agent=task["agent"], path=path, attempt=self._attempts[path])

    def call(
        self,
        path: str,
        name: str,
        args: dict[str, Any],
        text: str,
        code: str = "",
        *,
        same_answer: bool = False,
        effect: Effect = Effect.READ,
        state: CallState | None = None,
    ) -> str:
        """A call with its result, in an answer of its own unless it is of the same answer as the one before."""
        call_id = self.begin_call(path, name, args, same_answer=same_answer)
        told = {"name": name, "call_id": call_id}
        status = "failed" if code else "succeeded"
        state = state or (CallState.FAILED if code else CallState.SUCCEEDED)
        self.event("tool_result", **told, result=text, status=status, state=state.value)
        if effect is Effect.READ:
            self.outcomes.append(OutcomeRow(call_id, code, "", 1.0))
        else:
            outcome = {"text": text, "code": code}
            position, index = map(int, call_id.split(".")[-2:])
            row = LedgerRow(call_id, path, position, index, name, effect, args, state, outcome, created_at=self.now)
            self.ledger.append(row)
        return call_id

    def begin_call(self, path: str, name: str, args: dict[str, Any], *, same_answer: bool = False) -> str:
        """A call that has no result yet."""
        position = self._positions.get(path, -1) + (not same_answer)
        self._positions[path] = position
        index = sum(call.data["call_id"].startswith(f"{path}.{position}.") for call in self.of("tool_start"))
        call_id = f"{path}.{position}.{index}"
        self.event("tool_start", name=name, call_id=call_id, args=args, task_id=self._task(path)["id"], path=path)
        return call_id

    def write(self, path: str, text: str, position: int | None = None) -> None:
        """What an agent without tools wrote in this attempt."""
        at = self._attempts[path] - 1 if position is None else position
        self.answers.append(AnswerRow(path, at, text))

    def verdict(self, path: str, status: str, *reasons: str) -> None:
        task = self._task(path)["id"]
        reflection = {"task_id": task, "attempt": self._attempts[path], "status": status, "reasons": list(reasons)}
        self.event("reflection", **reflection, path=path)

    def end(
        self, path: str, text: str, code: str = "", skills: Sequence[str] = (), artifacts: Sequence[str] = ()
    ) -> None:
        """The end of a task: failed with a code, approved without one."""
        task, used = self._task(path), [{"id": name, "task": "", "followed": False} for name in skills]
        data: dict[str, Any] = {
            "task_id": task["id"],
            "agent": task["agent"],
            "path": path,
            "attempt": 1,
            "artifacts": list(artifacts),
        }
        status = "failed" if code else "approved"
        self.event("task_result", **data, status=status, summary=text, skills=used, code=code or None)
        if "/" not in path:
            self._failed.pop(task["id"], None)
            if code:
                self._failed[task["id"]] = text

    def done(self, path: str, name: str, args: dict[str, Any], text: str) -> None:
        """A whole task that went well with one call."""
        self.start(path)
        self.call(path, name, args, text)
        self.verdict(path, "APPROVED")
        self.end(path, text)

    def warn(self, code: str, message: str, task_id: str | None = None, kind: str = "warning") -> None:
        self.event(kind, code=code, message=message, task_id=task_id)

    def ask(self, kind: Any, state: Any, path: str, **more: Any) -> None:
        """A question to a person, with its answer."""
        item = StoredInterrupt(
            id=f"018f0000-0000-7000-8000-00000000000{len(self.interrupts) + 2}",
            run_id=self.run.id,
            key=f"{kind}/{len(self.interrupts)}",
            kind=kind,
            path=path,
            reason="It is asked.",
            message="May it?",
            response_schema={},
            call=None,
            state=state,
            payload=None,
            created_at=self.now,
            expires_at=self.now + timedelta(hours=1),
        )
        self.interrupts.append(replace(item, **more))
        events = {"approval": "approval_required", "budget": "budget_required"}
        self.event(events.get(kind, str(kind)), id=item.id)

    def model(self, path: str, tokens: int, **metadata: Any) -> None:
        """A step of a model call."""
        data = {"path": path, "input_tokens": tokens, "output_tokens": 0, **metadata}
        self.steps.append(StepRow(len(self.steps) + 1, "llm_call", "", data, self.now))

    def of(self, kind: str) -> list[EventRow]:
        return [event for event in self.events if event.type == kind]

    def rows(self, status: str = "succeeded", code: str | None = None, **result: Any) -> RunRows:
        """The rows of the run, which has ended so, with its failed tasks as the missing parts of its answer."""
        terminal = RunStatus(status).terminal
        degraded = [{"part": self._tasks[task]["task"], "reason": text} for task, text in self._failed.items()]
        known = {"status": status, "reply": "Done.", "code": code, "degraded": degraded, "usage": {"tokens": 10}}
        ended = self.now if terminal else None
        more = {"last_event": len(self.events) + 2, "ended_at": ended, "result": known | result if terminal else None}
        return RunRows(
            run=replace(self.run, status=RunStatus(status), **more),
            events=self.events,
            steps=self.steps,
            answers=self.answers,
            outcomes=self.outcomes,
            ledger=self.ledger,
            interrupts=self.interrupts,
            skills=self.skills,
            servers=self.servers,
            tools=self.tools,
        )

    def explained(self, status: str = "succeeded", code: str | None = None, **result: Any) -> Explanation:
        return explain(self.rows(status, code, **result), self.now)

    def _task(self, path: str) -> Mapping[str, Any]:
        star, _, name = path.rpartition("/")
        base = name.partition(".")[0]
        return self._tasks[f"{star.partition(':')[0]}/{base}" if star else base]


def story_of_five() -> RunStory:
    """Five tasks, of which the first two are done."""
    story = RunStory()
    story.plan(
        planned("t1", WEATHER, "Find out how warm it is in Lima"),
        planned("t2", WEATHER, "Find out how warm it is in Oslo"),
        planned("t3", SHOP, "Look up the price of a coat"),
        planned("t4", SHOP, "Order the coat", ["t3"]),
        planned("t5", WRITER, "Write a note about the trip", ["t1", "t2", "t4"]),
    )
    story.done("t1", "weather.now", {"city": "Lima"}, "18 degrees")
    story.done("t2", "weather.now", {"city": "Oslo"}, "-4 degrees")
    return story
