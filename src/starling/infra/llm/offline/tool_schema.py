"""JSON schemas of tools as slots to be filled."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

from starling.infra.llm.offline.tokenization import normalize, tokens

type ValueKind = Literal[
    "zone", "path", "url", "email", "date", "time", "glob", "revision", "number", "boolean", "array", "object", "text"
]
type Schema = Mapping[str, object]

_DEPTH = 8
_BY_NAME: tuple[tuple[ValueKind, str], ...] = (
    ("zone", "timezone tz zone"),
    ("url", "url uri link href"),
    ("email", "email mail"),
    ("path", "path paths filepath filename directory dir folder cwd"),
    ("glob", "pattern glob"),
    ("revision", "revision commit sha"),
    ("date", "date timestamp datetime"),
)
_BY_LAST: tuple[tuple[ValueKind, str], ...] = (("path", "file repo repository"), ("time", "time"))
_FORMATS: Mapping[object, ValueKind] = {
    "uri": "url",
    "url": "url",
    "email": "email",
    "date": "date",
    "date-time": "date",
}
_CHOICES = re.compile(r"""['"`]([\w-]+)['"`]""")
_DEFAULT = re.compile(
    r"""use ['"`]([^'"`]+)['"`][^.]*\b(?:if no|when no|default|unless|not provided|omitted)""", re.IGNORECASE
)
_FREE_TEXT_NAMES = frozenset(
    tokens("query message text content thought prompt question topic input description body note search comment title")
)


@dataclass(frozen=True, slots=True)
class Slot:
    """A property of a tool's arguments. `choices` are its allowed values, if limited."""

    name: str
    schema: Schema
    required: bool
    root: Schema

    @property
    def description(self) -> str:
        return str(self.schema.get("description") or self.schema.get("title") or "")

    @property
    def words(self) -> frozenset[str]:
        return frozenset(tokens(self.name))

    @property
    def types(self) -> tuple[object, ...]:
        kind = self.schema.get("type")
        return tuple(cast("Sequence[object]", kind)) if isinstance(kind, list) else (kind,)

    @property
    def choices(self) -> tuple[object, ...]:
        listed = self.schema.get("enum")
        if isinstance(listed, list):
            return tuple(cast("list[object]", listed))
        if "const" in self.schema:
            return (self.schema["const"],)
        found = () if re.search(r"e\.g|xample", self.description) else tuple(_CHOICES.findall(self.description))
        return found if len(found) > 1 else ()

    @property
    def default(self) -> str | None:
        """The default value named in the description."""
        found = _DEFAULT.search(self.description)
        return found[1] if found else None

    @property
    def is_free_text(self) -> bool:
        """Whether any text is valid, as for a query or a message."""
        return bool(self.words & _FREE_TEXT_NAMES)

    @property
    def is_identifier(self) -> bool:
        return bool(self.words & {"id", "sha", "key", "token", "hash", "revision", "uuid"})

    @property
    def value_kind(self) -> ValueKind:
        """The kind of value, by type, format, name and description."""
        for kind in self.types:
            if kind in ("integer", "number"):
                return "number"
            if kind in ("boolean", "array", "object"):
                return cast("ValueKind", kind)
        if "properties" in self.schema:
            return "object"
        return self._text_kind()

    def _text_kind(self) -> ValueKind:
        by_format = _FORMATS.get(str(self.schema.get("format")))
        if by_format:
            return by_format
        for kind, names in _BY_NAME:
            if self.words.intersection(tokens(names)):
                return kind
        for kind, names in _BY_LAST:
            if set(tokens(self.name)[-1:]).intersection(tokens(names)):
                return kind
        return "zone" if re.search(r"\btime ?zone\b|\biana\b", normalize(self.description)) else "text"

    @property
    def item(self) -> "Slot":
        """The slot of one item of an array."""
        return Slot(self.name, resolve_schema(self.schema.get("items"), self.root), True, self.root)

    @property
    def slots(self) -> "list[Slot]":
        return schema_slots(self.schema, self.root)

    def overlap(self, words: Sequence[str]) -> int:
        """Return how many of the stems occur in name or description."""
        about = self.words.union(tokens(self.description))
        return len(about.intersection(words))


def _mapping(value: object) -> Schema:
    return cast("Schema", value) if isinstance(value, Mapping) else {}


def resolve_schema(value: object, root: Schema, depth: int = 0) -> Schema:
    """Return a schema with references resolved and the first alternative that is not null."""
    schema = _mapping(value)
    if depth > _DEPTH:
        return {}
    reference = schema.get("$ref")
    if isinstance(reference, str):
        target: object = root
        for step in reference.removeprefix("#/").split("/"):
            target = _mapping(target).get(step)
        return {
            **resolve_schema(target, root, depth + 1),
            **{key: item for key, item in schema.items() if key != "$ref"},
        }
    for key in ("anyOf", "oneOf", "allOf"):
        options = schema.get(key)
        if isinstance(options, list):
            several = [resolve_schema(option, root, depth + 1) for option in cast("list[object]", options)[:_DEPTH]]
            chosen: Schema = next((option for option in several if option.get("type") != "null"), _mapping(None))
            return {**chosen, **{name: item for name, item in schema.items() if name != key}}
    return schema


def schema_slots(schema: object, root: Schema | None = None) -> list[Slot]:
    """Return the slots of an object schema, required ones first."""
    base = _mapping(schema)
    root = base if root is None else root
    base = resolve_schema(base, root)
    required = base.get("required")
    names = set(map(str, cast("list[object]", required))) if isinstance(required, list) else set[str]()
    found = [
        Slot(name, resolve_schema(item, root), name in names, root)
        for name, item in _mapping(base.get("properties")).items()
    ]
    return sorted(found, key=lambda slot: not slot.required)
