"""The review of an attempt and the final answer."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from starling.infra.llm.offline.language import RESTRICTING, masked, only_asks, opening, stems, values_of, words_of
from starling.infra.llm.offline.prompt_parsing import Element, leaves, parse_json

_ERROR = re.compile(
    r"\W*(?:[\w.]*(?:error|exception)\b|fatal:|traceback \(|(?:failed|unable to|could not|cannot|can['’]t|invalid"
    r"|no such|access denied|permission denied)\b|(?:[\w'\"`./:-]+\s){1,6}(?:not found|does not exist|timed out)\b)",
    re.IGNORECASE,
)
_ERROR_KEY = re.compile(r"(?:is)?(?:error|exception)s?\b", re.IGNORECASE)
_ZONE = re.compile(r"[A-Z]\w+/[A-Z][\w+/-]+|\bUTC\b")
_JSON_WORDS = {"True": "yes", "False": "no", "None": "none"}
_NO_JUDGE = "No language model is configured, and offline:rules can't judge texts: use a criterion of another kind."
_SHOWN_CHARS = 200
_ANSWER_CHARS = 1_200


def review(prompt: Element) -> dict[str, Any]:
    """Return the verdict on an attempt: its calls have to be about all that the task names."""
    output = prompt.child("output").text
    objections = list(_objections(prompt.child("task").text, prompt.child("tool_calls").children("call"), output))
    return {
        "status": "REJECTED" if objections else "APPROVED",
        "reasons": objections or ["The calls are about all that the task names."],
        "evidence": [line[:_SHOWN_CHARS] for line in output.splitlines()[:1] if line],
    }


def judge(prompt: Element) -> dict[str, Any]:
    """Return that no criterion is met: what only words say can't be judged by rules."""
    criteria = prompt.child("criteria").children("criterion")
    return {"met": [], "not_met": [one.get("id") for one in criteria], "reason": _NO_JUDGE}


def _objections(task: str, calls: Sequence[Element], output: str) -> Iterator[str]:
    results = [(call.get("name"), call.get("status"), call.child("result").text) for call in calls]
    good = {name for name, status, result in results if status == "succeeded" and not _fault(result)}
    yield from filter(None, [_fault(output)])
    yield from ["No tool was called, so nothing supports the output."] * (not calls)
    yield from (f"{name} failed: {result[:_SHOWN_CHARS]}" for name, _, result in results if name not in good)
    given = [leaf for call in calls for leaf in leaves(parse_json(call.child("arguments").text))]
    returned = "\n".join(result for _, _, result in results)
    known = "\n".join([*(name for name, _, _ in results), *(f"{key} {leaf}" for key, leaf in given), returned])
    named = {value.value for name in _ZONE.findall(returned) for value in values_of(name) if value.kind == "zone"}
    for value in values_of(task):
        another = value.kind == "zone" and named and value.value not in named
        if another or not any(form in known for form in (str(value.value), value.text)):
            yield f"No call is about {value.text}."
    words, text = stems(re.sub(r"[._-]", " ", known)), masked(task)
    yield from (f"No result is about “{word.text}”." for word in words_of(text) if word.stem in RESTRICTING - words)
    if not only_asks(text) and opening(text) in stems(text) - words:
        yield f"No call does what “{opening(text)}” asks for."


def _fault(text: str) -> str:
    """Return why a text is no result: it is empty or an error."""
    data, line = parse_json(text), text[:_SHOWN_CHARS].partition("\n")[0]
    if text.casefold() in ("", "null", "none") or (data is not None and not any(leaves(data))):
        return "The output is empty."
    failed = any(leaf and _ERROR_KEY.match(key) for key, leaf in leaves(data)) if data else _ERROR.match(line)
    return f"This is an error: {text[:_SHOWN_CHARS]}" if failed else ""


def compose_answer(prompt: Element) -> str:
    """Return the answer with the results, missing parts and assumptions."""
    results = [(item.text, item.get("citation")) for item in prompt.child("results").children("result")]
    texts = [f"{_readable(text)} [{citation}]" for text, citation in results if text]
    degraded = [f"- {item.text} ({item.get('reason')})" for item in prompt.child("degraded").children("part")]
    assumptions = [item.text for item in prompt.child("assumptions").children("assumption")]
    parts = [("\n".join(f"- {one}" for one in texts) if len(texts) > 1 else "".join(texts)) or "There is no result."]
    parts += ["\n".join(["Not answered:", *degraded])] * bool(degraded)
    parts += [f"This assumes: {' '.join(assumptions)}"] * bool(assumptions and texts)
    return "\n\n".join(parts)


def _readable(text: str) -> str:
    """Return a result as text: JSON as `name: value`, shortened."""
    data = parse_json(text)
    pairs = [(key.replace("_", " "), _JSON_WORDS.get(str(leaf), str(leaf))) for key, leaf in leaves(data)]
    full = text if data is None else "; ".join(f"{key}: {leaf}" if key else leaf for key, leaf in pairs)
    return full if len(full) <= _ANSWER_CHARS else f"{full[:_ANSWER_CHARS].rstrip()} … (shortened)"
