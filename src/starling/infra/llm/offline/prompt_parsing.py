"""Parser for the XML sections of prompts and the JSON in results."""

import html
import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple, cast


class Element(NamedTuple):
    """An XML element: attributes and inner text, which is escaped in `raw`."""

    attributes: dict[str, str]
    raw: str

    @property
    def text(self) -> str:
        return html.unescape(self.raw).strip()

    def get(self, name: str) -> str:
        return self.attributes.get(name, "")

    def children(self, tag: str) -> list["Element"]:
        """Return the elements with a tag. Data in prompts is escaped and can't contain elements."""
        found = re.finditer(rf"<{tag}((?:\s[^<>]*)?)>(.*?)</{tag}>", self.raw, re.DOTALL)
        pairs = [(re.findall(r"""([\w:.-]+)=("[^"]*"|'[^']*')""", match[1]), match[2]) for match in found]
        return [Element({key: html.unescape(text[1:-1]) for key, text in given}, raw) for given, raw in pairs]

    def child(self, tag: str) -> "Element":
        """Return the last element with a tag, or an empty one."""
        return next(iter(self.children(tag)[::-1]), Element({}, ""))


def parse_json(text: str) -> Any:
    """Return the JSON object or array in a text, else None."""
    try:
        return json.loads(text) if text.lstrip().startswith(("{", "[")) else None
    except (ValueError, RecursionError):
        return None


def leaves(value: object) -> Iterator[tuple[str, object]]:
    """Yield the scalars of a JSON value in order, each with the keys that lead to it."""
    stack: list[tuple[str, Any]] = [("", value)]
    while stack:
        path, item = stack.pop()
        if isinstance(item, dict | list):
            items = cast("dict[str, Any] | list[Any]", item)
            pairs = list(items.items()) if isinstance(items, dict) else [("", inner) for inner in items]
            stack += [(f"{path} {key}".strip(), inner) for key, inner in reversed(pairs)]
        else:
            yield path, item
