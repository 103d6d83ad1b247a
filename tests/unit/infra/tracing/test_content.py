"""Inputs and outputs in spans."""

import json

import pytest

from starling.infra.tracing.content import content_text


def test_short_text_is_unchanged() -> None:
    assert content_text("How is the disk?") == "How is the disk?"


def test_long_texts_are_cut_at_any_depth() -> None:
    found = json.loads(content_text([{"role": "user", "content": "x" * 5_000}]))

    assert found[0]["content"] == "x" * 4_000 + "… [5,000 characters]"


def test_total_length_is_limited() -> None:
    assert len(content_text(["x" * 3_000] * 100)) < 40_100


KEY = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"


@pytest.mark.parametrize(
    "value",
    [
        f"It is {KEY}.",
        ["x" * 3_990 + f" {KEY}"],
        {"a": [{"b": KEY}]},
        {KEY: 1},
        ValueError(KEY),
        {"error": ValueError(KEY)},
    ],
)
def test_what_looks_like_a_key_is_masked_wherever_it_stands(value: object) -> None:
    assert KEY[:20] not in content_text(value)
    assert "***" in content_text(value)


def nested(depth: int) -> object:
    return [nested(depth - 1)] if depth else "core"


@pytest.mark.parametrize(
    "value",
    [
        pytest.param({1: {2}}, id="no JSON"),
        pytest.param({"large": 2**70, "none": float("nan")}, id="numbers beyond JSON"),
        pytest.param("half a pair: \ud800", id="a lone surrogate"),
        pytest.param(["half a pair: \ud800"], id="a lone surrogate within"),
        pytest.param(nested(500), id="deeply nested"),
    ],
)
def test_any_value_becomes_valid_text(value: object) -> None:
    assert content_text(value).encode()
