"""Wordings of prompts in lines of output."""

from collections.abc import Mapping
from typing import Any, Final

HASH_CHARS: Final = 12


def place(wording: Mapping[str, Any] | None) -> str:
    """Return where a text is from and how its hash begins."""
    return f"{source(wording)} ({wording['hash'][:HASH_CHARS]})" if wording else "nothing"


def source(wording: Mapping[str, Any]) -> str:
    """Return where a text is from: the name and version that it has in Langfuse, or `local`."""
    if wording["source"] == "local":
        return "local"
    return f"{wording['source']} {wording['remote_name']} v{wording['version']}"
