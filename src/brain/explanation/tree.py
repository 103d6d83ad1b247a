"""The tree of a run, as its trace has it: decisions, tasks with attempts, model calls, tool calls and verdicts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict

from brain.explanation.history import Attempt, Call, History, Task, Try
from brain.explanation.history_reading import read_history
from brain.explanation.rows import RunRows, StepRow
from brain.explanation.rules.incident import call_text
from brain.explanation.shape import Ref
from brain.explanation.texts import shortened
from starling.core.run_status import RunStatus
from starling.core.task_paths import is_within, without_numbers
from starling.infra.postgres.runs.interrupts import StoredInterrupt

_TEXT_CHARS: Final = 160
_WAITS: Final = {
    "approval": "waiting for approval",
    "clarification": "waiting for an answer",
    "budget": "waiting for more tokens",
    "in_doubt": "waiting for a decision",
}
_ID = "01a1f8ac-cbf4-7cdd-97b7-5ad5f772744e"
_AT = "2026-11-20T11:12:01.250000Z"
_EXAMPLE: Final[dict[str, Any]] = {
    "run_id": _ID,
    "status": "succeeded",
    "root": {
        "kind": "run",
        "text": "What time is it in Lima?",
        "state": "succeeded",
        "at": _AT,
        "seconds": 0.8,
        "tokens": 1200,
        "refs": [],
        "children": [
            {
                "kind": "task",
                "text": "t1 mcp_agent_time: What time is it in Lima?",
                "state": "approved",
                "at": _AT,
                "seconds": 0.4,
                "tokens": 400,
                "refs": [{"kind": "task", "id": "t1"}],
                "children": [],
            }
        ],
    },
    "pruned": [],
}

type NodeKind = Literal["run", "supervisor", "task", "attempt", "model", "call", "verdict", "answer", "wait"]


class TreeNode(BaseModel):
    """One thing that was done.

    `seconds` and `tokens` are null where they are not known; those of a node include its children's. `state` is that
    of a task, a call, a verdict or a question, `failed` for a model that gave no answer, and says what a task or a call
    waits for: `waiting for approval`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: NodeKind
    text: str
    state: str
    at: datetime | None = None
    seconds: float | None = None
    tokens: int | None = None
    refs: list[Ref] = []
    children: list["TreeNode"] = []


class RunTree(BaseModel):
    """The tree of a run. `pruned` says which rows are no longer kept."""

    model_config = ConfigDict(frozen=True, extra="forbid", json_schema_extra={"examples": [_EXAMPLE]})

    run_id: str
    status: RunStatus
    root: TreeNode
    pruned: list[str]


@dataclass(frozen=True, slots=True)
class _Run:
    """A run's history at a time, with its steps by path, since a run may have thousands of both tasks and steps."""

    history: History
    now: datetime
    steps: Mapping[str, Sequence[StepRow]]
    paths: Sequence[str]  # of steps and of tries, each once
    asking: Sequence[StoredInterrupt]  # the questions that are open

    @classmethod
    def of(cls, history: History, now: datetime) -> Self:
        steps: dict[str, list[StepRow]] = {}
        for step in history.rows.steps:
            steps.setdefault(step.path, []).append(step)
        tries = (one.path for task in history.tasks.values() for one in task.tries)
        asking = [item for item in history.rows.interrupts if item.state == "open"]
        return cls(history, now, steps, [*dict.fromkeys((*steps, *tries))], asking)

    def state_at(self, path: str) -> str:
        """Return the state of a task that has not ended: what it waits for, or `running`."""
        return next((_WAITS[item.kind] for item in self.asking if is_within(item.path, path)), "running")

    def state_of_call(self, call: Call) -> str:
        """Return the state of a call: what it waits for, or where it stands in the ledger, or `running`."""
        asked = (item for item in self.asking if item.call and item.call.get("call_id") == call.id)
        return next((_WAITS[item.kind] for item in asked), call.state or call.status or "running")

    def steps_at(self, *paths: str) -> list[StepRow]:
        """Return the steps of these paths, in order."""
        found = [step for path in paths for step in self.steps.get(path, ())]
        return sorted(found, key=lambda step: step.number)

    def model_calls_of(self, node: str, star: str) -> list[StepRow]:
        """Return the model calls of a node of a star, such as `t3/supervisor/1`, in order."""
        beginning = f"{star}/{node}/" if star else f"{node}/"
        paths = [path for path in self.steps if path.startswith(beginning) and "/" not in path.removeprefix(beginning)]
        return [step for step in self.steps_at(*paths) if step.type == "llm_call"]


def run_tree(rows: RunRows, now: datetime) -> RunTree:
    """Return the tree of a run as its rows tell it; times are those of the worker's clock."""
    run = rows.run
    usage: Mapping[str, Any] = (run.result or {}).get("usage") or {}
    children = _star(_Run.of(read_history(rows), now), "")
    tokens = usage.get("tokens")
    root = TreeNode(
        kind="run",
        text=shortened(run.input, _TEXT_CHARS),
        state=run.status,
        at=run.created_at,
        seconds=round(((run.ended_at or now) - run.created_at).total_seconds(), 3),
        tokens=int(tokens) if tokens is not None else _sum(children),
        children=children,
    )
    gone = [f"Events 1 to {run.trimmed} and all steps were deleted by retention."] if run.trimmed else []
    return RunTree(run_id=run.id, status=run.status, root=root, pruned=[*gone, *rows.unread])


def _star(run: _Run, path: str) -> list[TreeNode]:
    """Return what a star did, in order: decisions with their plans, tasks, questions, and its answer."""
    history, decisions = run.history, run.model_calls_of("supervisor", path)
    nodes = [_decision(history, path, list(steps)) for _, steps in groupby(decisions, key=lambda step: step.path)]
    star = without_numbers(path)
    tasks = [task for task in history.tasks.values() if task.star == star]
    tries = [(task, one) for task in tasks for one in task.tries if one.path.rpartition("/")[0] == path]
    nodes += [_task(run, task, one) for task, one in tries]
    nodes += [_waiting_task(task) for task in tasks if not task.tries]
    if not path:
        nodes += [_question(run, item) for item in history.rows.interrupts]
    nodes = sorted(nodes, key=lambda node: (node.at is None, node.at or history.rows.run.created_at))
    answers = run.model_calls_of("qa", path)
    return [*nodes, *([_answer(answers)] if answers else [])]


def _decision(history: History, star: str, steps: Sequence[StepRow]) -> TreeNode:
    place, number = without_numbers(star), steps[0].path.rpartition("/")[2]
    plans = [plan for plan in history.plans if plan.star == place]
    at = int(number) - 1 if number.isdigit() else 0
    plan = plans[at] if at < len(plans) else None
    text = f"decision {number}: {plan.why or 'a plan'}" if plan else f"decision {number}"
    children = [_model(step) for step in steps]
    state = "planned" if plan and plan.tasks else "decided" if plan else "no plan"
    refs = [Ref(kind="event", id=str(plan.seq))] if plan else []
    return TreeNode(
        kind="supervisor",
        text=shortened(text, _TEXT_CHARS),
        state=state,
        at=_began(steps[0]),
        seconds=_known_seconds(steps),
        tokens=_sum(children),
        refs=refs,
        children=children,
    )


def _task(run: _Run, task: Task, one: Try) -> TreeNode:
    own = run.steps_at(one.path, f"{one.path}/review", f"{one.path}.review")
    by_attempt = _by_attempt(one, own)
    inner = [child for star in _stars_of(run, one) for child in _star(run, star)]
    attempts = [_attempt(run, one, attempt, by_attempt.get(attempt.number, [])) for attempt in one.attempts]
    children = [*inner, *attempts]
    times = [*((_began(step), step.at) for step in own), *((child.at, _end(child)) for child in inner if child.at)]
    begin = min((began for began, _ in times), default=one.attempts[0].at if one.attempts else None)
    end = max((ended for _, ended in times), default=begin) if one.end else None
    return TreeNode(
        kind="task",
        text=shortened(f"{one.path} {one.agent}: {task.text}", _TEXT_CHARS),
        state=one.end.status if one.end else run.state_at(one.path),
        at=begin,
        seconds=_seconds(begin, end) if len(times) > 1 or _known_seconds(own) is not None else None,
        tokens=_sum(children),
        refs=[Ref(kind="task", id=one.path)],
        children=children,
    )


def _stars_of(run: _Run, one: Try) -> list[str]:
    """Return the paths of the stars that worked on a try: `t3` and `t3:2` for two attempts of a team."""
    inside = [path for path in run.paths if path.startswith((f"{one.path}/", f"{one.path}:"))]
    stars = {f"{one.path}{path[len(one.path) :].partition('/')[0]}" for path in inside}
    return sorted(
        star for star in stars if any(path.startswith(f"{star}/") and _is_node(path, star) for path in inside)
    )


def _is_node(path: str, star: str) -> bool:
    """Whether a path inside of a star is no review of the star's own task."""
    return path.removeprefix(f"{star}/") != "review"


def _waiting_task(task: Task) -> TreeNode:
    text = shortened(f"{task.place} {task.agent}: {task.text}", _TEXT_CHARS)
    return TreeNode(kind="task", text=text, state="not begun", refs=[Ref(kind="task", id=task.place)])


def _by_attempt(one: Try, steps: Sequence[StepRow]) -> dict[int, list[StepRow]]:
    """Return the steps of each attempt: a call's are those of its attempt, an answer's those of the call after it."""
    found: dict[int, list[StepRow]] = {}
    calls = iter(sorted((call for call in one.calls if call.end), key=lambda call: call.end))
    number = one.attempts[0].number if one.attempts else 1
    pending: list[StepRow] = []
    reviewed = False
    for step in steps:
        is_review = step.path != one.path
        if step.type == "tool_call":
            call = next(calls, None)
            number, reviewed = (call.attempt if call else number), False
            found.setdefault(number, []).extend(pending)
            pending = []
        elif is_review:
            found.setdefault(number, []).extend([*pending, step])
            pending, reviewed = [], True
        else:
            number += reviewed and number < len(one.attempts)
            reviewed = False
            pending.append(step)
    found.setdefault(number, []).extend(pending)
    return found


def _attempt(run: _Run, one: Try, attempt: Attempt, steps: Sequence[StepRow]) -> TreeNode:
    models = [_model(step) for step in steps if step.type == "llm_call" and not _is_review(step)]
    reviews = [_model(step) for step in steps if _is_review(step)]
    children = [*models, *(_call(run, call) for call in attempt.calls), *_verdict(attempt, reviews)]
    open_state = "not reviewed" if one.end or attempt is not one.attempts[-1] else run.state_at(one.path)
    return TreeNode(
        kind="attempt",
        text=f"attempt {attempt.number}",
        state=attempt.verdict.status.lower() if attempt.verdict else open_state,
        at=attempt.at,
        tokens=_sum(children),
        refs=[Ref(kind="event", id=str(attempt.seq))],
        children=children,
    )


def _is_review(step: StepRow) -> bool:
    return step.path.endswith(("/review", ".review"))


def _verdict(attempt: Attempt, reviews: list[TreeNode]) -> Iterable[TreeNode]:
    verdict = attempt.verdict
    if verdict is None:
        yield from reviews
        return
    reasons = " ".join(verdict.reasons)
    yield TreeNode(
        kind="verdict",
        text=shortened(f"verdict: {reasons}" if reasons else "verdict", _TEXT_CHARS),
        state=verdict.status,
        tokens=_sum(reviews),
        refs=[Ref(kind="event", id=str(verdict.seq))],
        children=reviews,
    )


def _call(run: _Run, call: Call) -> TreeNode:
    text = call_text(call) if not call.failed else f"{call_text(call)}: {call.text}"
    refs = [Ref(kind="call", id=call.id), Ref(kind="event", id=str(call.seq))]
    seconds = round(call.milliseconds / 1000, 3) if call.milliseconds else None
    return TreeNode(
        kind="call",
        text=shortened(text, _TEXT_CHARS),
        state=run.state_of_call(call),
        at=call.at,
        seconds=seconds,
        refs=refs,
    )


def _model(step: StepRow) -> TreeNode:
    data = step.metadata
    failed = bool(data.get("error"))
    tokens = int(data.get("input_tokens") or 0) + int(data.get("output_tokens") or 0)
    role = data.get("model_role")
    text = f"{data.get('model', 'a model')}{f' ({role})' if role else ''}{f': {data["error"]}' if failed else ''}"
    return TreeNode(
        kind="model",
        text=shortened(text, _TEXT_CHARS),
        state="failed" if failed else "answered",
        at=_began(step),
        seconds=_known_seconds([step]),
        tokens=0 if failed else tokens,
        refs=[Ref(kind="step", id=str(step.number))],
    )


def _answer(steps: Sequence[StepRow]) -> TreeNode:
    children = [_model(step) for step in steps]
    state = "failed" if all(child.state == "failed" for child in children) else "written"
    tokens, seconds = _sum(children), _known_seconds(steps)
    return TreeNode(
        kind="answer",
        text="final answer",
        state=state,
        at=_began(steps[0]),
        tokens=tokens,
        seconds=seconds,
        children=children,
    )


def _question(run: _Run, item: StoredInterrupt) -> TreeNode:
    asked, is_open = run.history.asked, item.state == "open"
    seconds = _seconds(item.created_at, run.now if is_open else item.answered_at)
    refs = [Ref(kind="event", id=str(asked[item.id]))] if item.id in asked else []
    text = f"{'waits' if is_open else 'waited'} for {item.kind} at {item.path}: {item.message}"
    text = shortened(text, _TEXT_CHARS)
    return TreeNode(kind="wait", text=text, state=item.state, at=item.created_at, seconds=seconds, refs=refs)


def _began(step: StepRow) -> datetime:
    """Return when a step began: its own time is that of its end."""
    return step.at - timedelta(milliseconds=float(step.metadata.get("duration_ms") or 0.0))


def _end(node: TreeNode) -> datetime:
    assert node.at is not None
    return node.at + timedelta(seconds=node.seconds or 0.0)


def _seconds(begin: datetime | None, end: datetime | None) -> float | None:
    return round((end - begin).total_seconds(), 3) if begin and end else None


def _known_seconds(steps: Sequence[StepRow]) -> float | None:
    known = [float(step.metadata["duration_ms"]) for step in steps if step.metadata.get("duration_ms") is not None]
    return round(sum(known) / 1000, 3) if known else None


def _sum(nodes: Sequence[TreeNode]) -> int | None:
    known = [node.tokens for node in nodes if node.tokens is not None]
    return sum(known) if known else None
