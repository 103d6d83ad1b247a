"""What is measured, next to what it is measured against, and the marks that are set."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

type Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure. `against` says in words what `reference` is."""

    name: str
    value: float
    unit: str
    reference: float
    against: str

    @property
    def ratio(self) -> float:
        return self.value / self.reference

    def line(self) -> str:
        fields = {"name": self.name, "value": self.value, "unit": self.unit}
        fields |= {"reference": self.reference, "ratio": self.ratio}
        return json.dumps({key: round(v, 3) if isinstance(v, float) else v for key, v in fields.items()})


@dataclass(frozen=True, slots=True)
class Mark:
    """What a figure should come to. A figure that misses it is reported, not failed: machines differ."""

    text: str
    is_met: Callable[[Figure], bool]


def _at_most(limit: float) -> Mark:
    return Mark(f"≤ {limit:g}", lambda figure: figure.value <= limit)


def _times_at_most(limit: float) -> Mark:
    return Mark(f"≤ {limit:g} ×", lambda figure: figure.ratio <= limit)


def _times_at_least(limit: float) -> Mark:
    return Mark(f"≥ {limit:g} ×", lambda figure: figure.ratio >= limit)


def _at_least(limit: float) -> Mark:
    return Mark(f"≥ {limit:g}", lambda figure: figure.value >= limit)


def _at_most_above(excess: float) -> Mark:
    return Mark(f"≤ + {excess:g}", lambda figure: figure.value <= figure.reference + excess)


_RIGHT = {  # share of paraphrases that recall the right skill, by the size of the store and the tasks of each skill
    "5_skills_10_tasks": 0.85,
    "5_skills_3_tasks": 0.8,
    "20_skills_10_tasks": 0.75,
    "20_skills_3_tasks": 0.55,
    "74_skills_10_tasks": 0.66,
    "74_skills_3_tasks": 0.45,
}
_LINEAR = 1.05  # what a thing twice as long may take, as a multiple of twice as much

MARKS: Mapping[str, Mark] = {
    "run.cpu_ms": _times_at_most(2.8),
    "run.first_event_ms": _at_most(10),
    "run.plan_event_ms": _at_most(40),
    "run.throughput_share": _times_at_least(0.8),
    "run.model_calls": _at_most(6),
    "run.model_depth": _at_most(4),
    "run.model_calls_risky": _at_most(4),
    "run.model_depth_risky": _at_most(3),
    "run.write_transactions": _at_most(7),
    "run.fork_ms": _times_at_most(0.7),
    "run.prompt_chars": _at_most(9_500),
    "run.prompt_chars_300": _at_most_above(3_500),
    "run.prompt_chars_1600": _at_most_above(3_500),
    "run.prompt_chars_500_teams": _at_most_above(3_500),
    "thread.bytes_200_turns": Mark("≤ 4 MB, linear", lambda figure: figure.value <= 4 and figure.ratio <= _LINEAR),
    "thread.rows_200_turns": Mark("linear", lambda figure: figure.ratio <= _LINEAR),
    "thread.turn_ratio_1000": _at_most(1.2),
    "run.checkpoint_bytes": _at_most(60),
    "runs.pickup_ms": _at_most(20),
    "runs.two_worker_speedup": _at_least(1.8),
    "deploy.runs_per_second_4_workers": _times_at_least(3.2),
    "runs.fairness_ratio": _at_most(3),
    "api.p95_ms_1000_streams": _at_most(300),
    "api.loop_stall_ms": _at_most(100),
    "streams.silent_readers_mb": _times_at_most(1.5),
    "up.idle_ms_per_s": _times_at_most(1.5),
    "up.ready_ms_300": _at_most(3_000),
    "up.memory_mb_300": _at_most(250),
    "registry.reload_ms_300": _at_most(2_000),
    "registry.reload_ms_500_teams": _at_most(2_000),
    "package.base_mb": _at_most(305),
    "console.bytes_kb": _at_most(120),
    "console.first_paint_ms": _at_most(500),
    "console.text_lag_ms": _at_most_above(100),
    "console.call_lag_ms": _at_most_above(1_000),  # half of it until the page asks again
    "cli.help_ms": _at_most(500),
    "cli.list_cpu_ms": _times_at_most(4),
    "up.ready_ms": _times_at_most(3),
    "up.first_answer_ms": _at_most_above(500),
    "up.start_to_answer_ms": _times_at_most(5.5),
    "tracing.overhead_ratio": _at_most(1.05),
    "retrieval.stabletoolbench_811.recall_at_5_off": _at_least(0.82),
    "retrieval.stabletoolbench_811.recall_at_5": _at_least(0.885),
    "retrieval.stabletoolbench_811.recall_at_5_minilm": _at_least(0.84),
    "retrieval.metatool_199.recall_at_5_off": _at_least(0.62),
    "retrieval.metatool_199.recall_at_5": _at_least(0.78),
    "retrieval.metatool_199.recall_at_5_minilm": _at_least(0.77),
    "retrieval.livemcpbench_70.recall_at_5": _times_at_least(1),
    "retrieval.livemcpbench_70.with_steps.recall_at_5": _at_least(0.85),
    "retrieval.query_ms_1600": _at_most(20),
    "retrieval.query_ms_1600_off": _at_most(20),
    "retrieval.query_ms_ten_rosters_300": _at_most(6),
    "retrieval.memory_mb_10000": _at_most(250),
    "routing.team_shown": _at_least(0.95),
    "routing.team_shown_worst": _at_least(0.95),
    "routing.specialist_first": _at_least(0.9),
    "routing.specialist_first_worst": _at_least(0.9),
    "architect.compile_ms_12": _at_most(20),
    "architect.proven_wrong": _at_most(0),
    "architect.stabletoolbench.f1": _at_least(0.62),
    "architect.stabletoolbench.gap_false": _at_most(0.1),
    "architect.metatool.f1": _at_least(0.5),
    "architect.metatool.gap_false": _at_most(0.1),
    "team.loop_stall_ms_50_crews": _at_most(250),
    "answers.false_marks": _at_most(0.05),
    "answers.inventions_marked": _at_least(0.8),
    "injections.held": _at_least(1),
    "injections.benign": _at_least(0.95),
    "gateway.loop_stall_ms": _at_most(100),
    "gateway.call_ms": _at_most_above(1),
    "gateway.read_call_ms": _at_most_above(0.5),
    "execute.read_ms": _at_most_above(3),
    "openai.overhead_ms": _at_most(3),
    "skills.recall_ms_100k": _at_most(15),
    "skills.empty_recall_ratio": _at_most(1.1),
    "skills.near_misses_recalled_effects": _at_most(0),
    **{f"skills.clinc.right_{case}": _at_least(share) for case, share in _RIGHT.items()},
    **{f"skills.clinc.right_{case}_minilm": _at_least(share) for case, share in _RIGHT.items()},
    **{f"skills.clinc.false_{case}{end}": _at_most(0.06) for case in _RIGHT for end in ("", "_off", "_minilm")},
}


def depth(calls: Iterable[Interval]) -> int:
    """Return how many of these calls went one after another: the longest chain in which each begins after the last."""
    length, free_at = 0, float("-inf")
    for begun, ended in sorted(calls, key=lambda call: call[1]):
        if begun >= free_at:
            length, free_at = length + 1, ended
    return length


def prompt_chars(body: Mapping[str, Any]) -> int:
    """Return the size of what a model reads of a request: messages, tools and the schema of the answer."""
    return sum(len(_text(body[part])) for part in ("messages", "tools", "response_format") if part in body)


def payload_chars(body: Mapping[str, Any]) -> int:
    """Return the same without the instructions, the system messages."""
    return prompt_chars({**body, "messages": [said for said in body["messages"] if said["role"] != "system"]})


def _text(part: object) -> str:
    return json.dumps(part, ensure_ascii=False, separators=(",", ":"))


def write(figures: Sequence[Figure], file: Path) -> None:
    """Write a line for each figure; those in the file that weren't measured again stay."""
    names = {figure.name for figure in figures}
    known = file.read_text("utf-8").splitlines() if file.exists() else []
    kept = [line for line in known if json.loads(line)["name"] not in names]
    file.write_text("".join(f"{line}\n" for line in (*kept, *(figure.line() for figure in figures))), encoding="utf-8")


def show(figures: Sequence[Figure], console: Console) -> None:
    table = Table("figure", "value", "reference", "ratio", "mark", "which reference", box=None, pad_edge=False)
    table.columns[0].no_wrap = True
    for column in table.columns[1:4]:
        column.justify = "right"
    for figure in figures:
        table.add_row(*_row(figure))
    console.print(table)


def _row(figure: Figure) -> tuple[str, ...]:
    numbers = f"{figure.value:,.4g} {figure.unit}", f"{figure.reference:,.4g}", f"{figure.ratio:.2f}"
    mark = MARKS.get(figure.name)
    judged = "" if mark is None else f"[green]{mark.text}[/]" if mark.is_met(figure) else f"[red]{mark.text} missed[/]"
    return figure.name, *numbers, judged, figure.against
