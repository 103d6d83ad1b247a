"""What there may be in a body."""

import json

import pytest

from starling.app.http.body_check import excess


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b'{"a":[1,2],"b":{"c":3}}', ""),
        (b'{"a":[1,2,3],"b":{"c":3}}', "more than 5 keys and items, counted up to `b`"),
        (b"[[1,2],[3,4]]", "more than 5 keys and items, counted up to `1`"),
        (b'{"a":1,"a":1,"a":1,"a":1,"a":1,"a":1}', "more than 5 keys and items, counted up to `a`"),
        (b"[" * 66 + b"]" * 66, "more than 64 levels of lists and objects"),
        (b"[" * 100_000, "more than 64 levels of lists and objects"),
        (b'"a text, with [ and {"', ""),
    ],
)
def test_excess_names_the_limit_and_the_place(body: bytes, found: str) -> None:
    values = 100 if b"[[[" in body else 5

    assert excess(body, values, by_line=False) == found


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (["[1,2]", "not JSON", ""], ""),
        (["[1,2]", json.dumps([1] * 6)], "more than 5 keys and items, counted up to `5` in line 2"),
        (["", json.dumps("x" * 600_000)], "more than 524,288 bytes in line 2"),
        ([""] * 5_002, "more than 5,000 lines"),
    ],
)
def test_excess_in_lines_names_the_line(lines: list[str], found: str) -> None:
    assert excess("\n".join(lines).encode(), 5, by_line=True) == found
