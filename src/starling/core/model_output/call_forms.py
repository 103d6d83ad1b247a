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

from starling.core.model_output.json_document import loads_object, whole_object

_NAMES: Final = ("name", "tool", "tool_name", "function", "function_name")
_ARGUMENTS: Final = ("arguments", "parameters", "args", "input", "tool_input", "kwargs")
_BESIDES: Final = frozenset({"type", "id", "index", "tool_call_id", "thought", "reason", "explanation"})

type Written = tuple[str, Mapping[str, Any] | None]
"""A tool's name and its arguments, None where they can't be read."""


class RawText(str):
    """The text of an argument, whose type the tool's schema says."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Form:
    """How a family of models marks its calls. `read` returns the calls within a block.

    `fenced`: the marker is a code fence, which is the model's own only at the end of the answer.
    """

    block: re.Pattern[str]
    read: Callable[[str], Iterable[Written]]
    fenced: bool = False


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
        yield from _each(_FUNCTION, block, _function)
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


def _function(name: str, content: str) -> Written:
    if "<parameter=" in content:
        return _with_values(name, content, _PARAMETER_VALUE)
    return name, whole_object(content) if content else {}


def _with_values(name: str, content: str, value: re.Pattern[str]) -> Written:
    found = value.findall(content)
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
        if part.strip():
            yield from _json_or_python(part)


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
    if value.args or None in names or len(set(names)) < len(names):
        raise ValueError(name)
    arguments = {keyword.arg: _literal(keyword.value) for keyword in value.keywords}
    return name.removeprefix("default_api."), loads_object(orjson.dumps(arguments))


def _expression(statement: ast.stmt) -> ast.expr:
    if not isinstance(statement, ast.Expr):
        raise TypeError(type(statement))
    return statement.value


def _literal(value: ast.expr) -> Any:
    if isinstance(value, ast.Name) and value.id in _JSON_WORDS:
        return _JSON_WORDS[value.id]
    return ast.literal_eval(value)


def _mistral(block: str) -> Iterator[Written]:
    return json_calls(block) if block.lstrip().startswith("[") else _named_json(_MISTRAL_CALL)(block)


def _named(name: str) -> re.Pattern[str]:
    """Return the pattern of a block between tags of this name; models forget the end of the last one.

    The strings of JSON may have the end tag in them.
    """
    in_json = rf'\s*+[\[{{](?:[^"<]|"(?:[^"\\]|\\.)*+"|<(?!/{name}>))*+(?=</{name}>)'
    return re.compile(rf"<{name}>({in_json}|.*?)(?:</{name}>|\Z)", re.DOTALL)


def _json_or_python(block: str) -> Iterable[Written]:
    return json_calls(block) if block.lstrip().startswith(("{", "[{")) else python_calls(block)


_OBJECT_BORDER: Final = re.compile(r"(?<=\})\s*+;?\s*+(?=\{)")
_JSON_WORDS: Final = {"true": True, "false": False, "null": None}
_GEMMA_CALL: Final = re.compile(r"call:\s*([\w.\-]+)\s*(\{.*\}|\(.*\))", re.DOTALL)
_GEMMA_TOKEN: Final = re.compile(
    r'(?P<quote><\|"\|>|<escape>)(?P<text>.*?)(?P=quote)|"(?:[^"\\]|\\.)*+(?:"|\Z)'
    r"|(?P<before>[{,]\s*+)(?P<key>[A-Za-z_][\w.\-]*+)\s*+:",
    re.DOTALL,
)
_CALL_FENCE: Final = re.compile(r"^[ \t]*```(?:tool_code|tool_call)?[ \t]*$", re.MULTILINE)
_DSML: Final = re.compile(r"[｜|‖]+\s*DSML\s*[｜|‖]+")
_FUNCTION: Final = re.compile(r"<function=([^>\s]+)>(.*?)(?:</function>|\Z)", re.DOTALL)
_PARAMETER_VALUE: Final = re.compile(r"<parameter=([^>]+)>(.*?)</parameter>", re.DOTALL)
_INVOKE: Final = re.compile(r"<invoke name=\"([^\"]+)\">(.*?)(?:</invoke>|\Z)", re.DOTALL)
_INVOKE_VALUE: Final = re.compile(r"<parameter name=\"([^\"]+)\"[^>]*>(.*?)</parameter>", re.DOTALL)
_ARG_VALUE: Final = re.compile(r"<arg_key>([^<]*+)</arg_key>\s*<arg_value>(.*?)</arg_value>", re.DOTALL)
_MISTRAL_CALL: Final = re.compile(
    r"(?:\[TOOL_CALLS\]\s*+)?(?<![\w.\-])([\w.\-]++)\s*+(?:\[CALL_ID\]\w+)?(?:\[ARGS\])?\s*(\{.*?\})\s*(?=\[TOOL_CALLS\]|\Z)",
    re.DOTALL,
)
_DEEPSEEK_CALL: Final = re.compile(
    r"<｜tool▁call▁begin｜>(?:function<｜tool▁sep｜>)?([\w.\-/]+)(?:\s*```json\s*|<｜tool▁sep｜>)(.*?)(?:```\s*)?<｜tool▁call▁end｜>",
    re.DOTALL,
)
_KIMI_CALL: Final = re.compile(
    r"<\|tool_call_begin\|>\s*([\w.\-]+?)(?::\d+)?\s*<\|tool_call_argument_begin\|>(.*?)<\|tool_call_end\|>", re.DOTALL
)
_HARMONY_CALL: Final = re.compile(
    r"(?:<\|start\|>assistant)?\s*(?:<\|channel\|>(?:commentary|analysis)\s+)?to=([\w.\-]+)[^{]*?<\|message\|>(.*?)(?:<\|call\|>|\Z)",
    re.DOTALL,
)
FORMS: Final = (
    Form(_named("tool_call"), _tagged),  # Qwen, Hermes, GLM
    Form(
        re.compile(r"(<function=.*?(?:</function>|\Z))(?:\s*</tool_call>)?", re.DOTALL), _tagged
    ),  # Qwen3-Coder, Llama
    Form(re.compile(r"<\|python_tag\|>(.*?)(?:<\|eom_id\|>|<\|eot_id\|>|\Z)", re.DOTALL), _json_or_python),  # Llama 3
    Form(re.compile(r"<\|python_start\|>(.*?)(?:<\|python_end\|>|\Z)", re.DOTALL), _json_or_python),  # Llama 4
    Form(re.compile(r"\[TOOL_CALLS\]\s*(.*?)(?:</s>|\Z)", re.DOTALL), _mistral),
    Form(re.compile(r"<｜tool▁calls▁begin｜>(.*?)(?:<｜tool▁calls▁end｜>|\Z)", re.DOTALL), _named_json(_DEEPSEEK_CALL)),
    Form(
        re.compile(
            r"<[｜|‖]+DSML[｜|‖]+(?:function_calls|tool_calls)>(.*?)"
            r"(?:</[｜|‖]+DSML[｜|‖]+(?:function_calls|tool_calls)>|\Z)",
            re.DOTALL,
        ),
        _tagged,
    ),  # DeepSeek V3.2
    Form(
        re.compile(r"<\|tool_calls_section_begin\|>(.*?)(?:<\|tool_calls_section_end\|>|\Z)", re.DOTALL),
        _named_json(_KIMI_CALL),
    ),
    Form(_named("minimax:tool_call"), _tagged),
    Form(
        re.compile(
            r"((?:<\|start\|>assistant\s*(?:<\|channel\|>(?:commentary|analysis)\s+)?|<\|channel\|>(?:commentary|analysis)\s+)"
            r"to=[\w.\-]+[^{]*<\|message\|>.*?(?:<\|call\|>|\Z))",
            re.DOTALL,
        ),
        _named_json(_HARMONY_CALL),
    ),
    Form(_named("function_call"), _tagged),
    Form(_named("tools"), _tagged),  # Qwen2.5-Coder
    Form(re.compile(r"<\|tool_call\|>\s*(.*?)(?:<\|/tool_call\|>|\Z)", re.DOTALL), json_calls),  # Granite, Phi
    Form(
        re.compile(r"<\|START_ACTION\|>(.*?)(?:<\|END_ACTION\|>|\Z)(?:\s*<\|END_OF_TURN_TOKEN\|>)?", re.DOTALL),
        json_calls,
    ),  # Cohere
    Form(re.compile(r"<\|tool_call>(.*?)(?:<tool_call\|>|\Z)", re.DOTALL), _gemma),  # Gemma 4
    Form(re.compile(r"<start_function_call>(.*?)(?:<end_function_call>|\Z)", re.DOTALL), _gemma),  # FunctionGemma
    Form(
        re.compile(r"^```tool_(?:code|call)[ \t]*\n(.*)", re.DOTALL | re.MULTILINE),
        _fenced,
        fenced=True,
    ),  # Gemma 3
)
