"""Prompts: one file each, system text over user text, with XML sections for everything that is data."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Self
from xml.sax.saxutils import escape, quoteattr

from brain.prompts.templates import LineTemplate, Template, divided, joined
from starling.core.json import digest
from starling.core.llm import Message, PromptVersion
from starling.core.prompts import PROMPT_NAMES as NAMES

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
