"""Tool calls that a model wrote into its text, in its own markers or as the whole answer.

A call counts if its tool is offered, its arguments fit the tool's schema, and it isn't quoted: not in code or below an
announcement within prose, and not found in what the model was given to read.
"""

import html
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

import orjson

from starling.core import deferred
from starling.core.json import JsonObject, canonical, storable
from starling.core.llm import ModelToolCall, ToolSpec
from starling.core.model_output.json_document import loads_tolerantly, whole_object, without_fence
from starling.core.model_output.names import aliases, resolve

_NAMES: Final = ("name", "tool", "tool_name", "function", "function_name")
_ARGUMENTS: Final = ("arguments", "parameters", "args", "input", "tool_input", "kwargs")
_BESIDES: Final = frozenset({"type", "id", "index", "thought", "reason", "explanation"})
_SHORTEST_QUOTE = 8  # characters of a call, without its syntax, that are looked for in the messages

type Written = tuple[str, Mapping[str, Any] | None]
"""A tool's name and its arguments, None where they can't be read."""


@dataclass(frozen=True, slots=True)
class OfferedTools:
    """The tools of a request, other names for them, and the texts that the model was given to read."""

    tools: Sequence[ToolSpec]
    other_names: Mapping[str, str] = field(default_factory=dict[str, str])  # plain forms, as `aliases` returns them
    read: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class _Form:
    """How a family of models marks its calls. `read` returns the calls within a block."""

    block: re.Pattern[str]
    read: Callable[[str], Iterable[Written]]


def calls_in_text(text: str, offered: OfferedTools) -> tuple[str, tuple[ModelToolCall, ...]]:
    """Return the text without its tool calls, and these; the text as it is where it holds none, or one that is none."""
    if not offered.tools:
        return text, ()
    read = _squeezed("\n".join(offered.read))
    rest, written = _marked(text, read)
    if not written and not _was_read(text, read):
        rest, written = "", [*_whole_answer(text)]
    names = {**offered.other_names, **aliases({tool.name: () for tool in offered.tools})}
    calls = [_valid(call, index, offered.tools, names) for index, call in enumerate(written)]
    found = tuple(call for call in calls if call is not None)
    return (rest.strip(), found) if found and len(found) == len(calls) else (text, ())


def readable_calls(calls: Sequence[ModelToolCall], tools: Sequence[ToolSpec]) -> tuple[ModelToolCall, ...]:
    """Return the calls of an endpoint; arguments that aren't JSON are read tolerantly, and count if they fit."""
    return tuple(_readable(call, tools) if call.arguments is None else call for call in calls)


def _readable(call: ModelToolCall, tools: Sequence[ToolSpec]) -> ModelToolCall:
    tool = next((tool for tool in tools if tool.name == call.name), None)
    arguments = whole_object(_decoded(call.raw_arguments))
    if tool is None or arguments is None or not _fits(tool.parameters, arguments):
        return call
    kept = cast("JsonObject", storable(arguments))
    return replace(call, arguments=kept, raw_arguments=canonical(kept))


def _decoded(text: str) -> str:
    """Return the text that JSON text encodes a second time, else the text itself."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
    return value if isinstance(value, str) else text


def may_begin_call(text: str) -> int:
    """Return where in a streamed text a tool call could begin, its length if nowhere."""
    return min((at for at in (text.find(sign) for sign in "<[{`") if at >= 0), default=len(text))


def _marked(text: str, read: str) -> tuple[str, list[Written]]:
    """Return the calls in the markers of one form, and the text around them."""
    for form in _FORMS:
        blocks = [
            match
            for match in form.block.finditer(text)
            if not _is_quoted(text[: match.start()]) and not _was_read(match.group(1), read)
        ]
        if calls := [call for match in blocks for call in form.read(match.group(1))]:
            for match in reversed(blocks):
                text = text[: match.start()] + text[match.end() :]
            return text, calls
    return text, []


def _is_quoted(before: str) -> bool:
    """Whether what follows this text stands in code, or within a sentence."""
    line = before.rpartition("\n")[2].rstrip()
    return bool(len(_FENCES.findall(before)) % 2 or (line and line[-1] not in _ENDS_BEFORE_CALL))


def _was_read(written: str, read: str) -> bool:
    """Whether this text stands in what the model was given to read, whatever its escapes and white space."""
    wanted = _squeezed(written)
    return len(wanted) >= _SHORTEST_QUOTE and wanted in read


def _squeezed(text: str) -> str:
    """Return the letters and digits of a text, without escapes of JSON and XML."""
    decoded = _UNICODE_ESCAPE.sub(lambda found: chr(int(found[1], 16)), html.unescape(text))
    return _NO_WORD.sub("", _ESCAPES.sub("", decoded))


def _whole_answer(text: str) -> Iterator[Written]:
    """Yield the calls of an answer that is nothing but JSON that names tools."""
    stripped = without_fence(text)
    if stripped[:1] in ("{", "["):
        yield from _json_calls(stripped)


def _json_calls(text: str) -> Iterator[Written]:
    """Yield the calls of JSON text: an object, several one after another or separated by `;`, or an array."""
    text = text.strip()
    value = loads_tolerantly(f'{{"calls": {text}}}') if text.startswith("[") else None
    if value is not None:
        yield from _calls_of(value["calls"])
        return
    for part in _OBJECT_BORDER.split(text):
        if part.strip():
            value = loads_tolerantly(part.strip()) if part.strip().endswith("}") else None
            yield from _calls_of(value) if value is not None else [("", None)]


def _calls_of(value: object) -> Iterator[Written]:
    """Yield the calls that a JSON value describes; one without a name where it describes something else."""
    if isinstance(value, list):
        for item in cast("list[object]", value):
            yield from _calls_of(item)
        return
    if not isinstance(value, dict):
        yield "", None
        return
    described = cast("dict[str, Any]", value)
    if isinstance(described.get("tool_calls"), list):
        yield from _calls_of(described["tool_calls"])
    elif isinstance(described.get("function"), dict):
        yield from _calls_of(described["function"])
    else:
        yield _named_call(described)


def _named_call(value: Mapping[str, Any]) -> Written:
    names = [key for key in _NAMES if isinstance(value.get(key), str)]
    given = [key for key in _ARGUMENTS if key in value]
    others = value.keys() - {*names, *given} - _BESIDES
    if len(names) != 1 or len(given) > 1 or others:
        return "", None
    arguments = value[given[0]] if given else None
    if isinstance(arguments, str):
        arguments = loads_tolerantly(arguments) if arguments.strip() else {}
    if not given and "type" not in value:
        return "", None  # an object that only has a name
    return value[names[0]], cast("Mapping[str, Any]", arguments or {}) if isinstance(arguments or {}, dict) else None


def _tagged(block: str) -> Iterator[Written]:
    """Yield the calls of a block that has JSON, or tags for each argument."""
    block = _DSML.sub("", block)
    if "<function=" in block:
        yield from (_function(match.group(1), match.group(2)) for match in _FUNCTION.finditer(block))
    elif "<invoke" in block:
        yield from (_with_values(match.group(1), match.group(2), _INVOKE_VALUE) for match in _INVOKE.finditer(block))
    elif "<arg_key>" in block:
        name, key, rest = block.partition("<arg_key>")
        yield _with_values(name, key + rest, _ARG_VALUE)
    else:
        yield from _json_calls(block)


def _function(name: str, content: str) -> Written:
    if "<parameter=" in content:
        return _with_values(name, content, _PARAMETER_VALUE)
    return name.strip(), loads_tolerantly(content.strip()) if content.strip() else {}


def _with_values(name: str, content: str, value: re.Pattern[str]) -> Written:
    found = value.findall(content)
    complete = len(found) == content.count("<parameter") + content.count("<arg_key>")
    return name.strip(), {key.strip(): _Raw(text) for key, text in found} if complete else None


class _Raw(str):
    """The text of an argument, whose type the tool's schema says."""

    __slots__ = ()


def _named_json(pattern: re.Pattern[str]) -> Callable[[str], Iterator[Written]]:
    def read(block: str) -> Iterator[Written]:
        for name, arguments in pattern.findall(block):
            yield name.strip(), loads_tolerantly(arguments.strip())

    return read


def _mistral(block: str) -> Iterator[Written]:
    return _json_calls(block) if block.lstrip().startswith("[") else _named_json(_MISTRAL_CALL)(block)


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
    kept = cast("JsonObject", storable(typed))
    return ModelToolCall(f"call_{index}", tool.name, kept, canonical(kept))


def _typed(value: object, parameters: JsonObject, key: str) -> Any:
    """Return an argument that was written as text in the type of its schema; text where it has none."""
    if not isinstance(value, _Raw):
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
    jsonschema, registry, exceptions = deferred.jsonschema()
    validator = jsonschema.Draft202012Validator(cast("Mapping[str, Any]", schema), registry=registry())
    try:
        return validator.is_valid(arguments)
    except (exceptions.Unresolvable, RecursionError, re.error):
        return False


def _named(name: str) -> re.Pattern[str]:
    """Return the pattern of a block between tags of this name; models forget the end of the last one."""
    return re.compile(rf"<{name}>(.*?)(?:</{name}>|\Z)", re.DOTALL)


_NO_WORD: Final = re.compile(r"\W+")
_UNICODE_ESCAPE: Final = re.compile(r"\\+u([0-9a-fA-F]{4})")
_ESCAPES: Final = re.compile(r"\\[nrt\"\\/]")
_FENCES: Final = re.compile(r"^[ \t]*(?:```|~~~)", re.MULTILINE)
_OBJECT_BORDER: Final = re.compile(r"(?<=\})\s*+;?\s*+(?=\{)")
_ENDS_BEFORE_CALL: Final = ".!?…。！？>:]"
_DSML: Final = re.compile(r"[｜|‖]+\s*DSML\s*[｜|‖]+")
_FUNCTION: Final = re.compile(r"<function=([^>\s]+)>(.*?)(?:</function>|\Z)", re.DOTALL)
_PARAMETER_VALUE: Final = re.compile(r"<parameter=([^>]+)>(.*?)</parameter>", re.DOTALL)
_INVOKE: Final = re.compile(r"<invoke name=\"([^\"]+)\">(.*?)(?:</invoke>|\Z)", re.DOTALL)
_INVOKE_VALUE: Final = re.compile(r"<parameter name=\"([^\"]+)\"[^>]*>(.*?)</parameter>", re.DOTALL)
_ARG_VALUE: Final = re.compile(r"<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>", re.DOTALL)
_MISTRAL_CALL: Final = re.compile(
    r"(?<![\w.\-])([\w.\-]++)\s*+(?:\[CALL_ID\]\w+)?(?:\[ARGS\])?\s*(\{.*?\})\s*(?=\[TOOL_CALLS\]|\Z)", re.DOTALL
)
_DEEPSEEK_CALL: Final = re.compile(
    r"<｜tool▁call▁begin｜>(?:function<｜tool▁sep｜>)?([\w.\-/]+)(?:\s*```json\s*|<｜tool▁sep｜>)(.*?)(?:```\s*)?<｜tool▁call▁end｜>",
    re.DOTALL,
)
_KIMI_CALL: Final = re.compile(
    r"<\|tool_call_begin\|>\s*([\w.\-]+?)(?::\d+)?\s*<\|tool_call_argument_begin\|>(.*?)<\|tool_call_end\|>", re.DOTALL
)
_HARMONY_CALL: Final = re.compile(r"to=([\w.\-]+)[^{]*?<\|message\|>(.*?)(?:<\|call\|>|\Z)", re.DOTALL)
_FORMS: Final = (
    _Form(_named("tool_call"), _tagged),  # Qwen, Hermes, GLM
    _Form(
        re.compile(r"(<function=.*?(?:</function>|\Z))(?:\s*</tool_call>)?", re.DOTALL), _tagged
    ),  # Qwen3-Coder, Llama
    _Form(re.compile(r"<\|python_tag\|>(.*?)(?:<\|eom_id\|>|<\|eot_id\|>|\Z)", re.DOTALL), _json_calls),  # Llama 3
    _Form(re.compile(r"<\|python_start\|>(.*?)(?:<\|python_end\|>|\Z)", re.DOTALL), _json_calls),  # Llama 4
    _Form(re.compile(r"\[TOOL_CALLS\]\s*(.*?)(?:</s>|\Z)", re.DOTALL), _mistral),
    _Form(
        re.compile(r"<｜tool▁calls▁begin｜>(.*?)(?:<｜tool▁calls▁end｜>|\Z)", re.DOTALL), _named_json(_DEEPSEEK_CALL)
    ),
    _Form(
        re.compile(
            r"<[｜|‖]+DSML[｜|‖]+(?:function_calls|tool_calls)>(.*?)"
            r"(?:</[｜|‖]+DSML[｜|‖]+(?:function_calls|tool_calls)>|\Z)",
            re.DOTALL,
        ),
        _tagged,
    ),  # DeepSeek V3.2
    _Form(
        re.compile(r"<\|tool_calls_section_begin\|>(.*?)(?:<\|tool_calls_section_end\|>|\Z)", re.DOTALL),
        _named_json(_KIMI_CALL),
    ),
    _Form(_named("minimax:tool_call"), _tagged),
    _Form(
        re.compile(r"(?:<\|start\|>assistant)?(<\|channel\|>commentary to=.*?(?:<\|call\|>|\Z))", re.DOTALL),
        _named_json(_HARMONY_CALL),
    ),
    _Form(_named("function_call"), _tagged),
    _Form(_named("tools"), _tagged),  # Qwen2.5-Coder
    _Form(re.compile(r"<\|tool_call\|>\s*(.*?)(?:<\|/tool_call\|>|\Z)", re.DOTALL), _json_calls),  # Granite, Phi
)
