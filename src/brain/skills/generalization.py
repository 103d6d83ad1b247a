"""Turns calls that solved a task into calls with slots, and the task into a template; tells equal tasks. Pure."""

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import accumulate, groupby
from typing import Final, Literal, cast

from brain.retrieval.text_similarity import content_words
from brain.skills.skill import SLOT, PromptSkill, SkillCall, call_from_json, is_slot, nested_values, with_slots
from starling.core.json import Json, JsonObject, canonical

type _Source = Literal["task", "request", "result"]
type Redact = Callable[[str], str]
"""Returns a text with each secret in it replaced."""

_CONSTANT_CHARS: Final = 200  # a longer text was written for the task
_EXAMPLE_CHARS: Final = 120
_SECRET_NAME: Final = re.compile(
    r"passw|passphrase|secret|token|api[-_ ]?key|credential|authori[sz]ation|private[-_ ]?key|cookie"
    r"|(?:^|[-_])(?:pwd|pin|auth)(?:$|[-_])",
    re.IGNORECASE,
)
_SHORTEST_SECRET: Final = 4  # characters: shorter ones would hide harmless words
_HIDDEN: Final = "***"
_BORDERED: Final = r"[^\W\u0e00-\U0010ffff]"  # of a script with spaces between words
_MOST_VALUES: Final = 50  # of all arguments
_CALLS_CHARS: Final = 4_000
_PLACE_CHARS: Final = 20_000  # of a request or a result that values are looked for in
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}.{0,20})?|\d{1,2}:\d{2}(?::\d{2})?")
_NUMBERS: Final = (re.compile(r"\d+(?:\.\d+)?"), re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?"))
_PERCENT: Final = re.compile(r"(\d+(?:\.\d+)?)\s?%")
_PLACEHOLDERS: Final = re.compile(r"(\{\w+\})(?:[\s,/]+\1)+")


@dataclass(frozen=True, slots=True)
class MadeCall:
    """A call that contributed to an approved result: the tool's full name, its arguments, the text of its result."""

    tool: str
    arguments: JsonObject
    result: str


@dataclass(frozen=True, slots=True)
class TaskTexts:
    """Where values of arguments can come from. `results` are those of the tasks that the task depended on."""

    task: str
    request: str
    results: Sequence[str] = ()


def generalized(texts: TaskTexts, made: Sequence[MadeCall], redact: Redact) -> tuple[str, tuple[SkillCall, ...]]:
    """Return a task with a `{slot}` in place of each value, and the calls that similar tasks have in common with it.

    A value that occurs in the task, the request or an earlier result becomes a slot, and so does one that shares a
    word with the task or the request: `America/Lima` where the task says Lima. A date or a time is a slot in any case,
    all others stay as constants. A secret becomes a slot without an example.
    """
    slots = _Slots(texts, redact, [result[:_PLACE_CHARS] for result in texts.results])
    calls: list[SkillCall] = []
    for call in made:
        calls.append(SkillCall(call.tool, cast("JsonObject", slots.filled(call.arguments))))
        slots.results.append(call.result[:_PLACE_CHARS])
    return _template(redact(texts.task), slots.examples), tuple(calls)


def for_task(skill: PromptSkill, known: str, task: str, changing: Mapping[str, JsonObject]) -> PromptSkill | None:
    """Return a skill that solved the task `known` as `task` recalls it, None if it doesn't.

    One with calls of `changing` tools, by name with their schemas, is recalled without its examples, and only if `task`
    equals `known` but for the values of all slots, and has the constants of these calls.
    """
    calls = [call for call in skill.calls if call.tool in changing]
    if not calls:
        return skill
    constants = (text for call in calls for text in _constants(call, canonical(changing[call.tool])) if text.strip())
    if not _is_equal(task, known, _examples(skill)) or not all(_occurrence(one).search(task) for one in constants):
        return None
    plain = with_slots([call.to_json() for call in skill.calls], lambda slot: {SLOT: slot[SLOT], "from": slot["from"]})
    return replace(skill, calls=tuple(map(call_from_json, cast("Sequence[JsonObject]", plain))))


def shown_template(skill: PromptSkill, request: str) -> str:
    """Return a skill's template with `…` in place of words, numbers and signs that a request doesn't have."""
    shown = set(_parts(request[:_PLACE_CHARS].casefold())) | {f"{{{name}}}" for name in _examples(skill)}
    texts = enumerate(re.split(r"(\{\w+\})", skill.template))
    parts = (part for index, text in texts for part in ([text] if index % 2 else _parts(text)))
    kept = (part if part.isspace() or {part, part.casefold()} & shown else "…" for part in parts)
    return re.sub(r"…(\s*…)+", "…", "".join(kept))


def is_too_long(made: Sequence[MadeCall]) -> bool:
    """Whether calls have too many or too long arguments to be shown to another task."""
    arguments = [call.arguments for call in made]
    return sum(1 for _ in _values(arguments)) > _MOST_VALUES or len(canonical(arguments)) > _CALLS_CHARS


def hiding_secrets(redact: Redact, made: Sequence[MadeCall]) -> Redact:
    """Return a redaction that also hides the values of arguments whose names say that they are secret."""
    secrets = {
        text
        for call in made
        for text, is_secret in _values(call.arguments)
        if is_secret and len(text) >= _SHORTEST_SECRET
    }
    if not secrets:
        return redact
    known = re.compile("|".join(map(re.escape, sorted(secrets, key=len, reverse=True))))
    return lambda text: known.sub(_HIDDEN, redact(text))


def _values(value: Json, *, secret: bool = False) -> Iterator[tuple[str, bool]]:
    """Yield each scalar of arguments as a text, and whether it stands under a name that says that it is secret."""
    match value:
        case Mapping():
            for key, item in value.items():
                yield from _values(item, secret=secret or bool(_SECRET_NAME.search(key)))
        case list() | tuple():
            for item in cast("Sequence[Json]", value):
                yield from _values(item, secret=secret)
        case _:
            yield str(value), secret


def _examples(skill: PromptSkill) -> dict[str, str]:
    """Return the slots of a skill by name, each with the value that it had."""
    slots = (part for call in skill.calls for part in nested_values(call.arguments) if is_slot(part))
    return {str(slot[SLOT]): str(slot.get("example", "")) for slot in slots}


def _constants(call: SkillCall, schema: str) -> Iterator[str]:
    """Yield what a call has beside slots and the names that are in its tool's schema."""
    given = with_slots(call.arguments, lambda _: "")
    names = (name for part in nested_values(given) if isinstance(part, Mapping) for name in part)
    yield from (name for name in names if f'"{name}"' not in schema)
    yield from (text for text, _ in _values(given))


def _is_equal(task: str, known: str, examples: Mapping[str, str]) -> bool:
    """Whether a task is a known one but for the values of all slots, each of the kind of the known one's."""
    parts, given = _parts(known), _parts(task)
    if len(parts) != len(given):
        return False
    places: dict[int, str] = {}  # the slot at each position
    for name, text in sorted(examples.items(), key=lambda item: len(item[1])):
        found = _occurrence(text).finditer(known) if text.strip() else ()
        places |= dict.fromkeys((at for one in found for at in range(*one.span())), name)
    values: dict[tuple[str, str], str] = {}
    for start, had, has in zip(accumulate(map(len, parts), initial=0), parts, given, strict=False):
        same, slot = has.split() == had.split(), places.get(start)
        if not (same if slot is None else _kind(has) == _kind(had) and values.setdefault((slot, had), has) == has):
            return False
    return set(examples) == {slot for slot, _ in values}


@lru_cache(maxsize=16)  # all tasks of a run are compared with its request
def _parts(text: str) -> tuple[str, ...]:
    """Return the words, numbers, signs and spaces of a text; a letter of a script without spaces is a word."""
    runs = groupby(enumerate(text, 1), key=lambda at: (_kind(at[1]), at[0] * _has_no_borders(at[1])))
    return tuple("".join(character for _, character in run) for _, run in runs)


def _kind(part: str) -> str:
    kinds = {"L": "word", "M": "word", "N": "number"}
    return kinds.get(unicodedata.category(part[0])[0], " " if part.isspace() else part[0])


@dataclass(slots=True)
class _Slots:
    texts: TaskTexts
    redact: Redact
    results: list[str]
    examples: dict[str, str] = field(default_factory=dict[str, str])  # the value of each slot, as a text

    def filled(self, value: Json, name: str = "value", *, secret: bool = False) -> Json:
        match value:
            case Mapping():
                return {
                    key: self.filled(item, key, secret=secret or bool(_SECRET_NAME.search(key)))
                    for key, item in value.items()
                }
            case list() | tuple():
                return [self.filled(item, name, secret=secret) for item in cast("Sequence[Json]", value)]
            case str() | int() | float() if not isinstance(value, bool):
                return self._generalized(value, name, secret=secret)
            case _:
                return value

    def _generalized(self, value: str | float, name: str, *, secret: bool) -> Json:
        text = str(value)
        secret = secret or self.redact(text) != text
        source = self._source(value)
        if source is None and not secret and len(text) <= _CONSTANT_CHARS and not _DATE.fullmatch(text):
            return value
        slot = {SLOT: self._name(name, "" if secret else text), "from": source or "task"}
        return slot if secret else {**slot, "example": text[:_EXAMPLE_CHARS] if isinstance(value, str) else value}

    def _source(self, value: str | float) -> _Source | None:
        """Return where a value comes from: literally, else by a word of it."""
        text = str(value)
        if not text.strip():
            return None
        places: Sequence[tuple[_Source, str]] = (
            ("task", self.texts.task),
            ("request", self.texts.request[:_PLACE_CHARS]),
        )
        results: Sequence[tuple[_Source, str]] = [("result", result) for result in self.results]
        for source, place in (*places, *results):
            if _occurrence(text).search(place) or (isinstance(value, int | float) and float(value) in _numbers(place)):
                return source
        own = set(content_words(text)) if isinstance(value, str) else set[str]()
        return next((source for source, place in places if own & _words(place)), None)

    def _name(self, wanted: str, text: str) -> str:
        """Return the slot of a value; the same value has the same slot in all calls."""
        if (known := next((name for name, value in self.examples.items() if text and value == text), None)) is not None:
            return known
        base = re.sub(r"\W", "_", wanted) or "value"
        name, number = base, 2
        while name in self.examples:
            name, number = f"{base}_{number}", number + 1
        self.examples[name] = text
        return name


@lru_cache(maxsize=64)
def _words(place: str) -> frozenset[str]:
    return frozenset(content_words(place))


@lru_cache(maxsize=64)
def _numbers(place: str) -> frozenset[float]:
    """Return the numbers of a text in any notation: `1,000` is also 1000, and `15%` also 0.15."""
    plain = {float(found.replace(",", "")) for pattern in _NUMBERS for found in pattern.findall(place)}
    return frozenset(plain | {float(found) / 100 for found in _PERCENT.findall(place)})


def _occurrence(text: str) -> re.Pattern[str]:
    """Return a pattern that finds a value as a whole: `5` isn't part of `15` or `5.2`."""
    inner = r"\s+".join(map(re.escape, text.split()))
    if text[:1].isdigit():
        return re.compile(rf"(?<!{_BORDERED}|[\d.,]){inner}(?!{_BORDERED}|[.,]?\d)", re.IGNORECASE)
    before = "" if _has_no_borders(text.strip()[0]) else r"(?<!\w)"
    after = "" if _has_no_borders(text.strip()[-1]) else r"(?!\w)"
    return re.compile(f"{before}{inner}{after}", re.IGNORECASE)


def _has_no_borders(character: str) -> bool:
    """Whether a character is of a script without spaces between words: Thai, Chinese, Japanese and others."""
    return character >= "\u0e00"


def _template(task: str, examples: Mapping[str, str]) -> str:
    """Return the task with a slot's name where its value stands, or where a word of it does."""
    for name, text in sorted(examples.items(), key=lambda item: -len(item[1])):
        if not text.strip():
            continue
        found = _replaced(task, _occurrence(text), name)
        if found == task and len(text) <= _CONSTANT_CHARS:
            for word in sorted(set(content_words(text))):
                found = _replaced(found, re.compile(rf"(?<!\w){re.escape(word)}(?!\w)", re.IGNORECASE), name)
        task = found
    return _PLACEHOLDERS.sub(r"\1", task)


def _replaced(task: str, pattern: re.Pattern[str], name: str) -> str:
    """Return a task with a slot's name for each match outside of the names that are there already."""
    parts = re.split(r"(\{\w+\})", task)
    return "".join(part if index % 2 else pattern.sub(f"{{{name}}}", part) for index, part in enumerate(parts))
