"""What the check of answers marks: nothing of honest answers, and what was invented in others. No model."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.figures import Figure, Interval
from bench.harness import BenchSetup
from bench.line_process import HERE
from brain.lifecycle.answer_check import unsupported
from brain.lifecycle.answer_passages import passages
from brain.lifecycle.citations import cited_of

_DEVELOPED_ON: Final = HERE / "data/answer_check.jsonl"
_JUDGED: Final = HERE / "data/answer_check_judged.jsonl"
_CITATION: Final = re.compile(r"\[\d+\]")
_NUMBER: Final = re.compile(r"\d+(?:[.,]\d+)*")
_AGAINST: Final = "marks of every number that isn't literally in the results"
NAMES: Final = (
    "answers.false_marks",
    "answers.inventions_marked",
    "answers.false_passages",
    "answers.false_marks_dev",
    "answers.inventions_marked_dev",
)


@dataclass(frozen=True, slots=True)
class _Row:
    """An answer to `said`, the request and what came before it, that cites `sources`; `inventions` are of it."""

    said: Sequence[str]
    sources: Sequence[str]
    answer: str
    inventions: Sequence[Interval]


type _Marks = Callable[[_Row], Sequence[Interval]]


async def measure(setup: BenchSetup) -> list[Figure]:
    """Measure the shares of honest answers and of their checked passages with a mark, and of inventions with one."""
    judged, developed_on = _rows(_JUDGED), _rows(_DEVELOPED_ON)
    setup.say(f"Marks in {len(judged)} answers that the rule wasn't made on, and {len(developed_on)} that it was")
    measures = (_marked_answers, _marked_inventions)
    read = [(judged, one) for one in (*measures, _marked_passages)] + [(developed_on, one) for one in measures]
    return [
        Figure(name, share(rows, _checked), "", share(rows, _literal), _AGAINST)
        for name, (rows, share) in zip(NAMES, read, strict=True)
    ]


def _marked_answers(rows: Sequence[_Row], marks: _Marks) -> float:
    honest = [row for row in rows if not row.inventions]
    return sum(bool(marks(row)) for row in honest) / len(honest)


def _marked_passages(rows: Sequence[_Row], marks: _Marks) -> float:
    honest = [row for row in rows if not row.inventions]
    checked = sum(one.kind != "count" for row in honest for one in passages(row.answer))
    return sum(len(marks(row)) for row in honest) / checked


def _marked_inventions(rows: Sequence[_Row], marks: _Marks) -> float:
    marked = list[bool]()
    for row in rows:
        found = marks(row)
        marked += [any(start < ended and begun < end for start, end in found) for begun, ended in row.inventions]
    return sum(marked) / len(marked)


def _checked(row: _Row) -> list[Interval]:
    return [(passage.start, passage.end) for passage in unsupported(row.answer, row.sources, row.said)]


def _literal(row: _Row) -> list[Interval]:
    known = {number for text in row.sources for number in _NUMBER.findall(text)}
    uncited = _CITATION.sub(lambda citation: " " * len(citation[0]), row.answer)
    return [found.span() for found in _NUMBER.finditer(uncited) if found[0] not in known]


def _rows(path: Path) -> list[_Row]:
    with path.open(encoding="utf-8") as lines:
        return [_row(line) for line in lines]


def _row(line: str) -> _Row:
    row = json.loads(line)
    answer = row["answer"]
    starts = [(answer.index(passage), passage) for passage in row["inventions"]]
    inventions = [(start, start + len(passage)) for start, passage in starts]
    return _Row([row["request"], *row["conversation"]], cited_of(row["results"], answer), answer, inventions)
