"""Rosters made of an epoch."""

from typing import Any

from brain.registry.service import without_titles


def test_tool_schema_loses_titles_and_keeps_members_called_title() -> None:
    schema = {
        "title": "searchArguments",
        "properties": {
            "title": {"type": "string", "title": "Title"},
            "books": {"items": {"anyOf": [{"title": "Book", "type": "object"}, {"type": "null"}]}},
        },
        "$defs": {"title": {"title": "T", "enum": [{"title": "kept"}]}},
        "required": ["title"],
    }

    assert without_titles(schema) == {
        "properties": {
            "title": {"type": "string"},
            "books": {"items": {"anyOf": [{"type": "object"}, {"type": "null"}]}},
        },
        "$defs": {"title": {"enum": [{"title": "kept"}]}},
        "required": ["title"],
    }


def test_tool_schema_that_is_nested_too_deeply_is_no_error() -> None:
    schema: dict[str, Any] = {"title": "Leaf"}
    for _ in range(5_000):
        schema = {"items": schema}

    assert without_titles(schema).keys() == {"items"}
