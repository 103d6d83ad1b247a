"""What a long text is cut to: head, tail, and the whole items that matter; gaps are named where they are."""

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from starling.core.fit import fit, share
from tests.support.long_results import KINDS, SHAPES, long_result

GATEWAY, QA = 20_000, 32_000
id_of = "id{:05}x".format
ANY_TEXT = st.text(st.characters(), max_size=400)  # with surrogates
NOTES = st.lists(st.text("abc äöü 字 ", max_size=60).map(str.strip), min_size=40, max_size=200)
LAYOUTS: Mapping[str, tuple[str, str, str, str]] = {  # an item; what is before, between and after the items
    "lines": ("{id} {note}", "", "\n", "\n"),
    "csv": ("{id},{note}", "id,note\n", "\n", "\n"),
    "markdown": ("| {id} | {note} |", "| id | note |\n| --- | --- |\n", "\n", ""),
    "paragraphs": ("Of {id}: {note}. That is all.", "", "\n\n", ""),
    "array": ('{{"id":"{id}","note":["{note}"]}}', "[", ",", "]"),
    "array of strings": ('"{id} {note}"', "[", ", ", "]"),
    "nested array": ('{{"id": "{id}", "note": "{note}"}}', '{"page": 1, "data": {"rows": [', ", ", ']}, "next": null}'),
    "indented array": ('{{\n    "id": "{id}",\n    "note": "{note}"\n  }}', "[\n  ", ",\n  ", "\n]"),
}
HOSTILE = {
    "one giant line": "x" * 200_000,
    "CJK without spaces": "一個很長的結果沒有空格" * 18_000,
    "lone surrogates": "\ud800\udfff" * 90_000,
    "nested objects": '{"a":' * 40_000 + "1" + "}" * 40_000,
    "array that doesn't end": "[" + '{"a": "b"}, ' * 16_000,
    "empty lines": "\n" * 200_000,
    "one long element": json.dumps(["a", "b" * 199_000, "c"]),
    "equal lines": "the same line\n" * 14_000,
}
REQUESTS = ("What happened to {}?", "Is “{}” open? Which note has the reason?", "Was ist mit {} passiert?")
PROGRAM = """
from random import Random
from starling.core.fit import fit
from tests.support.long_results import WORDS, long_result
print(ascii(fit(long_result(Random(5), "log", "order", 60_000)[0], 9_000, " ".join(WORDS))))
"""


def assert_whole_items_and_named_gaps(text: str, items: Sequence[str], between: str, shown: str) -> None:
    there = [number for number in range(len(items)) if id_of(number) in shown]
    assert all(items[number] in shown for number in there)
    assert shown.startswith(text[: text.index(items[0]) + len(items[0])])
    assert shown.endswith(text[text.index(items[-1]) :])
    for one, other in pairwise(there):
        gap = shown[shown.index(items[one]) + len(items[one]) : shown.index(items[other])]
        assert gap == between if other == one + 1 else any(map(str.isalnum, gap)), gap


@given(ANY_TEXT, st.integers(0, 500), ANY_TEXT)
@example("x" * 400, 0, "")
@example("a\n" * 200, 40, "a")
def test_text_is_unchanged_within_its_budget_and_else_cut_to_it(text: str, budget: int, wanted: str) -> None:
    shown = fit(text, budget, wanted)

    assert shown == text if len(text) <= budget else len(shown) <= budget
    assert fit(text, budget, wanted) == shown


@pytest.mark.parametrize("layout", LAYOUTS)
def test_items_are_whole_and_in_order_and_gaps_are_named(layout: str) -> None:
    item, before, between, after = LAYOUTS[layout]

    @given(NOTES, st.integers(1_000, 3_000), st.integers(0, 199))
    def holds(notes: Sequence[str], budget: int, number: int) -> None:
        items = [item.format(id=id_of(number), note=note) for number, note in enumerate(notes)]
        text, wanted = f"{before}{between.join(items)}{after}", id_of(number % len(notes))

        shown = fit(text, budget, f"What is {wanted}?")

        assert len(shown) <= budget
        assert (shown == text) == (len(text) <= budget)
        assert wanted in shown
        assert_whole_items_and_named_gaps(text, items, between, shown)

    holds()


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_cut_in_time_between_head_and_tail(name: str) -> None:
    text, began = HOSTILE[name], time.process_time()

    shown = fit(text, GATEWAY, f"Find ORD-1234 and Quetzal in {text[:2_000]}")

    assert time.process_time() - began < 3
    assert len(shown) <= GATEWAY
    assert (shown[:1], shown[-1:]) == (text[:1], text[-1:])
    assert any(map(str.isalnum, set(shown) - set(text))), "the gap is not named"


def test_result_does_not_depend_on_the_process() -> None:
    environments = [{**os.environ, "PYTHONHASHSEED": seed} for seed in "123"]

    shown = {subprocess.check_output([sys.executable, "-c", PROGRAM], env=one) for one in environments}

    assert len(shown) == 1


@given(st.integers(0, 60_000), st.lists(st.integers(0, 50_000), max_size=12))
def test_shares_are_within_the_budget_and_unused_ones_go_to_the_longer_texts(budget: int, sizes: list[int]) -> None:
    shares = share(budget, sizes)

    used = [min(one, size) for one, size in zip(shares, sizes, strict=True)]
    assert sum(shares) <= budget
    assert sum(used) >= min(sum(sizes), budget - len(sizes))  # all is used, but for rounding
    assert all(one >= min(size, budget // len(sizes)) for one, size in zip(used, sizes, strict=True))


def missed(rng: Random) -> list[str]:
    """Return what a generated case is about if its deciding item doesn't reach QA."""
    kind, shape, *kinds = rng.choice(list(KINDS)), rng.choice(list(SHAPES)), *rng.choices(list(KINDS), k=3)
    name, chars = SHAPES[shape](rng), round(math.exp(rng.uniform(math.log(7_000), math.log(188_000))))
    result, deciding = long_result(rng, kind, shape, chars, name)
    others = [long_result(rng, other, shape, rng.randrange(500, chars))[0] for other in kinds]
    results = [*others[: rng.randrange(4)], result]
    rng.shuffle(results)
    named = rng.choice(["both", "task", "task" if max(map(len, results)) > GATEWAY else "request"])
    request = rng.choice(REQUESTS).format("the order of last week" if named == "task" else name)
    task = f"Find the state of {'what the user asks for' if named == 'request' else name}, and the note."

    cut = [fit(result, GATEWAY, task) for result in results]
    budgets = share(QA, list(map(len, cut)))
    shown = [fit(text, budget, f"{task}\n{request}") for text, budget in zip(cut, budgets, strict=True)]
    return [] if any(deciding in text for text in shown) else [f"{kind}, {shape}, {len(result):,}, named by {named}"]


def test_95_of_100_deciding_items_reach_the_prompt_of_the_answer() -> None:
    rng = Random(2)

    lost = [about for _ in range(100) for about in missed(rng)]

    print(f"{100 - len(lost)} of 100 reach the prompt")
    assert len(lost) <= 5, lost
