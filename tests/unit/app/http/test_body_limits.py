"""What there may be in a body."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starling.app.http.body_limits import excess

_TOO_MANY = "more than 5 keys and items"
_TOO_DEEP = "more than 64 levels of lists and objects"
_DOCUMENTS = st.recursive(
    st.none() | st.integers() | st.text(st.sampled_from('a"\\,[]{}:\n')),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.sampled_from('a"\\,[{')), inner),
)


def _values(document: Any) -> int:
    parts: Sequence[Any] = ()
    if isinstance(document, dict | list):
        parts = [*(document.values() if isinstance(document, dict) else document)]
    return len(parts) + sum(map(_values, parts))


@pytest.mark.parametrize(
    ("body", "values", "found"),
    [
        (b'{"a":[1,2],"b":{"c":3}}', 5, ""),
        (b'{"a":[1,2,3],"b":{"c":3}}', 5, _TOO_MANY),
        (b"[[1,2],[3,4]]", 5, _TOO_MANY),
        (b"[ {}, [ ], {}, [], {} ]", 5, ""),
        (b'["a","b","c","d","e","f"]', 5, _TOO_MANY),
        (b'{"a":1,"a":1,"a":1,"a":1,"a":1,"a":1}', 5, _TOO_MANY),
        (b"[" * 64 + b"]" * 64, 100, ""),
        (b"[" * 65 + b"]" * 65, 100, _TOO_DEEP),
        (b"[" * 65, 100, _TOO_DEEP),
        (b"[" * 100_000, 5, _TOO_MANY),
        (b"]" * 100_000, 5, ""),
        (b'"a text, with [ and {, and \\" and [,,,,,,,,,"', 5, ""),
        (b'["\\\\",1,2,3,4,5,6]', 5, _TOO_MANY),
    ],
)
def test_excess_names_the_limit(body: bytes, values: int, found: str) -> None:
    assert excess(body, values, by_line=False) == found


@given(_DOCUMENTS, st.sampled_from([None, 2]))
def test_excess_counts_the_keys_and_items_of_any_document(document: Any, indent: int | None) -> None:
    body, values = json.dumps(document, indent=indent).encode(), _values(document)

    assert not excess(body, values, by_line=False)
    assert values == 0 or excess(body, values - 1, by_line=False)


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (["[1,2]", "not JSON", ""], ""),
        (["[1,2]", json.dumps([1] * 6)], f"{_TOO_MANY} in line 2"),
        (["", json.dumps("x" * 600_000)], "more than 524,288 bytes in line 2"),
        ([""] * 5_002, "more than 5,000 lines"),
    ],
)
def test_excess_in_lines_names_the_line(lines: list[str], found: str) -> None:
    assert excess("\n".join(lines).encode(), 5, by_line=True) == found
