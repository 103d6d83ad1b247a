"""Tool calls that a model wrote into its text, in its own markers or as the whole answer.

A call counts if its tool is offered, its arguments fit the tool's schema, and it isn't quoted: not in code or below an
announcement within prose, and not found in what the model was given to read.
"""

import html
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Self, cast

import orjson

from starling.core.json import JsonObject, canonical, unsendable
from starling.core.json_schemas.compiled import UncheckableError, compiled
from starling.core.llm import ModelReply, ModelRequest, ModelToolCall, ToolSpec
from starling.core.model_output.call_forms import BARE, FORMS, Form, RawText, Written, json_or_python
from starling.core.model_output.json_document import whole_object, without_fence
from starling.core.model_output.names import aliases, resolve
from starling.core.model_output.tool_arguments import is_too_deep, loads_arguments, sending_fault

_SHORTEST_QUOTE = 8  # characters of a call; a shorter one is looked for in the messages with its syntax


@dataclass(frozen=True)
class OfferedTools:
    """The tools of a request, other names for them, and the texts that the model was given to read."""

    tools: Sequence[ToolSpec]
    other_names: Mapping[str, str] = field(default_factory=dict[str, str])  # plain forms, as `aliases` returns them
    read: Sequence[str] = ()

    @classmethod
    def of(cls, request: ModelRequest) -> Self:
        """Return the tools of a request; their descriptions, which servers wrote, were read as well."""
        read = [message.content for message in request.messages if message.role != "assistant"]
        return cls(request.tools, request.tool_names, [*read, *(tool.description for tool in request.tools)])

    @property
    def names(self) -> Mapping[str, str]:
        """The tool of each name that means one, in plain form."""
        return {**self.other_names, **aliases({tool.name: () for tool in self.tools})}

    @cached_property
    def _read_words(self) -> str:
        return _squeezed("\n".join(self.read))

    def have_read(self, written: str) -> bool:
        """Whether the model was given this text to read, whatever its escapes and white space."""
        if len(wanted := _squeezed(written)) >= _SHORTEST_QUOTE:
            return wanted in self._read_words
        return any(_compact(written) in _compact(text) for text in self.read)


def calls_in_text(text: str, offered: OfferedTools) -> tuple[str, tuple[ModelToolCall, ...]]:
    """Return the text without its tool calls, and these; the text as it is where it holds none, or one that is none.

    Results that the model made up behind its calls are left out.
    """
    if not offered.tools:
        return text, ()
    rest, written, _ = _written(text, offered)
    calls = [_valid(call, index, offered.tools, offered.names) for index, call in enumerate(written)]
    found = tuple(call for call in calls if call is not None)
    if not found or len(found) < len(calls):
        return text, ()
    return _INVENTED_RESULT.split(rest, maxsplit=1)[0].strip(), found


def has_unread_call(reply: ModelReply, request: ModelRequest) -> bool:
    """Whether the text of an answer without calls has one: in a marker with no other use, or of a tool on offer."""
    offered = OfferedTools.of(request)
    _, written, is_marked = _written(reply.content, offered)
    return not reply.tool_calls and any(is_marked or resolve(name, offered.names) for name, _ in written)


def _written(text: str, offered: OfferedTools) -> tuple[str, list[Written], bool]:
    """Return the text around the calls, these, and whether their marker has no other use."""
    rest, written, is_marked = _marked(text, offered)
    if written or offered.have_read(text):
        return rest, written, is_marked
    stripped = without_fence(text)
    if stripped.startswith(("{", "[")):
        return "", [*json_or_python(stripped)], False
    rest, written, _ = _marked(stripped, offered, (BARE,))
    return (rest, written, False) if written and resolve(written[0][0], offered.names) else (text, [], False)


def readable_calls(calls: Sequence[ModelToolCall], tools: Sequence[ToolSpec]) -> tuple[ModelToolCall, ...]:
    """Return the calls of an endpoint; arguments that aren't JSON are read tolerantly, and count if they fit."""
    return tuple(_readable(call, tools) if call.arguments is None else call for call in calls)


def _readable(call: ModelToolCall, tools: Sequence[ToolSpec]) -> ModelToolCall:
    tool = next((tool for tool in tools if tool.name == call.name), None)
    written = _decoded(call.raw_arguments)
    arguments = whole_object(written)
    if tool is None or arguments is None or sending_fault(written) or not _fits(tool.parameters, arguments):
        return call
    raw = canonical(arguments)
    return call if is_too_deep(raw) else replace(call, arguments=arguments, raw_arguments=raw)


def _decoded(text: str) -> str:
    """Return the text that JSON text encodes a second time, else the text itself."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
    return value if isinstance(value, str) else text


def _marked(text: str, offered: OfferedTools, forms: Sequence[Form] = FORMS) -> tuple[str, list[Written], bool]:
    """Return the text around the calls in the markers of one form, these, and whether the form isn't generic."""
    for form in forms:
        blocks = [match for match in form.block.finditer(text) if not _is_quotation(form, match, offered)]
        if blocks and _is_announced_example(text, blocks):
            return text, [], False
        if calls := [call for match in blocks for call in form.read(match.group(1))]:
            for match in reversed(blocks):
                text = text[: match.start()] + text[match.end() :]
            return text, calls, not form.generic
    return text, [], False


def _is_quotation(form: Form, block: re.Match[str], offered: OfferedTools) -> bool:
    before, inner = block.string[: block.start()], block.group(1)
    if _is_quoted(before) or (form.fenced and _is_announced(before)):
        return True
    with_marker = block.string[block.start() : block.end(1)]
    return offered.have_read(inner if len(_squeezed(inner)) >= _SHORTEST_QUOTE else with_marker)


def _is_quoted(before: str) -> bool:
    """Whether what follows this text stands in code or a quotation, or within a sentence."""
    line = before.rpartition("\n")[2].strip()
    in_sentence = line and (line[-1] not in _ENDS_BEFORE_CALL or not line.strip("> "))
    return bool(len(_FENCES.findall(before)) % 2 or in_sentence)


def _is_announced(before: str) -> bool:
    return before.rstrip().endswith(_ANNOUNCEMENTS)


def _is_announced_example(text: str, blocks: Sequence[re.Match[str]]) -> bool:
    """Whether these blocks are below a line that ends with a colon, and above further words."""
    ends = [block.start() for block in blocks[1:]] + [len(text)]
    between = "".join(text[block.end() : end] for block, end in zip(blocks, ends, strict=True))
    words = _SPECIAL.sub("", _INVENTED_RESULT.split(between, maxsplit=1)[0])
    return _is_announced(text[: blocks[0].start()]) and bool(_WORD.search(words))


def _squeezed(text: str) -> str:
    """Return the letters and digits of a text, without escapes of JSON and XML."""
    return _NO_WORD.sub("", _ESCAPES.sub("", _unescaped(text)))


def _compact(text: str) -> str:
    """Return a text without white space and escapes of JSON and XML."""
    return "".join(_ESCAPES.sub("", _unescaped(text)).split())


def _unescaped(text: str) -> str:
    return _UNICODE_ESCAPE.sub(lambda found: chr(int(found[1], 16)), html.unescape(text))


def _valid(written: Written, index: int, tools: Sequence[ToolSpec], names: Mapping[str, str]) -> ModelToolCall | None:
    """Return the call if its tool is offered and its arguments fit."""
    name, arguments = written
    found = resolve(name, names)
    tool = next((tool for tool in tools if tool.name == found), None)
    if tool is None or arguments is None:
        return None
    typed = {key: _typed(value, tool.parameters, key) for key, value in arguments.items()}
    if not _fits(tool.parameters, typed):
        return None
    raw = json.dumps(typed) if unsendable(typed) else canonical(typed)  # the message about it is made of that
    return None if is_too_deep(raw) else ModelToolCall(f"call_{index}", tool.name, loads_arguments(raw), raw)


def _typed(value: object, parameters: JsonObject, key: str) -> Any:
    """Return an argument that was written as text in the type of its schema; text where it has none."""
    if not isinstance(value, RawText):
        return value
    text = str(value).removeprefix("\n").removesuffix("\n")
    properties = cast("Mapping[str, Any]", parameters.get("properties") or {})
    schema = properties.get(key)
    kind = cast("Mapping[str, Any]", schema).get("type") if isinstance(schema, dict) else None
    if kind is None or "string" in kind:  # one type or several
        return text
    try:
        return orjson.loads(text.strip().lower() if kind == "boolean" else text)
    except orjson.JSONDecodeError:
        return text


def _fits(schema: JsonObject, arguments: Mapping[str, Any]) -> bool:
    try:
        return compiled(schema).errors(arguments) == []
    except UncheckableError:
        return False


_WORD: Final = re.compile(r"\w")
_SPECIAL: Final = re.compile(r"<[^<>\s]*>")
_INVENTED_RESULT: Final = re.compile(r"<\|?(?:tool_response|tool_result|tool_output)|```tool_output")
_NO_WORD: Final = re.compile(r"\W+")
_UNICODE_ESCAPE: Final = re.compile(r"\\+u([0-9a-fA-F]{4})")
_ESCAPES: Final = re.compile(r"\\[nrt\"\\/]")
_FENCES: Final = re.compile(r"^[ \t]*(?:```|~~~)", re.MULTILINE)
_ENDS_BEFORE_CALL: Final = ".!?…。！？>:]"
_ANNOUNCEMENTS: Final = (":", ":**", "：")
