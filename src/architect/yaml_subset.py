"""The part of YAML that JSON has too: no aliases, tags, dates or several documents; keys are texts, each used once."""

import re
from collections.abc import Hashable
from typing import Any, Final, cast

import yaml

from starling.core.json import canonical

DEEPEST: Final = 50
"""How many objects and lists may be inside one another."""
DIGITS: Final = 19
"""How many digits an integer may have; a longer one is a text."""
_OTHER_BREAKS: Final = re.compile("[\x85\u2028\u2029]")
_TAG: Final = "tag:yaml.org,2002:"


def load_yaml(text: str) -> object:
    """Return the data of a document; `yes`, `2026-01-01` and `010` are texts. Raises YAMLError."""
    return yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader that takes less


def dump_yaml(document: object) -> str:
    """Return a document that `load_yaml` reads as the same data."""
    lines_kept = not _OTHER_BREAKS.search(canonical(document))  # PyYAML would write these as line breaks
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=lines_kept, width=100)


def _fault(problem: str, place: yaml.Node | yaml.Event) -> yaml.MarkedYAMLError:
    mark = cast("yaml.Mark | None", place.start_mark)
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)


class _Loader(yaml.SafeLoader):
    """Reads the part of YAML that JSON has too."""

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event = cast("yaml.Event", self.peek_event())
        if isinstance(event, yaml.AliasEvent):
            raise _fault("aliases are not allowed", event)
        if getattr(event, "tag", None) is not None:
            raise _fault("tags are not allowed", event)
        if self._depth == DEEPEST:
            raise _fault("it is nested too deeply", event)
        self._depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys: set[str] = set()
        for key, _ in cast("list[tuple[yaml.Node, yaml.Node]]", node.value):
            if key.tag != f"{_TAG}str":
                raise _fault("a key must be a text", key)
            if key.value in keys:
                raise _fault(f"the key {key.value!r} is used twice", key)
            keys.add(key.value)
        return super().construct_mapping(node, deep)


# no more than those of PyYAML, so that what it writes without quotes is read as what it was
_Loader.yaml_implicit_resolvers = {}
for _name, _pattern, _first in (
    ("null", r"^(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", list("tTfF")),
    ("int", rf"^[-+]?(?:0|[1-9][0-9]{{0,{DIGITS - 1}}})$", list("-+0123456789")),
    ("float", r"^[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+][0-9]+)?$", list("-+.0123456789")),
):
    _Loader.add_implicit_resolver(f"{_TAG}{_name}", re.compile(_pattern), _first)
