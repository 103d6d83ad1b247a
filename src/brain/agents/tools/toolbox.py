"""The tools of an agent under names that model endpoints accept, and the built-in `continue`."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Self

from starling.core.agents import SPECIALIST_PREFIX
from starling.core.artifacts import READ_ARTIFACT
from starling.core.json_schemas.subschemas import with_numeric_bounds
from starling.core.llm import ToolSpec
from starling.core.model_output.names import aliases, near_matches, resolve
from starling.core.tool_calls import Observation
from starling.core.tools import CONTINUE, ToolDefinition, ToolOutcome

_CONTINUE_SPEC = ToolSpec(
    CONTINUE,
    "Call it beside other tools to see their results before further calls.",
    {"type": "object", "properties": {}},
)
_BUILT_IN: Final = (CONTINUE, READ_ARTIFACT)
_INVALID = re.compile(r"[^A-Za-z0-9_-]")
_MAX_NAME = 64


@dataclass(frozen=True, slots=True)
class Toolbox:
    """Tools by the name that the model calls them by, and those names by others that mean them, in plain form."""

    tools: Mapping[str, ToolDefinition]
    specs: tuple[ToolSpec, ...]
    other_names: Mapping[str, str]

    @classmethod
    def of(cls, tools: Iterable[ToolDefinition], *, reserved: Collection[str] = ()) -> Self:
        """Return a toolbox; names that are `reserved`, or collide without invalid characters, get a number."""
        named: dict[str, ToolDefinition] = {}
        for tool in tools:
            wanted = _INVALID.sub("_", tool.name)[:_MAX_NAME] or "tool"
            name, number = wanted, 2
            while name in named or name in reserved or name in _BUILT_IN:
                suffix = f"_{number}"
                name, number = wanted[: _MAX_NAME - len(suffix)] + suffix, number + 1
            named[name] = tool
        schemas = {name: with_numeric_bounds(tool.input_schema) for name, tool in named.items()}
        specs = tuple(ToolSpec(name, tool.description, schemas[name]) for name, tool in named.items())
        other_names = _other_names(tuple((name, tool.name, tool.full_name) for name, tool in named.items()))
        return cls(named, (*specs, _CONTINUE_SPEC) if specs else (), other_names)

    def specs_of(self, names: Collection[str]) -> tuple[ToolSpec, ...]:
        """Return the tools of these names, in the order of the toolbox, and `continue`."""
        return tuple(spec for spec in self.specs if spec.name == CONTINUE or self.tools[spec.name].name in names)

    def tool(self, written: str) -> ToolDefinition | None:
        """Return the tool that a name means, None where it could mean none or several."""
        return self.tools.get(written) or self.tools.get(resolve(written, self.other_names) or "")

    def unknown(self, written: str) -> str:
        """Return the error for a name that means no tool, with the nearest names."""
        near = near_matches(written, self.tools)
        return f"There is no tool {written!r}.{f' Did you mean {" or ".join(near)}?' if near else ''}"


@lru_cache(maxsize=1_024)
def _other_names(tools: Sequence[tuple[str, str, str]]) -> Mapping[str, str]:
    """Return names that models write for tools; the long ones name the server, so that no other server's is meant."""
    prefixes = ("", SPECIALIST_PREFIX, "mcp_")
    return aliases({name: (own, *(f"{prefix}{full}" for prefix in prefixes)) for name, own, full in tools})


def not_made(text: str, code: str = "invalid_arguments") -> ToolOutcome:
    """Return the outcome of a call that can't be made."""
    return ToolOutcome(Observation.NOT_SENT, text, code=code)
