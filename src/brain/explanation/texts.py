"""Tests of texts in any language: whether a program wrote an error, whether a text names a value, has its numbers."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, cast

from brain.retrieval.text_features import content_words, plain_words, stem
from starling.core.json import Json

_ERROR_KEYS: Final = ("error", "errors", "exception", "fault", "error_message", "errorMessage")
_FAILED: Final = frozenset({"error", "errored", "fail", "failed", "failure"})
_SHORT: Final = 300
_MACHINE_ERROR: Final = re.compile(
    r"\W{0,3}(?:(?:\w+\.)*[A-Z]\w*(?:Error|Exception)\b\s*[:(\[]|(?i:traceback \(|panic:|http(?:/\S+)?\s*[45]\d\d\b|"
    r"(?:status|code)\W{0,3}[45]\d\d\b|"
    r"[45]\d\d:? (?:bad|unauthori[sz]ed|forbidden|not|method|request|conflict|gone|too|internal|service|gateway)))"
)
_SERVER_FAULT: Final = re.compile(
    r"\b(?:http(?:/\S+)? ?5\d\d|50[0234]:? (?:internal|bad|service|gateway)|429:? too many|"
    r"status(?: code)?\W{0,3}5\d\d)\b",
    re.IGNORECASE,
)
_UNFILLED: Final = re.compile(
    r"\s*(?:[<\[{$%(].{0,80}[>\]})%]|tbd|tba|todo|n/?a|none|null|nil|undefined|\?+|x{3,}|\.{3}|…|-+|)\s*", re.IGNORECASE
)
_NUMBER: Final = re.compile(r"(?<![\w.,])-?\d+(?:[.,]\d+)*")
_WITH_POINT: Final = re.compile(r"-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?")
_WITH_COMMA: Final = re.compile(r"-?(?:\d{1,3}(?:\.\d{3})+|\d+)(?:,\d+)?")
_MOST_NUMBERS: Final = 60
_MARKS: Final[Sequence[Mapping[str, str]]] = ({"“": "‘", "”": "’"}, {})  # of a quotation in one, and of one in that


def shortened(text: str, limit: int) -> str:
    """Return a text on one line of at most `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def quoted(text: str, limit: int) -> str:
    """Return a text as a quotation of at most `limit` characters; a quotation in it has single marks, and so on."""
    shown, depth = list[str](), 0
    for character in shortened(text, limit):
        if character == "”":
            depth = max(0, depth - 1)
        shown.append(_MARKS[depth % 2].get(character, character))
        if character == "“":
            depth += 1
    return f"“{''.join(shown)}”"


def counted(number: int, what: str) -> str:
    """Return a number of things: `1 task`, `2 tasks`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def moment(at: datetime) -> str:
    """Return a moment in UTC."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def duration(seconds: float) -> str:
    """Return a duration: `< 1 ms`, `40 ms`, `1.2 s`, `3 min 20 s`, `2 h 5 min`."""
    if seconds < 0.0005:
        return "< 1 ms"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def is_machine_error(text: str) -> bool:
    """Whether a text is an error as programs write it in every language: a document, a trace, a status of HTTP."""
    if text[:1] in ("{", "["):
        document = _document(text)
        return isinstance(document, Mapping) and _is_error(cast("Mapping[str, Any]", document))
    return _MACHINE_ERROR.match(text[:_SHORT]) is not None


def is_server_fault(text: str) -> bool:
    """Whether an error has a status of HTTP that blames the service."""
    return _SERVER_FAULT.search(text) is not None


def is_unfilled(value: Json) -> bool:
    """Whether an argument is a mark for a value that is not there, such as `<id>`, `TBD` or `???`."""
    return isinstance(value, str) and _UNFILLED.fullmatch(value) is not None


def _document(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _is_error(document: Mapping[str, Any]) -> bool:
    if any(document.get(key) not in (None, "", False, 0, [], {}) for key in _ERROR_KEYS):
        return True
    if any(document.get(key) is False for key in ("success", "ok", "succeeded")):
        return True
    if any(document.get(key) is True for key in ("isError", "is_error", "failed")):
        return True
    status = document.get("status", document.get("status_code", document.get("code")))
    if isinstance(status, str):
        return status.casefold() in _FAILED
    return isinstance(status, int) and 400 <= status < 600


def stems(*texts: str) -> set[str]:
    """Return the stems of the content words of texts."""
    return {word for text in texts for word in _stems(text)}


@lru_cache(512)
def _stems(text: str) -> frozenset[str]:
    return frozenset(map(stem, content_words(text)))


def leaves(value: Json, name: str = "") -> Iterator[tuple[str, Json]]:
    """Yield each value inside of an argument that has none inside, with the name of the nearest member."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from leaves(item, key)
    elif isinstance(value, (list, tuple)):
        for item in cast("Sequence[Json]", value):
            yield from leaves(item, name)
    else:
        yield name, value


def is_grounded(value: Json, texts: Sequence[str]) -> bool:
    """Whether a value could be taken from one of these texts: it or one of its words is in there."""
    if value is None or isinstance(value, bool):
        return True
    text = str(value).strip().casefold()
    words = {word for word in plain_words(text) if len(word) > 1 or word.isdigit()}
    return not text or any(text in known.casefold() or words & set(plain_words(known)) for known in texts)


def mentions(text: str, value: Json) -> bool:
    """Whether a text names a value: as it is, between no letters or digits."""
    wanted = str(value).strip()
    if isinstance(value, bool) or value is None or len(wanted) < 2:
        return False
    return re.search(rf"(?<!\w){re.escape(wanted)}(?!\w)", text, re.IGNORECASE) is not None


def shares_word(text: str, value: str) -> bool:
    """Whether a text has a word of more than two characters that a value has, too."""
    return bool({word for word in plain_words(value) if len(word) > 2} & set(plain_words(text)))


def unsupported_numbers(text: str, sources: Iterable[str]) -> list[str]:
    """Return the numbers of a text that no source has, and that no sum, difference or ratio of two of theirs gives."""
    found = (part for source in sources for number in _NUMBER.findall(source) for part in (number, *number.split(",")))
    known = list(dict.fromkeys(found))[:_MOST_NUMBERS]
    values = [value for number in known for value in _readings(number)]

    def is_known(number: str) -> bool:
        return number in known or any(_is_computed(value, values) for value in _readings(number))

    return [
        number
        for number in dict.fromkeys(_NUMBER.findall(text))
        if not is_known(number) and not ("," in number and all(map(is_known, number.split(","))))
    ]


def _readings(number: str) -> set[float]:
    """Return what a number may mean: `1.000,5` is written in some languages as `1,000.5` in others."""
    english = [number.replace(",", "")] if _WITH_POINT.fullmatch(number) else []
    other = [number.replace(".", "").replace(",", ".")] if _WITH_COMMA.fullmatch(number) else []
    return set(map(float, (*english, *other)))


def _is_computed(wanted: float, values: Sequence[float]) -> bool:
    if any(round(value) == wanted or abs(value) == wanted for value in values) or _near(sum(values), wanted):
        return True
    return any(
        _near(found, wanted)
        for one in values
        for other in values
        for found in (one + other, one - other, one * other, one / other if other else 0.0, 100 * one / (other or 1))
    )


def _near(found: float, wanted: float) -> bool:
    return abs(found - wanted) <= max(0.005 * abs(wanted), 1e-9)
