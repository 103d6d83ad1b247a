"""Members that are added to JSON text: the rest of the text stays as it is."""

import json
from typing import Any

import pytest

from mcp_gateway.configuration.json_comments import without_comments
from mcp_gateway.configuration.json_insertion import with_members

_READ = {"effect": "read"}


@pytest.mark.parametrize(
    ("text", "wanted", "written"),
    [
        ("{}", {"a": 1}, '{"a": 1}'),
        ('{"a": {}}', {"a": {"b": _READ}}, '{"a": {"b": {"effect": "read"}}}'),
        ('{"a": 1}', {"b": 2, "c": 3}, '{"a": 1, "b": 2, "c": 3}'),
        ('{"a": 1}', {"a": 1}, '{"a": 1}'),
        ('{\n  "a": 1\n}\n', {"b": _READ}, '{\n  "a": 1,\n  "b": {\n    "effect": "read"\n  }\n}\n'),
        ('{\n\t"a": {\n\t}\n}', {"a": {"b": 2}}, '{\n\t"a": {\n\t\t"b": 2\n\t}\n}'),
        ('{\r\n    "a": 1\r\n}', {"b": 2}, '{\r\n    "a": 1,\r\n    "b": 2\r\n}'),
        ('{\n  "a": 1, // one\n}', {"b": 2}, '{\n  "a": 1, // one\n  "b": 2\n}'),
        ('{\n  "a": 1 // one, or more\n}', {"b": 2}, '{\n  "a": 1, // one, or more\n  "b": 2\n}'),
        ('{"a": 1 /* one */}', {"b": 2}, '{"a": 1, /* one */ "b": 2}'),
        (
            '{\n  "a": 1,\n  // "b": {"c": 1},\n  "d": "}",\n}',
            {"b": 2},
            '{\n  "a": 1,\n  // "b": {"c": 1},\n  "d": "}",\n  "b": 2\n}',
        ),
        (
            '// w\n{\n  "é": {"x": {"t": {"approval": "always"}}}, //\n}',
            {"é": {"x": {"t": _READ, "u": _READ}}},
            '// w\n{\n  "é": {"x": {"t": {"approval": "always", "effect": "read"}, "u": {"effect": "read"}}}, //\n}',
        ),
    ],
)
def test_members_are_added_and_comments_and_layout_stay(text: str, wanted: dict[str, Any], written: str) -> None:
    assert with_members(text, wanted) == written
    json.loads(without_comments(written))


@pytest.mark.parametrize(("text", "wanted"), [('{"a": null}', {"a": _READ}), ('{"a": 1}', {"a": 2}), ("[]", {"a": 1})])
def test_another_value_is_not_replaced(text: str, wanted: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"another value|does not contain an object"):
        with_members(text, wanted)
