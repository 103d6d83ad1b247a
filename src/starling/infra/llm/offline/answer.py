"""The final answer: results as short text, with citations."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from starling.infra.llm.offline.prompt_parsing import PromptSections, leaves, parse_json
from starling.infra.llm.offline.tokenization import content_words

_TEXT_CHARS = 1_200
_TEXT_LINES = 24
_MOST_ITEMS = 12
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d(?::\d\d)?)(?:\.\d+)?(Z|[+-]\d\d:?\d\d)?")
_NO_MODEL = (
    "No language model is configured: offline:rules only matches requests to tools. "
    "Set OPENAI_API_KEY or STARLING_MODEL, or start Ollama, for that."
)
_CALL = re.compile(r"^[\w./-]+ (\{[^\n]*\}):\n", re.MULTILINE)
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
_STEP = 1000


def compose_answer(sections: PromptSections) -> str:
    """Return the answer with the results, missing parts and assumptions."""
    results = [(item.text, item.get("citation")) for item in sections.children("results", "result")]
    texts = [f"{readable(text)} [{citation}]" for text, citation in results if text]
    answer = texts[0] if len(texts) == 1 else "\n".join(f"- {one}" for one in texts)
    degraded = [f"{item.text} ({item.get('reason')})" for item in sections.children("degraded", "part")]
    assumptions = [item.text for item in sections.children("assumptions", "assumption")]
    parts = [answer or "I couldn't get a result for this request."]
    if degraded:
        parts.append("Not answered:\n" + "\n".join(f"- {one}" for one in degraded))
    if assumptions and texts:
        parts.append("This assumes: " + " ".join(assumptions))
    return "\n\n".join(parts)


def answer_without_tools(sections: PromptSections) -> str:
    """Answer a task without tools from earlier results; otherwise explain why it can't be answered."""
    wanted = set(content_words(sections.text("task")))
    held = [text for path, text in leaves(parse_json(sections.text("state_context"))) if path[:1] == ("results",)]
    texts = [readable(str(text)) for text in held if wanted.intersection(content_words(str(text)))]
    return "\n".join(texts) or f"I can't do this. {_NO_MODEL}"


def readable(text: str) -> str:
    """Return a result as readable text: JSON as `name: value`, long texts shortened, one line per call."""
    calls = list(_CALL.finditer(text))
    if not calls or calls[0].start() > 0:
        return _result_text(text)
    ends = [*(call.start() for call in calls[1:]), len(text)]
    return "\n  ".join(_answered(call[1], text[call.end() : end]) for call, end in zip(calls, ends, strict=True))


def _result_text(text: str) -> str:
    data = parse_json(text)
    full = text.strip() if data is None else "; ".join(_pairs("", data)) or "nothing"
    short = "\n".join(full.splitlines()[:_TEXT_LINES])[:_TEXT_CHARS].rstrip()
    return short if len(short) >= len(full) else f"{short} … (shortened)"


def _answered(arguments: str, result: str) -> str:
    """Return the result of one of several calls, after its arguments if the result does not contain them."""
    asked = re.sub(r"[{}'\"]", "", arguments).strip()
    result_text = _result_text(result)
    has_arguments = all(value.strip() in result_text for value in re.findall(r": ([^,]*)", asked))
    return result_text if has_arguments else f"{asked}: {result_text}"


def _pairs(label: str, value: object, depth: int = 0) -> Iterator[str]:
    """Yield `name: value` for each scalar in a JSON value, with nested names joined by spaces."""
    if isinstance(value, Mapping) and depth < _MOST_ITEMS:
        for key, inner in cast("Mapping[str, object]", value).items():
            yield from _pairs(f"{label} {_words_of(key)}".strip(), inner, depth + 1)
    elif isinstance(value, list):
        yield from _list_pairs(label, cast("Sequence[object]", value), depth)
    else:
        scalar = _scalar_text(label, cast("object", value))
        yield f"{label}: {scalar}" if label else scalar


def _list_pairs(label: str, items: Sequence[object], depth: int) -> Iterator[str]:
    visible = items[: _MOST_ITEMS if depth < _MOST_ITEMS else 0]
    texts = [", ".join(_pairs("", item, depth + 1)) for item in visible]
    texts += [f"{len(items) - len(visible)} more"] * (len(items) > len(visible))
    joined = (" | " if any(isinstance(item, Mapping) for item in visible) else ", ").join(texts) or "none"
    yield f"{label}: {joined}" if label else joined


def _words_of(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name).replace("_", " ").strip()


def _scalar_text(label: str, value: object) -> str:
    last = label.rsplit(" ", 1)[-1].casefold()
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float) and last == "bytes":
        return _format_size(value)
    if isinstance(value, int | float) and last in ("percent", "percentage"):
        return f"{value:g} %"
    return _MOMENT.sub(_format_moment, str(value).strip())


def _format_moment(match: re.Match[str]) -> str:
    zone = {"": "", "Z": " UTC"}.get(match[3] or "", f" (UTC{match[3]})")
    return f"{match[1]} {match[2]}{zone}"


def _format_size(count: float) -> str:
    size, units = count, list(_UNITS)
    while abs(size) >= _STEP and len(units) > 1:
        size, units = size / _STEP, units[1:]
    return f"{size:.{int(units[0] != 'B')}f} {units[0]}"
