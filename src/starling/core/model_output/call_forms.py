"""How families of models write tool calls into their text: the markers, and the syntax within.

A block that has anything else beside calls has a call that can't be read.
"""

import ast
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

import orjson

from starling.core.model_output.json_document import loads_object, whole_object, without_fence

_NAMES: Final = ("name", "tool", "tool_name", "function", "function_name", "action")
_ARGUMENTS: Final = ("arguments", "parameters", "args", "input", "tool_input", "action_input", "kwargs")
_BESIDES: Final = frozenset({"type", "id", "index", "tool_call_id", "thought", "reason", "explanation"})

type Written = tuple[str, Mapping[str, Any] | None]
"""A tool's name and its arguments, None where they can't be read."""


class RawText(str):
    """The text of an argument, whose type the tool's schema says."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Form:
    """How a family of models marks its calls. `read` returns the calls within a block.

    `fenced`: the marker is a code fence, which is the model's own only at the end of the answer. `generic`: text that
    is no call may have the marker, too.
    """

    block: re.Pattern[str]
    read: Callable[[str], Iterable[Written]]
    fenced: bool = False
    generic: bool = False


def json_calls(text: str) -> Iterator[Written]:
    """Yield the calls of JSON text: an object, several one after another or separated by `;`, or an array."""
    text = text.strip()
    value = whole_object(f'{{"calls": {text}}}') if text.startswith("[") else None
    if value is not None:
        yield from _calls_of(value["calls"])
        return
    for part in _OBJECT_BORDER.split(text):
        if part.strip():
            value = whole_object(part.strip()) if part.strip().endswith("}") else None
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
        arguments = whole_object(arguments) if arguments.strip() else {}
    if not given and "type" not in value:
        return "", None  # an object that only has a name
    return value[names[0]], cast("Mapping[str, Any]", arguments or {}) if isinstance(arguments or {}, dict) else None


def _tagged(block: str) -> Iterator[Written]:
    """Yield the calls of a block that has JSON, or tags for each argument."""
    block = _DSML.sub("", block)
    if "<function=" in block:
        yield from _each(_FUNCTION, block, lambda name, content: _with_values(name, content, _PARAMETER_VALUE))
    elif "<invoke" in block:
        yield from _each(_INVOKE, block, lambda name, content: _with_values(name, content, _INVOKE_VALUE))
    elif "<arg_key>" in block:
        name, key, rest = block.partition("<arg_key>")
        yield _with_values(name, key + rest, _ARG_VALUE)
    else:
        yield from json_calls(block)


def _each(call: re.Pattern[str], block: str, read: Callable[[str, str], Written]) -> Iterator[Written]:
    """Yield the calls that a pattern finds, and one that can't be read if there is more in the block."""
    for match in call.finditer(block):
        yield read(match.group(1).strip(), match.group(2).strip())
    if call.sub("", block).strip():
        yield "", None


def _with_values(name: str, content: str, value: re.Pattern[str]) -> Written:
    """Return a call whose arguments are tags, or JSON."""
    found = value.findall(content)
    if content and not found:
        return name, whole_object(content)
    complete = not value.sub("", content).strip()  # else a value has the end of its tag in it, or none
    return name.strip(), {key.strip(): RawText(text) for key, text in found} if complete else None


def _named_json(pattern: re.Pattern[str]) -> Callable[[str], Iterator[Written]]:
    return lambda block: _each(pattern, block, lambda name, arguments: (name, whole_object(arguments)))


def _gemma(block: str) -> Iterator[Written]:
    """Yield the call of Gemma: its arguments are an object with keys without quotes, or those of Python."""
    found = _GEMMA_CALL.fullmatch(block.strip())
    if found is None:
        yield "", None
    elif found.group(2).startswith("("):
        yield from python_calls(f"{found.group(1)}{found.group(2)}")
    else:
        yield found.group(1), whole_object(_GEMMA_TOKEN.sub(_json_token, found.group(2)))


def _json_token(token: re.Match[str]) -> str:
    """Return a string or key of Gemma as JSON has it."""
    text, before, key = token.group("text"), token.group("before"), token.group("key")
    if key is not None:
        return f'{before}"{key}":'
    return token.group() if text is None else json.dumps(text, ensure_ascii=False)


def _fenced(block: str) -> Iterator[Written]:
    """Yield the calls of one code fence or several."""
    for part in _CALL_FENCE.split(block):
        yield from json_or_python(part)


def python_calls(text: str) -> list[Written]:
    """Return the calls of Python code that consists of calls with literal keyword arguments, in lists or not."""
    try:
        values = [_expression(statement) for statement in ast.parse(text.strip()).body]
        return [
            _python_call(item) for value in values for item in (value.elts if isinstance(value, ast.List) else [value])
        ]
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return [("", None)]


def _python_call(value: ast.expr) -> Written:
    if not isinstance(value, ast.Call):
        raise TypeError(type(value))
    name, names = ast.unparse(value.func), [keyword.arg for keyword in value.keywords]
    if name == "print" and len(value.args) == 1 and not names:
        return _python_call(value.args[0])
    name = name.removeprefix("default_api.")
    if value.args or None in names or len(set(names)) < len(names):
        return name, None
    arguments = {keyword.arg: _literal(keyword.value) for keyword in value.keywords}
    return name, loads_object(orjson.dumps(arguments))


def _expression(statement: ast.stmt) -> ast.expr:
    if not isinstance(statement, ast.Expr):
        raise TypeError(type(statement))
    return statement.value


def _literal(value: ast.expr) -> Any:
    if isinstance(value, ast.Name) and value.id in _JSON_WORDS:
        return _JSON_WORDS[value.id]
    return ast.literal_eval(value)


def bare_calls(text: str) -> list[Written]:
    """Return the calls of a text that begins with a name and its arguments, in Python or JSON; none if it goes on."""
    text = text.strip()
    name, sign, _ = re.split(r"\s*([({])", text, maxsplit=1)
    if sign == "{":
        return [(name, whole_object(text.removeprefix(name)))]
    calls = python_calls(text)
    return calls if calls[0][0] else [(name, None)] if text.endswith(")") or ")" not in text else []


def _react(block: str) -> Iterator[Written]:
    """Yield the calls of ReAct, whose observations the model makes up."""
    for part in _REACT_ACTION.split(_REACT_NEXT.split(block, maxsplit=1)[0]):
        found = _REACT_CALL.fullmatch(part.strip())
        if found:
            yield found[1], whole_object(found[2]) if found[2] else {}
        else:
            yield from json_or_python(without_fence(part))


def _mistral(block: str) -> Iterator[Written]:
    return json_calls(block) if block.lstrip().startswith("[") else _named_json(_MISTRAL_CALL)(block)


def _named(name: str) -> re.Pattern[str]:
    """Return the pattern of a block between tags of this name; models forget the end of the last one.

    The strings of JSON may have the end tag in them.
    """
    in_json = rf'\s*+[\[{{](?:[^"<]|"(?:[^"\\]|\\.)*+"|<(?!/{name}>))*+(?=</{name}>)'
    return re.compile(rf"<{name}>({in_json}|.*?)(?:</{name}>|\Z)", re.DOTALL)


def _between(begin: str, end: str) -> re.Pattern[str]:
    """Return the pattern of a block between these patterns, the second of which a model may forget."""
    return re.compile(rf"{begin}(.*?)(?:{end}|\Z)", re.DOTALL)


def json_or_python(block: str) -> Iterable[Written]:
    """Return the calls of JSON text or of Python code."""
    return json_calls(block) if block.lstrip("[ \n").startswith("{") else python_calls(block)


_OBJECT_BORDER: Final = re.compile(r"(?<=\})\s*+;?\s*+(?=\{)")
_JSON_WORDS: Final = {"true": True, "false": False, "null": None}
_REACT_ACTION: Final = re.compile(r"^[ \t]*\**Action:\**", re.MULTILINE)
_REACT_NEXT: Final = re.compile(r"^[ \t]*\**(?:Observation|Thought|Final Answer):", re.MULTILINE)
_REACT_CALL: Final = re.compile(r"[`*]*([\w.\-/]+)[`*]*\s*\n\s*\**Action Input:\**\s*(.*)", re.DOTALL)
_GEMMA_CALL: Final = re.compile(r"call:\s*([\w.\-]+)\s*(\{.*\}|\(.*\))", re.DOTALL)
_GEMMA_TOKEN: Final = re.compile(
    r'(?s)(?P<quote><\|"\|>|<escape>)(?P<text>.*?)(?P=quote)|"(?:[^"\\]|\\.)*+(?:"|\Z)'
    r"|(?P<before>[{,]\s*+)(?P<key>[A-Za-z_][\w.\-]*+)\s*+:"
)
_CALL_FENCE: Final = re.compile(r"^[ \t]*```(?:tool_code|tool_call)?[ \t]*$", re.MULTILINE)
_DSML_CALLS: Final = r"[｜|‖]+DSML[｜|‖]+(?:function_calls|tool_calls)"
_FUNCTOOLS: Final = re.compile(r'(?ms)^[ \t]*functools\s*(\[(?:[^"]|"(?:[^"\\]|\\.)*+")*?\])[ \t]*$(?!\s*[,}\]])')
_DSML: Final = re.compile(r"[｜|‖]+\s*DSML\s*[｜|‖]+")
_FUNCTION: Final = re.compile(r"<function=([^>\s]+)>(.*?)(?:</function>|\Z)", re.DOTALL)
_PARAMETER_VALUE: Final = re.compile(r"<parameter=([^>]+)>(.*?)</parameter>", re.DOTALL)
_INVOKE: Final = re.compile(r"<invoke name=\"([^\"]+)\">(.*?)(?:</invoke>|\Z)", re.DOTALL)
_INVOKE_VALUE: Final = re.compile(r"<parameter name=\"([^\"]+)\"[^>]*>(.*?)</parameter>", re.DOTALL)
_ARG_VALUE: Final = re.compile(r"<arg_key>([^<]*+)</arg_key>\s*<arg_value>(.*?)</arg_value>", re.DOTALL)
_MISTRAL_CALL: Final = re.compile(
    r"(?s)(?:\[TOOL_CALLS\]\s*+)?(?<![\w.\-])([\w.\-]++)\s*+(?:\[CALL_ID\]\w+)?(?:\[ARGS\])?\s*(\{.*?\})\s*(?=\[TOOL_CALLS\]|\Z)"
)
_DEEPSEEK_CALL: Final = re.compile(
    r"(?s)<｜tool▁call▁begin｜>(?:function<｜tool▁sep｜>)?([\w.\-/]+)(?:\s*```json\s*|<｜tool▁sep｜>)(.*?)(?:```\s*)?<｜tool▁call▁end｜>"
)
_KIMI_CALL: Final = re.compile(
    r"(?s)<\|tool_call_begin\|>\s*([\w.\-]+?)(?::\d+)?\s*<\|tool_call_argument_begin\|>(.*?)<\|tool_call_end\|>"
)
_HARMONY_CALL: Final = re.compile(
    r"(?s)(?:<\|start\|>assistant)?\s*(?:<\|channel\|>(?:commentary|analysis)\s+)?to=([\w.\-]+)[^{]*?<\|message\|>(.*?)(?:<\|call\|>|\Z)"
)
_HARMONY_BLOCK: Final = re.compile(
    r"(?s)((?:<\|start\|>assistant\s*(?:<\|channel\|>(?:commentary|analysis)\s+)?|<\|channel\|>(?:commentary|analysis)\s+)"
    r"to=[\w.\-]+[^{]*<\|message\|>.*?(?:<\|call\|>|\Z))"
)
FORMS: Final = (
    Form(_named("tool_call"), _tagged),  # Qwen, Hermes, GLM
    Form(re.compile(r"(?s)(<function=.*?(?:</function>|\Z))(?:\s*</tool_call>)?"), _tagged),  # Qwen3-Coder, Llama
    Form(_between(r"<\|python_tag\|>", r"<\|eom_id\|>|<\|eot_id\|>"), json_or_python),  # Llama 3
    Form(_between(r"<\|python_start\|>", r"<\|python_end\|>"), json_or_python),  # Llama 4
    Form(_between(r"\[TOOL_CALLS\]\s*", "</s>"), _mistral),
    Form(_between("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"), _named_json(_DEEPSEEK_CALL)),
    Form(_between(f"<{_DSML_CALLS}>", f"</{_DSML_CALLS}>"), _tagged),  # DeepSeek V3.2
    Form(_between(r"<\|tool_calls_section_begin\|>", r"<\|tool_calls_section_end\|>"), _named_json(_KIMI_CALL)),
    Form(_named("minimax:tool_call"), _tagged),
    Form(_named("function_calls"), _tagged),
    Form(re.compile(r"(?s)(<invoke name=.*?(?:</invoke>|\Z))"), _tagged),
    Form(_HARMONY_BLOCK, _named_json(_HARMONY_CALL)),
    Form(_named("function_call"), _tagged),
    Form(_named("tools"), _tagged, generic=True),  # Qwen2.5-Coder
    Form(_named("tool_calls"), json_calls),  # Jamba
    Form(_named("TOOLCALL"), json_or_python),  # Nemotron
    Form(
        _between(r"<\|action_start\|>\s*(?:<\|plugin\|>)?", r"<\|action_end\|>(?:\s*<\|im_end\|>)?"), json_calls
    ),  # InternLM
    Form(_FUNCTOOLS, json_calls),  # Phi-4, Firefunction
    Form(_between(r"<\|tool_call\|>\s*", r"<\|/tool_call\|>"), json_calls),  # Granite, Phi
    Form(_between(r"<\|START_ACTION\|>", r"<\|END_ACTION\|>(?:\s*<\|END_OF_TURN_TOKEN\|>)?"), json_calls),  # Cohere
    Form(_between(r"<\|tool_call>", r"<tool_call\|>"), _gemma),  # Gemma 4
    Form(_between("<start_function_call>", "<end_function_call>"), _gemma),  # FunctionGemma
    Form(re.compile(r"(?ms)^```tool_(?:code|call)[ \t]*\n(.*)"), _fenced, fenced=True, generic=True),  # Gemma 3
    Form(re.compile(r"(?ms)^[ \t]*\**Action:\**(.*)"), _react, generic=True),  # ReAct
)
# Without a marker, at the end of the answer; it counts for nothing but the tools on offer.
BARE: Final = Form(re.compile(r"(?ms)^([A-Za-z_][\w.\-]*+(?:\(|\s*+\{).*)"), bare_calls, fenced=True, generic=True)
