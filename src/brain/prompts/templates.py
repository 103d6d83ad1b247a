"""Texts with `{{variables}}`, in the syntax of Langfuse."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Self

_VARIABLE: Final = re.compile(r"\{\{\s*([A-Za-z_]\w*)\s*\}\}")
_DIVIDER: Final = "\n---\n"
_TAG: Final = re.compile(r"<(/?)([A-Za-z_][\w.-]*)[^<>]*?(/?)>")


@dataclass(frozen=True, slots=True)
class Template:
    """A text; its `parts` are literal texts with the names of variables between them."""

    parts: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> Self:
        """Parse a text. Braces that are no variable are literal."""
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
