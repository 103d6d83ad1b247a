"""Comments and trailing commas in configuration files, as editors and other MCP hosts allow them in JSON."""

import re
from typing import Final

_STRING: Final = r'"(?:\\.|[^"\\\n])*"'
_COMMENT: Final = re.compile(rf"({_STRING})|//[^\n]*|/\*.*?\*/", re.DOTALL)
_TRAILING_COMMA: Final = re.compile(rf"({_STRING})|,(?=\s*[}}\]])")
_VISIBLE: Final = re.compile(r"[^\n]")


def without_comments(text: str) -> str:
    """Return `text` with spaces in place of comments and trailing commas: every other character keeps its place.

    So the places in the errors of a JSON parser stay true, which the libraries for such files don't offer.
    """
    plain = _COMMENT.sub(lambda found: found[1] or _VISIBLE.sub(" ", found[0]), text)
    return _TRAILING_COMMA.sub(lambda found: found[1] or " ", plain)
