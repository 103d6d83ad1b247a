"""Prompts: one file each, system text over user text, with XML sections for everything that is data."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any, Final, Self
from xml.sax.saxutils import escape, quoteattr

from pydantic import BaseModel

from starling.core.json import digest
from starling.core.llm import Message, PromptVersion, ResponseSchema
from starling.core.prompts import PROMPT_NAMES as NAMES

_VARIABLE: Final = re.compile(r"\{\{\s*([A-Za-z_]\w*)\s*\}\}")
_DIVIDER: Final = "\n---\n"
_TAG: Final = re.compile(r"<(/?)([A-Za-z_][\w.-]*)[^<>]*?(/?)>")


@dataclass(frozen=True, slots=True)
class Template:
    """A text; its `parts` are literal texts with the names of variables between them."""

    parts: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> Self:
        """Parse a text. Braces that are not a variable are literal."""
        return cls(tuple(_VARIABLE.split(text)))

    @property
    def names(self) -> tuple[str, ...]:
        """The variables, in their order."""
        return self.parts[1::2]

    @property
    def literals(self) -> tuple[str, ...]:
        return self.parts[::2]

    def fill(self, values: Mapping[str, str]) -> str:
        """Return the text with values in place of variables. Raises KeyError for a variable without a value."""
        parts = [*self.parts]
        parts[1::2] = [values[name] for name in self.names]
        return "".join(parts)


@dataclass(frozen=True, slots=True)
class LineTemplate:
    """A text by lines: one that stands for a single variable is left out where that has no value.

    A line that has only the beginning or the end of an element is never left out.
    """

    lines: tuple[Template, ...]

    @classmethod
    def of(cls, text: str) -> Self:
        return cls(tuple(map(Template.of, text.splitlines())))

    @property
    def names(self) -> tuple[str, ...]:
        """The variables, in their order."""
        return tuple(name for line in self.lines for name in line.names)

    def fill(self, values: Mapping[str, str], absent: Iterable[str]) -> str:
        """Return the text; of `absent` variables, those that share a line are empty. Raises KeyError as `Template`."""
        alone = {(name,) for name in absent}
        given = {**dict.fromkeys(absent, ""), **values} if alone else values
        kept = (line for line in self.lines if line.names not in alone or not _is_whole(line))
        return "\n".join(line.fill(given) for line in kept)


def _is_whole(line: Template) -> bool:
    """Whether each element that begins in a line ends there, and the other way round."""
    begun: list[str] = []
    for closing, name, empty in _TAG.findall("".join(line.literals)):
        if not closing and not empty:
            begun.append(name)
        elif closing and (not begun or begun.pop() != name):
            return False
    return not begun


def divided(text: str) -> tuple[str, str | None]:
    """Return the instructions and the data part of a text; None where it has no line `---`."""
    lines = text.replace("\r\n", "\n")
    instructions, divider, data = f"{lines}\n".rpartition(_DIVIDER)
    return (instructions.strip(), data.strip()) if divider else (lines.strip(), None)


def joined(instructions: str, data: str) -> str:
    """Return the whole text of a prompt, of which its hash is made."""
    return f"{instructions}{_DIVIDER}{data}"


_ATTRIBUTE = re.compile(r'="\{\{\s*(\w+)\s*\}\}"')


class Xml(str):
    """Text that is XML already; all other text is escaped where it enters a prompt."""

    __slots__ = ()


def element(tag: str, content: str, /, **attributes: str) -> Xml:
    """Return one element, its content and attributes escaped; quotes need that in attributes only."""
    pairs = "".join(f" {name}={quoteattr(value)}" for name, value in attributes.items())
    return Xml(f"<{tag}{pairs}>{_escaped(content)}</{tag}>")


def lines(elements: Iterable[Xml]) -> Xml:
    """Return elements one a line."""
    return Xml("\n".join(elements))


def _escaped(value: str, *, in_attribute: bool = False) -> str:
    if isinstance(value, Xml):
        return value
    return escape(value, {'"': "&quot;"} if in_attribute else {})


@dataclass(frozen=True, slots=True)
class Prompt:
    """A wording of a prompt, ready to be filled. `used` is what a request that is made with it names."""

    used: PromptVersion
    system: Template
    user: LineTemplate
    attributes: frozenset[str]  # the sections that are values of attributes

    @classmethod
    def of(cls, text: str, used: PromptVersion) -> Self:
        """Return the prompt of a whole text."""
        system, user = divided(text)
        return cls(used, Template.of(system), LineTemplate.of(user or ""), frozenset(_ATTRIBUTE.findall(user or "")))

    def fill(self, **sections: str | None) -> tuple[Message, Message]:
        """Return the system and the user message; the line of a section that is None is left out of the latter.

        Raises KeyError for a section that is missing.
        """
        values = {
            name: _escaped(value, in_attribute=name in self.attributes)
            for name, value in sections.items()
            if value is not None
        }
        absent = sections.keys() - values.keys()
        return Message("system", self.system.fill(values)), Message("user", self.user.fill(values, absent))


def with_instructions(messages: tuple[Message, Message], instructions: str) -> tuple[Message, Message]:
    """Return the messages of a prompt with what the client says of the conversation, if anything, among the data."""
    if not instructions:
        return messages
    system, user = messages
    given = element("client_instructions", instructions)
    return system, replace(user, content=f"{user.content}\n{given}")


@cache
def program_text(name: str) -> str:
    """Return the whole text of `<name>.md` beside this module."""
    system, user = divided(files(__name__).joinpath(f"{name}.md").read_text("utf-8"))
    return joined(system, user or "")


@cache
def prompt(name: str) -> Prompt:
    """Return the prompt that the program itself has under a name."""
    text = program_text(name)
    return Prompt.of(text, PromptVersion(name, digest(text)))


def versions() -> dict[str, str]:
    """Return the hash of each prompt of the program, as an epoch's manifest names them."""
    return {name: prompt(name).used.hash for name in NAMES}


@dataclass(frozen=True, slots=True)
class PromptSet:
    """The wordings that a run works with; those of the program where nothing else is pinned."""

    pinned: Mapping[str, Prompt] = field(default_factory=dict[str, Prompt])

    def __getitem__(self, name: str) -> Prompt:
        return self.pinned.get(name) or prompt(name)


PROGRAM_PROMPTS = PromptSet()


_OMITTED: Final = frozenset({"title", "description", "default", "$defs"})


def response_schema(
    name: str, document: type[BaseModel], *, optional: Sequence[str] = (), without: Sequence[str] = ()
) -> ResponseSchema:
    """Return the schema of a document as models are asked for it: they write every member, for strict decoding.

    Only members that are `optional` may be left out, and those of `without` aren't asked for. Recorded answers are
    found by the digest of this schema too.
    """
    full = document.model_json_schema()
    schema = _compact(full, full.get("$defs", {}))
    for member in without:
        del schema["properties"][member]
    return ResponseSchema(name, {**schema, "required": [it for it in schema["properties"] if it not in optional]})


def _compact(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema without what only lengthens a prompt, which says what the members are; all are required.

    Definitions are put where they are referred to; titles, descriptions and defaults are left out.
    """
    if reference := schema.get("$ref"):
        schema = definitions[reference.removeprefix("#/$defs/")]
    compact = {key: value for key, value in schema.items() if key not in _OMITTED}
    if "items" in compact:
        compact["items"] = _compact(compact["items"], definitions)
    if "properties" in compact:
        compact["properties"] = {name: _compact(item, definitions) for name, item in compact["properties"].items()}
        compact["required"] = [*compact["properties"]]
    return compact
