"""Parser for the XML sections of prompts."""

import html
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from starling.core.json import Json
from starling.core.llm import Message

_ATTRIBUTE = re.compile(r"""([\w:.-]+)=("[^"]*"|'[^']*')""")


@dataclass(frozen=True, slots=True)
class Element:
    """An XML element: attributes, inner text (`raw`) and unescaped inner text (`text`)."""

    attributes: Mapping[str, str]
    raw: str

    @property
    def text(self) -> str:
        return html.unescape(self.raw).strip()

    def get(self, name: str) -> str:
        return self.attributes.get(name, "")


def elements(text: str, tag: str) -> Iterator[Element]:
    """Yield the elements with a tag. Data in prompts is escaped and can't contain elements."""
    for match in re.finditer(rf"<{tag}((?:\s[^<>]*)?)>(.*?)</{tag}>", text, re.DOTALL):
        pairs = {name: html.unescape(value[1:-1]) for name, value in _ATTRIBUTE.findall(match[1])}
        yield Element(pairs, match[2])


class PromptSections:
    """The sections of all user messages; of a repeated section the last one is used."""

    def __init__(self, messages: tuple[Message, ...]) -> None:
        self._text = "\n".join(message.content for message in messages if message.role == "user")

    def __contains__(self, tag: str) -> bool:
        return f"<{tag}>" in self._text or f"<{tag} " in self._text

    def element(self, tag: str) -> Element:
        """Return a section, or an empty element."""
        found = Element({}, "")
        for item in elements(self._text, tag):
            found = item
        return found

    def text(self, tag: str) -> str:
        """Return the unescaped text of a section."""
        return self.element(tag).text

    def children(self, tag: str, child: str) -> list[Element]:
        """Return the elements inside a section."""
        return list(elements(self.element(tag).raw, child))


def parse_json(text: str) -> Json:
    """Return the JSON object or array in a text, else None."""
    stripped = text.strip()
    if not stripped.startswith(("{", "[")):
        return None
    try:
        return cast("Json", json.loads(stripped))
    except (ValueError, RecursionError):
        return None


def leaves(value: object, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    """Yield `(path, scalar)` for every scalar in a JSON value, in order."""
    stack: list[tuple[tuple[str, ...], object]] = [(path, value)]
    while stack:
        where, item = stack.pop()
        if isinstance(item, dict):
            pairs = cast("dict[str, object]", item).items()
            stack.extend(reversed([((*where, key), inner) for key, inner in pairs]))
        elif isinstance(item, list):
            stack.extend(reversed([(where, inner) for inner in cast("list[object]", item)]))
        else:
            yield where, item


def values_text(data: object) -> str:
    """Return all scalars of a JSON value, one per line, including those of JSON in strings."""
    texts = (str(leaf) for _, leaf in leaves(data))
    inner = ((text, parse_json(text)) for text in texts)
    return "\n".join(text if found is None else values_text(found) for text, found in inner)
