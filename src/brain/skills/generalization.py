"""Turns the calls that solved one task into calls with slots, and the task into a template. Pure."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, cast

from brain.retrieval.text_features import content_words
from brain.skills.skill import SLOT, SkillCall
from starling.core.json import Json, JsonObject

type _Source = Literal["task", "request", "result"]
type Redact = Callable[[str], str]
"""Returns a text with each secret in it replaced."""

_CONSTANT_CHARS: Final = 200  # a longer text was written for the task
_EXAMPLE_CHARS: Final = 120
_SECRET_NAME: Final = re.compile(r"passw|secret|token|api_?key|credential|authorization|private_?key", re.IGNORECASE)
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


@dataclass(frozen=True, slots=True)
class GeneralizedTask:
    """Calls with slots, and the task with a `{slot}` in place of each value that comes from it."""

    template: str
    calls: tuple[SkillCall, ...]


def generalized(texts: TaskTexts, made: Sequence[MadeCall], redact: Redact) -> GeneralizedTask:
    """Return what the calls of one task have in common with those of similar tasks.

    A value that occurs in the task, the request or an earlier result becomes a slot, and so does one that shares a
    word with the task or the request: `America/Lima` where the task says Lima. All others stay as constants. A secret
    becomes a slot without an example.
    """
    slots = _Slots(texts, redact, list(texts.results))
    calls: list[SkillCall] = []
    for call in made:
        calls.append(SkillCall(call.tool, cast("JsonObject", slots.filled(call.arguments))))
        slots.results.append(call.result)
    return GeneralizedTask(_template(redact(texts.task), slots.examples), tuple(calls))


@dataclass(slots=True)
class _Slots:
    texts: TaskTexts
    redact: Redact
    results: list[str]
    examples: dict[str, str] = field(default_factory=dict[str, str])  # the value of each slot, as a text

    def filled(self, value: Json, name: str = "value") -> Json:
        match value:
            case Mapping():
                return {key: self.filled(item, key) for key, item in value.items()}
            case list() | tuple():
                return [self.filled(item, name) for item in cast("Sequence[Json]", value)]
            case str() | int() | float() if not isinstance(value, bool):
                return self._generalized(value, name)
            case _:
                return value

    def _generalized(self, value: str | float, name: str) -> Json:
        text = str(value)
        secret = bool(_SECRET_NAME.search(name)) or self.redact(text) != text
        source = self._source(text, words=isinstance(value, str))
        if source is None and not secret and len(text) <= _CONSTANT_CHARS:
            return value
        slot = {SLOT: self._name(name, "" if secret else text), "from": source or "task"}
        return slot if secret else {**slot, "example": text[:_EXAMPLE_CHARS] if isinstance(value, str) else value}

    def _source(self, text: str, *, words: bool) -> _Source | None:
        """Return where a value comes from: literally, else by a word of it."""
        if not text.strip():
            return None
        places: Sequence[tuple[_Source, str]] = (("task", self.texts.task), ("request", self.texts.request))
        results: Sequence[tuple[_Source, str]] = [("result", result) for result in self.results]
        for source, place in (*places, *results):
            if _occurrence(text).search(place):
                return source
        own = set(content_words(text)) if words else set[str]()
        return next((source for source, place in places if own & set(content_words(place))), None)

    def _name(self, wanted: str, text: str) -> str:
        """Return the slot of a value; the same value has the same slot in all calls."""
        base = re.sub(r"\W", "_", wanted) or "value"
        name, number = base, 2
        while name in self.examples and (not text or self.examples[name] != text):
            name, number = f"{base}_{number}", number + 1
        self.examples[name] = text
        return name


def _occurrence(text: str) -> re.Pattern[str]:
    """Return a pattern that finds a value as a whole: `5` isn't part of `15` or `5.2`."""
    inner = r"\s+".join(map(re.escape, text.split()))
    number = text[:1].isdigit()
    before, after = (r"(?<![\w.,])", r"(?!\w|[.,]\d)") if number else (r"(?<!\w)", r"(?!\w)")
    return re.compile(f"{before}{inner}{after}", re.IGNORECASE)


def _template(task: str, examples: Mapping[str, str]) -> str:
    """Return the task with a slot's name where its value stands, or where a word of it does."""
    for name, text in sorted(examples.items(), key=lambda item: -len(item[1])):
        if not text.strip():
            continue
        found = _occurrence(text).sub(f"{{{name}}}", task)
        for word in set(content_words(text)) if found == task else ():
            found = re.sub(rf"(?<![\w{{]){re.escape(word)}(?![\w}}])", f"{{{name}}}", found, flags=re.IGNORECASE)
        task = found
    return _PLACEHOLDERS.sub(r"\1", task)
