"""Slot filling: takes a tool's arguments from a text, by JSON schema. Values that are not in the text are missing."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, product

from starling.core.json import Json, storable
from starling.infra.llm.offline.tokenization import GREETINGS, IMPERATIVE_VERBS, STOP_WORDS, content_words, tokens
from starling.infra.llm.offline.tool_schema import Slot, schema_slots
from starling.infra.llm.offline.value_extraction import Value, extract_values, mask_values, to_24_hour_time

_SOURCE = frozenset(tokens("source from src start origin old begin input since"))
_TARGET = frozenset(tokens("target to destination dest dst end new output until"))
_FOLDER = frozenset(tokens("repo repository directory dir folder cwd"))
_AMOUNT = frozenset(tokens("count limit max maximum number num amount size total top n k"))
_RANKS = frozenset(tokens("last first top"))
_BEFORE_SOURCE, _BEFORE_TARGET = ("from", "since"), ("to", "into", "as", "onto", "until")
_NEGATIONS = ("no", "not", "without", "don", "never")
_UNLIMITED_CHOICES = ("all", "any", "both")
_REPEATABLE = ("zone", "path", "url", "email", "date", "text")
_EXACT_KINDS = ("email", "url", "date", "glob")
_TEXT_SCORES: Mapping[str, float] = {"quoted": 1.0, "name": 0.6, "zone": 0.5, "path": 0.2} | dict.fromkeys(
    _EXACT_KINDS, 0.3
)
_MOST_CALLS = 8
_WINDOW = 60  # characters before and after a value that are its context
_WORD = re.compile(r"[^\W_][\w'’-]*")
_INTRODUCTION = re.compile(r"\s*(?:(?:named|called|is|of)\s+|[:=]\s*)?")
_IDENTIFIER = re.compile(r"[\w./@~^-]+")


@dataclass(slots=True)
class FilledArguments:
    """Arguments for one call, or for several calls if the text has several values for one slot."""

    arguments: list[dict[str, Json]]
    missing: list[Slot]
    used: int  # number of values of the task that were used
    from_context: int  # arguments that only the context texts name
    unmatched_names: list[str]  # names in the task that fit no slot


def fill_arguments(
    schema: object, task: str, context: Sequence[str], about: str, *, no_free_text: bool = False
) -> FilledArguments:
    """Fill arguments from the task, and required ones that are missing there from the `context` texts in order.

    `about` is the tool's name and description, whose words are not taken as values. `no_free_text`: do not use the
    rest of the task as a free-text argument.
    """
    return _ArgumentFiller(
        schema_slots(schema), task, context, frozenset(content_words(about)), no_free_text, list(extract_values(task))
    ).result()


@dataclass(slots=True)
class _ArgumentFiller:
    slots: list[Slot]
    task: str
    context: Sequence[str]
    about: frozenset[str]
    no_free_text: bool
    unused: list[Value]
    given: dict[str, list[object]] = field(default_factory=dict[str, list[object]])
    from_context: int = 0

    def result(self) -> FilledArguments:
        self.fill_from_task()
        self._assign_repeated()
        missing = [
            slot for slot in self.slots if slot.name not in self.given and slot.required and not self.derive(slot)
        ]
        several = islice(product(*self.given.values()), _MOST_CALLS)
        arguments = [{name: storable(value) for name, value in zip(self.given, one, strict=True)} for one in several]
        unmatched_names = [value.text for value in self.unused if value.kind == "name"]
        return FilledArguments(
            arguments, missing, len(extract_values(self.task)) - len(self.unused), self.from_context, unmatched_names
        )

    def fill_from_task(self) -> None:
        self._fill_choices()
        self._fill_named_texts()
        self._assign_values()

    def _fill_choices(self) -> None:
        """Fill slots with enumerated choices and boolean slots."""
        words = tokens(self.task)
        for slot in self.slots:
            if slot.choices:
                fitting = [choice for choice in slot.choices if _is_mentioned(str(choice), words)]
                fitting = fitting or [
                    choice for choice in slot.choices if slot.required and choice in _UNLIMITED_CHOICES
                ]
                if fitting or (len(slot.choices) == 1 and slot.required):
                    self.given[slot.name] = [max(fitting or slot.choices, key=lambda choice: len(str(choice)))]
            elif slot.value_kind == "boolean":
                telling = slot.words - STOP_WORDS - IMPERATIVE_VERBS
                mentioned = [words.index(word) for word in telling if word in words]
                negated = any(word in _NEGATIONS for at in mentioned for word in words[max(0, at - 2) : at])
                if slot.required or len(mentioned) == len(telling) > 0:
                    self.given[slot.name] = [bool(mentioned) and not negated]

    def _fill_named_texts(self) -> None:
        """Fill text slots whose name is followed by a value in the task, as in `of type person`."""
        for slot in self.slots:
            if slot.value_kind != "text" or slot.is_free_text or slot.choices or slot.name in self.given:
                continue
            match = self._text_after_name(slot, slot.words - self.about)
            if match is not None:
                start, text = match
                self.given[slot.name] = [text]
                self.unused = [value for value in self.unused if not value.start <= start < value.end]

    def _assign_values(self) -> None:
        """Assign the values of the task to the slots with the best scores."""
        wanting = [slot for slot in self.slots if slot.name not in self.given and not slot.choices]
        pairs = [(self._score(slot, value), slot, value) for slot in wanting for value in self.unused]
        for fit, slot, value in sorted(pairs, key=lambda pair: -pair[0]):
            if fit > 0 and slot.name not in self.given and value in self.unused:
                self.given[slot.name] = [_convert(slot, value)]
                self.unused.remove(value)

    def _assign_repeated(self) -> None:
        """Assign further values of a kind to its only slot; each becomes a separate call."""
        for slot in self.slots:
            alone = sum(slot.value_kind in (other.value_kind, other.item.value_kind) for other in self.slots) == 1
            if slot.name not in self.given or not alone or slot.value_kind not in _REPEATABLE or slot.choices:
                continue
            kinds = {
                value.kind for value in extract_values(self.task) if _convert(slot, value) in self.given[slot.name]
            }
            if slot.value_kind == "text" and kinds - {"zone", "name", "quoted"}:
                continue
            more = [value for value in self.unused if value.kind in kinds]
            self.given[slot.name] += [_convert(slot, value) for value in more]
            self.unused = [value for value in self.unused if value not in more]

    def derive(self, slot: Slot) -> bool:
        """Fill a required slot from other text or the context. Return whether this succeeded."""
        found: object = None
        if slot.value_kind == "array":
            found = self.items(slot)
        elif slot.value_kind == "object":
            found = self._object(slot)
        elif not slot.choices:
            following = self._text_after_name(slot, slot.words) if slot.value_kind == "text" else None
            found = following[1] if following else self._from_context(slot) or self._remainder(slot)
            found = found or self._default(slot)
        if found is not None:
            self.given[slot.name] = [found]
        return found is not None

    def items(self, slot: Slot, *, nested: bool = False) -> object:
        item = slot.item
        if item.value_kind == "object":
            one = self._object(item)
            return None if one is None else [one]
        fits = {value: self._score(item, value) for value in self.unused}
        kinds = {value.kind for value, fit in fits.items() if fit == max(fits.values()) > 0}
        chosen = [value for value, fit in fits.items() if fit > 0 and value.kind in kinds]
        self.unused = [value for value in self.unused if value not in chosen]
        following = self._text_after_name(item, item.words) if not chosen and item.value_kind == "text" else None
        found = [_convert(item, value) for value in chosen] or ([following[1]] if following else [])
        return found or ([] if nested and not slot.schema.get("minItems") else None)

    def _object(self, slot: Slot) -> object:
        if not slot.slots:
            return None
        inner = replace(self, slots=slot.slots, given={}, unused=list(self.unused))
        inner.fill_from_task()
        for one in slot.slots:
            if one.name in inner.given or not one.required:
                continue
            if one.value_kind == "array":
                items = inner.items(one, nested=True)
                inner.given |= {} if items is None else {one.name: [items]}
            elif not inner.derive(one):
                return None
        self.unused = inner.unused
        return {name: given[0] for name, given in inner.given.items() if given}

    def _text_after_name(self, slot: Slot, names: frozenset[str]) -> tuple[int, str] | None:
        """Return position and text after a name of the slot in the task, as in `type person` or `message: fix it`."""
        for match in _WORD.finditer(self.task):
            if names.isdisjoint(tokens(match[0])):
                continue
            after = _INTRODUCTION.match(self.task, match.end())
            start = after.end() if after else match.end()
            rest = self.task[start:].strip(" .?!\"'")
            if slot.is_free_text and rest:
                return start, rest
            word = _IDENTIFIER.match(self.task, start)
            if word and STOP_WORDS.union(slot.words).isdisjoint(tokens(word[0])):
                return start, word[0].rstrip(".")
        return None

    def _from_context(self, slot: Slot) -> object:
        unknown_place = slot.value_kind == "zone" and any(value.kind == "name" for value in self.unused)
        if slot.value_kind in ("text", "glob") or unknown_place:
            return None
        for text in self.context:
            plain_text = re.sub(r"(?<=\d)T(?=\d\d:)", " ", text.replace('"', " "))
            fitting = [value for value in extract_values(plain_text) if value.kind == slot.value_kind]
            found = list(dict.fromkeys(_convert(slot, value) for value in fitting))
            if found and (slot.value_kind in ("zone", "date", "time") or len(found) == 1):
                self.from_context += 1
                return found[0]
        return None

    def _remainder(self, slot: Slot) -> str | None:
        """Return the task without leading words that only name the tool, for a free-text slot."""
        if slot.value_kind != "text" or not slot.is_free_text or self.no_free_text:
            return None
        skipped = self.about.union(STOP_WORDS - GREETINGS, IMPERATIVE_VERBS, slot.words)
        for match in _WORD.finditer(mask_values(self.task)):
            if not skipped.issuperset(tokens(match[0])):
                return self.task[match.start() :].strip(" .?!")
        return None

    def _default(self, slot: Slot) -> object:
        """Return the default in the description, unless the task contains an unused value for this slot."""
        if any(value.kind in ("name", slot.value_kind) for value in self.unused):
            return None
        return slot.default

    def _score(self, slot: Slot, value: Value) -> float:
        """Return the score of a value for a slot: 0 if it does not fit, about 1 by kind, more by context."""
        base = _kind_score(slot, value)
        before = list(tokens(self.task[max(0, value.start - _WINDOW) : value.start])[-3:])
        affinity = _context_score(slot, value, self.task, before, self.about) if base else 0.0
        optional = value.kind == "number" or (slot.value_kind == "text" and (slot.is_identifier or not slot.required))
        return base + affinity if affinity > 0 or not optional or (value.kind == "number" and slot.required) else 0.0


def _is_mentioned(choice: str, words: Sequence[str]) -> bool:
    wanted = tokens(choice)
    return bool(wanted) and any(tuple(words[i : i + len(wanted)]) == wanted for i in range(len(words)))


def _kind_score(slot: Slot, value: Value) -> float:
    wanted = slot.value_kind
    if wanted == "number":
        return 0.1 if value.kind == "number" and _convert(slot, value) is not None else 0.0
    if wanted == "text":
        return _TEXT_SCORES.get(value.kind, 0.0)
    if wanted in ("path", "glob", "url", "zone") and value.kind == "quoted":
        return 0.5 if wanted == "path" or " " not in value.value else 0.0
    return float(value.kind == wanted)


def _context_score(slot: Slot, value: Value, task: str, before: list[str], about: frozenset[str]) -> float:
    """Return the score of a value for a slot by the words around it."""
    if value.kind == "number":
        after = [word for word in tokens(task[value.end : value.end + _WINDOW])[:2] if word not in STOP_WORDS]
        amount = bool(slot.words & _AMOUNT) and (
            bool(about.intersection(after)) or bool(_RANKS.intersection(before[-1:]))
        )
        return slot.overlap([*before[-1:], *after]) + (1.0 if amount else 0.0)
    bonus = 1.5 if before and before[-1] in slot.words else 0.5 if slot.words.intersection(before) else 0.0
    if value.kind == "path":
        bonus += 0.4 if bool(slot.words & _FOLDER) != ("." in value.value.rsplit("/", 1)[-1]) else 0.0
    elif value.kind == "name":
        bonus += 0.6 if "nam" in slot.words else 0.0
    if before and before[-1] in _BEFORE_SOURCE:
        bonus += 1.0 if slot.words & _SOURCE else 0.0
    elif before and before[-1] in _BEFORE_TARGET:
        bonus += 1.0 if slot.words & _TARGET else 0.0
    elif slot.words & _SOURCE and any(
        near.kind == "time" and abs(value.start - near.end) < 6 for near in extract_values(task)
    ):
        bonus += 0.5
    return bonus


def _convert(slot: Slot, value: Value) -> object:
    """Convert a value to the type of the slot; None for an invalid number."""
    if slot.value_kind == "number":
        return _parse_number(slot, value.value)
    if slot.value_kind == "time" and re.search(r"HH:MM|24", slot.description):
        return to_24_hour_time(value.value)
    return value.text if slot.value_kind == "text" and value.kind == "zone" else value.value


def _parse_number(slot: Slot, text: str) -> int | float | None:
    plain = text.replace(",", "")
    if not re.fullmatch(r"-?\d{1,15}(\.\d{1,15})?", plain) or ("." in plain and "integer" in slot.types):
        return None
    number = float(plain) if "." in plain else int(plain)
    lowest, highest = slot.schema.get("minimum"), slot.schema.get("maximum")
    below = isinstance(lowest, int | float) and number < lowest
    above = isinstance(highest, int | float) and number > highest
    return None if below or above else number
