"""Prompts: one file each, system text over user text, with XML sections for everything that is data."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from string import Template
from xml.sax.saxutils import escape, quoteattr

from starling.core.json import digest
from starling.core.llm import Message, PromptVersion

_ATTRIBUTE = re.compile(r'="\$(\w+)"')


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
    """A prompt of a version, ready to be filled."""

    name: str
    version: str  # the digest of its text
    system: Template
    user: str
    attributes: frozenset[str]  # the sections that are values of attributes

    @property
    def used(self) -> PromptVersion:
        """What a request that is made with it names."""
        return PromptVersion(self.name, self.version)

    def fill(self, **sections: str | None) -> tuple[Message, Message]:
        """Return the system and the user message; the line of a section that is None is left out of the latter.

        Raises KeyError for a section that is missing.
        """
        values = {
            name: _escaped(value, in_attribute=name in self.attributes)
            for name, value in sections.items()
            if value is not None
        }
        left_out = {f"${name}<" for name, value in sections.items() if value is None}
        shown = [line for line in self.user.splitlines() if not any(section in line for section in left_out)]
        user = Template("\n".join(shown)).substitute(values)
        return Message("system", self.system.substitute(values)), Message("user", user)


@cache
def prompt(name: str) -> Prompt:
    """Return the prompt of `<name>.md` beside this module."""
    text = files(__name__).joinpath(f"{name}.md").read_text("utf-8")
    system, _, user = text.partition("\n---\n")
    attributes = frozenset(_ATTRIBUTE.findall(user))
    return Prompt(name, digest(text), Template(system.strip()), user.strip(), attributes)


NAMES = (
    "supervisor", "specialist", "generalist", "coder", "custom", "custom_tools", "crewai", "reflection",
    "reviewer", "qa", "judge", "designer",
)  # fmt: skip


def versions() -> dict[str, str]:
    """Return the version of each prompt, as an epoch's manifest names them."""
    return {name: prompt(name).version for name in NAMES}
