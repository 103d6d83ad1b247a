"""The bench's arithmetic: what goes one after another, what a model reads, what a mark says."""

import json
from pathlib import Path

import pytest

from bench.figures import MARKS, Figure, depth, prompt_chars, write
from bench.run import PARTS, chosen


@pytest.mark.parametrize(
    ("calls", "longest"),
    [
        pytest.param([], 0, id="none"),
        pytest.param([(0, 2), (2, 4), (4, 6)], 3, id="each after the last"),
        pytest.param([(0, 2), (2, 4), (2.1, 4.1), (4.2, 6)], 3, id="two of them side by side"),
        pytest.param([(0, 9), (1, 2), (3, 4)], 2, id="two beside a long one"),
        pytest.param([(4, 6), (0, 2), (2, 4)], 3, id="told in any order"),
    ],
)
def test_depth_is_the_longest_chain_of_calls(calls: list[tuple[float, float]], longest: int) -> None:
    assert depth(calls) == longest


def test_a_prompt_counts_messages_tools_and_the_answers_schema() -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
    bare = {"model": "m", "messages": messages}

    with_tools = bare | {"tools": [{"type": "function"}], "response_format": {"type": "json_object"}}

    assert prompt_chars(with_tools) - prompt_chars(bare) == len('[{"type":"function"}]{"type":"json_object"}')


@pytest.mark.parametrize(
    ("name", "value", "met"),
    [
        pytest.param("run.cpu_ms", 5.6, True, id="2.8 times the reference"),
        pytest.param("run.cpu_ms", 5.7, False, id="more than 2.8 times the reference"),
        pytest.param("run.first_event_ms", 11, False, id="late, whatever the reference"),
        pytest.param("run.throughput_share", 1.6, True, id="0.8 times the share of the reference"),
        pytest.param("run.throughput_share", 1.5, False, id="less than 0.8 times the share of the reference"),
        pytest.param("up.idle_ms_per_s", 4.1, False, id="too much at rest"),
        pytest.param("thread.bytes_200_turns", 2.1, True, id="little enough, and linear"),
        pytest.param("thread.bytes_200_turns", 2.2, False, id="little enough, but more than linear"),
    ],
)
def test_a_mark_judges_the_value_or_the_ratio(name: str, value: float, met: bool) -> None:
    assert MARKS[name].is_met(Figure(name, value, "", 2.0, "")) is met


def test_lines_of_what_was_not_measured_again_stay(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    write([Figure("a", 1, "", 1, ""), Figure("b", 1, "", 1, "")], file)

    write([Figure("a", 2, "", 1, "")], file)

    found = {line["name"]: line["value"] for line in map(json.loads, file.read_text().splitlines())}
    assert found == {"a": 2, "b": 1}


def test_every_mark_is_of_a_figure_that_is_measured_once() -> None:
    names = [name for part in PARTS for name in part.names]

    assert len(names) == len(set(names))
    assert set(MARKS) <= set(names)


def test_the_parts_are_those_that_measure_what_is_named() -> None:
    assert [part.names for part in chosen(["runs.pickup_ms"])] == [("runs.pickup_ms",)]
    assert [part.names[0] for part in chosen(["deploy"])] == ["deploy.runs_per_second_1_worker"]
    assert chosen([]) == list(PARTS)


def test_a_figure_that_nobody_measures_is_refused() -> None:
    with pytest.raises(SystemExit, match=r"no figure run\.speed\. There are: run\.cpu_ms"):
        chosen(["run.speed", "run.cpu_ms"])
