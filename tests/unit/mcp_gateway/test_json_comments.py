"""Comments and trailing commas in `mcp.json`."""

import json

import pytest

from mcp_gateway.configuration.servers import without_comments


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1} // the end', {"a": 1}),
        ('{ // first\n "a": 1, /* two\nlines */ "b": 2}', {"a": 1, "b": 2}),
        ('{"a": [1, 2, ], }', {"a": [1, 2]}),
        ('{"a": 1, // "b": 2\n}', {"a": 1}),
        ('{"url": "http://host/*/x//y", "c": ",}"}', {"url": "http://host/*/x//y", "c": ",}"}),
        (r'{"a": "say \"// no\" \\"}', {"a": 'say "// no" \\'}),
    ],
)
def test_comments_and_trailing_commas_are_left_out(text: str, value: object) -> None:
    assert json.loads(without_comments(text)) == value


@pytest.mark.parametrize("text", ['{"a": 1 /* never closed', '{"a": [1,,]}', '{"a": "line\nbreak // "}'])
def test_what_is_no_json_stays_none(text: str) -> None:
    with pytest.raises(json.JSONDecodeError):
        json.loads(without_comments(text))


def test_every_character_keeps_its_place() -> None:
    text = '{ // first\n  "a": /* x\n y */ 1,\n}'

    assert [len(line) for line in without_comments(text).split("\n")] == [len(line) for line in text.split("\n")]
