"""Arguments of native tool calls that aren't JSON: read where nothing is lost, else refused."""

import time
from typing import Any

import orjson
import pytest

from starling.core.llm import ModelToolCall, ToolSpec
from starling.core.model_output.text_tool_calls import OfferedTools, calls_in_text, readable_calls
from starling.core.model_output.tool_arguments import what_is_wrong
from starling.infra.llm.chat_completions import tool_call

_TEXT = {"type": "string"}
ANY = ToolSpec("write", "", {"type": "object"})
WRITE = ToolSpec("write", "", {"type": "object", "properties": {"path": _TEXT, "content": _TEXT}})


def arguments_of(raw: str) -> Any:
    return readable_calls([ModelToolCall("1", "write", None, raw)], [WRITE])[0].arguments


@pytest.mark.parametrize(
    "raw",
    [
        '{"path":"a","content":"fn main() { println!("{}", x); }"}',
        '{"path":"a.py","content":"def f(): return {1}',
    ],
    ids=["quote before a brace", "cut off after a brace"],
)
def test_arguments_that_a_repair_would_shorten_are_refused(raw: str) -> None:
    assert arguments_of(raw) is None


@pytest.mark.parametrize(
    ("raw", "content"),
    [
        ('{"path":"a","content":"say "hello" to all",}', 'say "hello" to all'),
        ('{"path":"a","content":"print("a", "b") and print("c")"}', 'print("a", "b") and print("c")'),
        ('{"path":"a","content":"<a href="x", b="y">"}', '<a href="x", b="y">'),
        ("{'path': 'a', 'content': 'it\\'s'}", "it's"),
        ('{"path":"a","content":"Gr\\u00fc\\u00dfe",}', "Grüße"),
    ],
)
def test_arguments_that_a_repair_keeps_whole_are_read(raw: str, content: str) -> None:
    assert arguments_of(raw)["content"] == content


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        (r'"half a pair \ud83d"', r"half of a surrogate pair in the text 'half a pair \ud83d'"),
        (r'"a\u0000"', r"the character NUL in the text 'a\x00'"),
    ],
)
@pytest.mark.parametrize("end", ["}", ",}"], ids=["JSON", "not quite JSON"])
def test_arguments_that_cannot_be_sent_unchanged_are_refused_with_the_reason(value: str, fault: str, end: str) -> None:
    raw = f'{{"content": {value}{end}'
    native = tool_call("local:small", "1", "write", raw)
    marked = f'<tool_call>{{"name": "write", "arguments": {{"content": {value}}}}}</tool_call>'
    _, in_text = calls_in_text(marked, OfferedTools([ANY]))

    calls = readable_calls([native, *in_text], [ANY])

    assert [call.arguments for call in calls] == [None, None]
    assert {what_is_wrong(call.raw_arguments) for call in calls} == {
        f"The arguments can't be sent unchanged: they contain {fault}."
    }


def test_integer_that_no_double_holds_is_refused() -> None:
    call = tool_call("local:small", "1", "write", f'{{"content": {2**64 + 1}}}')

    assert readable_calls([call], [ANY])[0].arguments is None
    assert f"the number {2**64 + 1}, which a double doesn't hold" in what_is_wrong(call.raw_arguments)


@pytest.mark.parametrize("number", [2**63 - 1, 2**63, -(2**63), 2**70])
def test_integers_that_64_bits_or_a_double_hold_are_kept(number: int) -> None:
    assert tool_call("local:small", "1", "write", f'{{"content": {number}}}').arguments == {"content": number}


@pytest.mark.parametrize("levels", [101, 254, 400, 1_023, 5_000])
def test_arguments_nested_too_deeply_are_refused_in_every_form(levels: int) -> None:
    raw = '{"path":' * levels + "1" + "}" * levels
    ends = [raw, f"{raw[:-1]},}}", orjson.dumps(raw).decode()]
    if levels < 1_000:
        ends.append(orjson.loads(raw))

    native = [tool_call("local:small", "1", "write", arguments) for arguments in ends]
    _, in_text = calls_in_text(f'<tool_call>{{"name": "write", "arguments": {raw}}}</tool_call>', OfferedTools([ANY]))

    assert [call.arguments for call in readable_calls(native, [ANY])] == [None] * len(ends)
    assert in_text == ()
    assert what_is_wrong(native[0].raw_arguments) == "The arguments are nested more than 100 levels deep."


def test_arguments_with_many_brackets_that_are_not_nested_are_read() -> None:
    arguments: dict[str, Any] = {"path": "[" * 500, "content": [[]] * 200}

    assert tool_call("local:small", "1", "write", orjson.dumps(arguments).decode()).arguments == arguments


@pytest.mark.parametrize("read", ["Gr\\u00fc\\u00dfe", "Grüße", "Gr&uuml;&szlig;e"])
def test_call_quoted_from_a_result_is_none_whatever_its_escapes(read: str) -> None:
    call = '<tool_call>{"name":"write","arguments":{"content":"%s"}}</tool_call>'
    result = '{"body":"' + call.replace('"', '\\"') % read + '"}'

    _, calls = calls_in_text(f"The mail says:\n{call % 'Grüße'}", OfferedTools([WRITE], read=[result]))

    assert calls == ()


def test_long_word_after_a_marker_is_read_in_no_time() -> None:
    """It took seconds. The limit is generous: this is no measurement."""
    begun = time.process_time()

    calls_in_text('[TOOL_CALLS]write{"content": "' + "A" * 50_000, OfferedTools([WRITE]))

    assert time.process_time() - begun < 2
