"""The tools of an agent under names that model endpoints accept, and the built-in `continue`."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Self

from starling.core.artifacts import READ_ARTIFACT
from starling.core.llm import ToolSpec
from starling.core.tools import ToolDefinition

CONTINUE: Final = "continue"
_CONTINUE_SPEC = ToolSpec(
    CONTINUE,
    "Call beside other tools to see their results and go on with further calls.",
    {"type": "object", "properties": {"why": {"type": "string"}}, "required": []},
)
_BUILT_IN: Final = (CONTINUE, READ_ARTIFACT)
_INVALID = re.compile(r"[^A-Za-z0-9_-]")
_MAX_NAME = 64


@dataclass(frozen=True, slots=True)
class Toolbox:
    """Tools by the name that the model calls them by."""

    tools: Mapping[str, ToolDefinition]
    specs: tuple[ToolSpec, ...]

    @classmethod
    def of(cls, tools: Iterable[ToolDefinition]) -> Self:
        """Return a toolbox; names that collide after invalid characters are replaced get a number."""
        named: dict[str, ToolDefinition] = {}
        for tool in tools:
            named[_free_name(_INVALID.sub("_", tool.name)[:_MAX_NAME] or "tool", named)] = tool
        specs = tuple(ToolSpec(name, tool.description, tool.input_schema) for name, tool in named.items())
        return cls(named, (*specs, _CONTINUE_SPEC) if specs else ())


def _free_name(wanted: str, taken: Mapping[str, object]) -> str:
    name, number = wanted, 2
    while name in taken or name in _BUILT_IN:
        suffix = f"_{number}"
        name, number = wanted[: _MAX_NAME - len(suffix)] + suffix, number + 1
    return name
