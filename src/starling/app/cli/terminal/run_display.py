"""The events of a run as lines of text: plan, tasks, tool calls, answer."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter

from rich.console import Console

from starling.app.cli.terminal.build_text import BUILD_EVENTS, WIDTH, build_lines
from starling.app.cli.terminal.event_text import (
    Data,
    arguments_text,
    called_by,
    counted,
    event_place,
    log_text,
    one_line,
    place_of,
    planned_place,
    progress_text,
    result_text,
    seconds_text,
    trial_of,
)
from starling.app.cli.terminal.interrupt_text import behind_line, interrupt_lines, run_reference
from starling.app.cli.terminal.output import write
from starling.core.principal import DEFAULT_TENANT
from starling.core.task_paths import without_numbers

_NOT_ANSWERED = "Not answered"  # as replies that no model wrote say it, too
_RESULT_CHARS = 110
_REASONS_CHARS = 200
_TROUBLE_CHARS = 800  # a refused answer is quoted with 300 of them
QUIET_LEVELS = frozenset({"debug", "info", "notice"})
_MARKS = {"APPROVED": ("✓", "green"), "FIXED": ("✎", "yellow"), "REJECTED": ("✗", "red")}


@dataclass(slots=True)
class _Call:
    name: str
    begun: float
    seconds: float | None = None
    tenths: int = -1  # of its work, as its server said
    reports: int = 0


@dataclass(slots=True)
class _Task:
    agent: str
    text: str
    tools: list[str] = field(default_factory=list[str])
    status: str = "pending"
    summary: str = ""


class RunDisplay:
    """Prints the events of a run, which are fed in order, to `console`.

    `live` says that events arrive as they happen: only then are durations worth showing. Events up to number `after`
    aren't shown, but later ones refer to them.
    """

    def __init__(self, console: Console, *, live: bool = True, after: int = 0, tenant: str = DEFAULT_TENANT) -> None:
        self.run_id = ""
        self.status = ""
        self.commands = True  # that answer what the run asks are shown; not where prompts ask
        self._console = console
        self._live = live
        self._after = after
        self._tenant = tenant
        self._silent = False
        self._begun = perf_counter()
        self._moments: dict[str, float] = {}  # what happened first when, in seconds since the beginning
        self._tasks: dict[str, _Task] = {}
        self._calls: dict[str, _Call] = {}
        self._message_id = ""
        self._answer = ""
        self._mid_line = False
        self._interrupted = False  # another line came between pieces of the answer
        self._trial = ""  # the place of the trial whose case was named last

    @property
    def approved_agents(self) -> frozenset[str]:
        """The agents of the main star that had a task approved."""
        return frozenset(task.agent for task in self._own_tasks if task.status == "approved")

    @property
    def _own_tasks(self) -> list[_Task]:
        """The tasks of the main star: what teams do inside one is theirs."""
        return [task for name, task in self._tasks.items() if "/" not in name]

    @property
    def idle(self) -> bool:
        """Whether the run was accepted and has no other event yet."""
        return self._moments.keys() == {"first event", "run_started"}

    def behind(self, run_id: str, status: str) -> None:
        """Show the run that has to end before this one begins."""
        self._line(behind_line(run_id, status), "yellow")

    def feed(self, seq: int, kind: str, data: Data) -> None:
        """Show one event. Unknown kinds, of a newer version, are ignored."""
        self._silent = seq <= self._after
        self._moments.setdefault("first event", self._elapsed())
        self._moments.setdefault(kind, self._elapsed())
        if trial := trial_of(event_place(kind, data)):
            self._on_trial(*trial, kind, data)
        elif kind in BUILD_EVENTS:
            self._on_build(kind, data)
        else:
            self._show(kind, data)
        self._interrupted |= self._silent

    def _show(self, kind: str, data: Data) -> None:
        show = getattr(self, f"_on_{kind}", None)
        if show is not None:
            show(data)

    def _on_build(self, kind: str, data: Data) -> None:
        for text, style in build_lines(kind, data, self._width):
            self._line(text, style)

    def _on_trial(self, trial: str, case: str, kind: str, data: Data) -> None:
        """Show what a team does with a case: its calls, a line each, and the tasks that fail."""
        if trial != self._trial:
            self._trial = trial
            self._line(f"Case {case}", "bold")
        if kind == "tool_start":
            self._calls[data["call_id"]] = _Call(f"{data['name']}({arguments_text(data['args'])})", perf_counter())
        elif kind == "tool_result":
            call = self._calls.get(data["call_id"])
            mark, style = ("✓", "dim") if data["status"] == "succeeded" else ("✗", "red")
            text = f"{mark} {call.name if call else data['name']}: {result_text(data, _RESULT_CHARS)}"
            self._line(f"  {one_line(text, self._width - 2)}", style)
        elif kind == "task_result" and data["status"] == "failed":
            self._line(f"  {one_line(f'✗ {data["agent"]}: {data["summary"]}', self._width - 2)}", "red")

    @property
    def _width(self) -> int:
        """How long lines about builds may be."""
        return min(WIDTH, self._console.width) if self._console.is_terminal else WIDTH

    def _on_run_started(self, data: Data) -> None:
        self.run_id = data["run_id"]
        self._line(f"Run {data['run_id']} on thread {data['thread_id']}, epoch {data['epoch']}", "dim")

    def _on_plan(self, data: Data) -> None:
        if not data["tasks"]:
            return
        team = f" of {without_numbers(data['path'])}" if data.get("path") else ""
        self._line(f"Plan{team}" if data["version"] == 1 else f"Plan{team}, version {data['version']}", "bold")
        for number, task in enumerate(data["tasks"], start=1):
            self._remember(task, planned_place(data, task))
            after = f" (after {', '.join(task['depends_on'])})" if task["depends_on"] else ""
            done = f" [{task['status']}]" if task["status"] != "pending" else ""
            self._line(f"  {number}. {task['agent']}: {one_line(task['task'], _RESULT_CHARS)}{after}{done}")

    def _remember(self, task: Data, place: str) -> None:
        known = self._tasks.get(place)
        if known is None or known.agent != task["agent"]:
            known = self._tasks[place] = _Task(task["agent"], task["task"])
        known.text, known.status = task["task"], task["status"]

    def _on_task_start(self, data: Data) -> None:
        again = f", attempt {data['attempt']}" if data["attempt"] > 1 else ""
        self._line(f"{place_of(data)} → {data['agent']} works{again}", "cyan")

    def _on_tool_start(self, data: Data) -> None:
        self._calls[data["call_id"]] = _Call(data["name"], perf_counter())
        self._note_tool(data)
        self._line(f"{place_of(data)}   calls {data['name']}({arguments_text(data['args'])})")

    def _note_tool(self, data: Data) -> None:
        if (task := self._tasks.get(place_of(data))) and data["name"] not in task.tools:
            task.tools.append(data["name"])

    def _on_tool_progress(self, data: Data) -> None:
        """Show each tenth of a call's progress as a line, every tenth report where the whole is unknown."""
        call = self._calls.setdefault(data["call_id"], _Call(data["name"], perf_counter()))
        call.reports += 1
        tenths = int(10 * data["progress"] / data["total"]) if data["total"] else call.reports // 10
        if tenths > call.tenths and not self._mid_line:
            call.tenths = tenths
            self._line(f"{place_of(data)}   {data['name']}: {one_line(progress_text(data), _RESULT_CHARS)}", "dim")

    def _on_tool_log(self, data: Data) -> None:
        style = "dim" if data["level"] in QUIET_LEVELS else "yellow"
        self._line(f"{place_of(data)}   {data['name']} logs {one_line(log_text(data), _RESULT_CHARS)}", style)

    def _on_tool_result(self, data: Data) -> None:
        call = self._calls.get(data["call_id"]) or _Call(data["name"], perf_counter())
        took = f" after {seconds_text(perf_counter() - call.begun)}" if self._live else ""
        failed = data["status"] != "succeeded"
        verb = "failed" if failed else "answered"
        text = f"{called_by(data)}   {data['name']} {verb}{took}: {result_text(data, _RESULT_CHARS)}"
        self._line(text, "red" if failed else "dim")

    def _on_reflection(self, data: Data) -> None:
        mark, style = _MARKS[data["status"]]
        reasons = "" if data["status"] == "APPROVED" else f": {one_line('; '.join(data['reasons']), _REASONS_CHARS)}"
        self._line(f"{place_of(data)}   {data['status']} {mark}{reasons}", style)

    def _on_task_result(self, data: Data) -> None:
        self._note_result(data)
        if data["status"] == "failed":
            self._line(f"{place_of(data)} {data['agent']} failed: {one_line(data['summary'], _REASONS_CHARS)}", "red")

    def _note_result(self, data: Data) -> None:
        task = self._tasks.setdefault(place_of(data), _Task(data["agent"], ""))
        task.status, task.summary = data["status"], data["summary"]

    def _on_thinking(self, data: Data) -> None:
        if data["message_id"] != self._message_id:
            self._line("Answer" if not self._answer else "Answer, anew", "bold")
            self._message_id, self._answer = data["message_id"], ""
        elif self._interrupted:
            self._line("Answer, continued", "bold")
        self._interrupted = False
        self._answer += data["content"]
        self._write(data["content"])

    def _on_approval_required(self, data: Data) -> None:
        self._ask("approval_required", data)

    def _on_clarification(self, data: Data) -> None:
        self._ask("clarification", data)

    def _on_budget_required(self, data: Data) -> None:
        self._ask("budget_required", data)

    def _on_in_doubt(self, data: Data) -> None:
        self._ask("in_doubt", data)

    def _ask(self, event: str, data: Data) -> None:
        run = run_reference(self.run_id, self._tenant)
        first, *others = interrupt_lines(event, data, run, commands=self.commands)
        self._line(first, "bold yellow")
        for line in others:
            self._line(line)

    def _on_warning(self, data: Data) -> None:
        self._trouble("Warning", data, "yellow")

    def _on_error(self, data: Data) -> None:
        self._trouble("Error", data, "red")

    def _on_gap(self, data: Data) -> None:
        self._line(f"Events {data['from']} to {data['to']} are no longer kept.", "yellow")

    def _on_done(self, data: Data) -> None:
        self.status = data["status"]
        if data["reply"].strip() != self._answer.strip():
            self._line("Answer", "bold")
            self._line(data["reply"])
        self._sources()
        self._degraded(data["reply"])
        self._line(self._summary(data), "green" if self.status == "succeeded" else "red")

    def _sources(self) -> None:
        approved = [task for task in self._own_tasks if task.status == "approved"]
        if approved:
            self._line("Sources", "bold")
        for number, task in enumerate(approved, start=1):
            self._line(f"  [{number}] {task.agent}{': ' if task.tools else ''}{', '.join(task.tools)}")

    def _degraded(self, reply: str) -> None:
        """Show the unanswered parts, except those that the reply already names, or whose reason it begins with."""
        said = reply.partition(_NOT_ANSWERED)[2]
        parts = [
            f"{task.text or task.agent}: {one_line(task.summary, _REASONS_CHARS) or 'was not finished'}"
            for task in self._own_tasks
            if task.status != "approved" and not (task.text and task.text in said) and not _begins(reply, task.summary)
        ]
        if parts:
            self._line(_NOT_ANSWERED, "bold")
        for part in parts:
            self._line(f"  {part}", "yellow")

    def _summary(self, data: Data) -> str:
        usage = data["usage"]
        used = ", ".join(counted(usage[key], what) for key, what in _COUNTED)
        moments = [(name, self._moments.get(key)) for name, key in _MOMENTS]
        times = ", ".join(f"{name} {seconds_text(at)}" for name, at in moments if at is not None)
        status = data["status"].replace("_", " ").capitalize()
        return f"{status}: {used}" + (f"; {times}" if self._live else "")

    def _trouble(self, what: str, data: Data, style: str) -> None:
        places = (without_numbers(data.get("path", "")), data.get("task_id") or "")
        about = "/".join(filter(None, places))
        about = f" in {about}" if about else ""
        self._line(f"{what}{about}: {one_line(data['message'], _TROUBLE_CHARS)}", style)

    def _elapsed(self) -> float:
        return perf_counter() - self._begun

    def _line(self, text: str, style: str | None = None) -> None:
        if self._silent:
            return
        self._end_line()
        write(self._console, f"{text}\n", style)

    def _end_line(self) -> None:
        if self._mid_line:
            write(self._console, "\n")
        self._mid_line, self._interrupted = False, True

    def _write(self, text: str) -> None:
        if self._silent:
            return
        write(self._console, text)
        self._mid_line = not text.endswith("\n")


_MOMENTS: Sequence[tuple[str, str]] = (("first event", "first event"), ("plan", "plan"), ("done", "done"))

_COUNTED: Sequence[tuple[str, str]] = (("model_calls", "model call"), ("tool_calls", "tool call"), ("tokens", "token"))


def _begins(reply: str, summary: str) -> bool:
    """Whether a reply begins with a summary, which may be cut."""
    begin = summary.rstrip("…").split()
    return bool(begin) and " ".join(reply.split()).startswith(" ".join(begin))
