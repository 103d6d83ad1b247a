"""Patterns of names, and what each demands in words."""

from collections.abc import Mapping
from typing import Final

AGENT_NAME: Final = r"^[a-z0-9][a-z0-9_-]{0,47}$"
MEMBER_NAME: Final = r"^[a-z0-9][a-z0-9_]{0,31}$"
TOOL_NAME: Final = r"^[^.\s]+\.\S+$"
PRINTABLE_NAME: Final = r"^[^\x00-\x1f\x7f]+$"

_NAME: Final = "must be at most {} lower-case letters, digits{} and {}, and begin with a letter or a digit"
IN_WORDS: Final[Mapping[str, str]] = {
    AGENT_NAME: _NAME.format(48, ", _", "-"),
    MEMBER_NAME: _NAME.format(32, "", "_"),
    TOOL_NAME: "must be the full name of a tool, `server.tool`",
    PRINTABLE_NAME: "must not have control characters",
}
"""What is wrong with a text that doesn't match a pattern."""
