"""Finds hidden characters in what servers list, and wordings that address an agent. Pure.

Hidden characters keep a tool in quarantine. Wordings keep a skill there; of a tool they are only hints for who approves
it: what looks for words in one language is never complete. “Always”, “remember” and “you must” stand in ordinary mails
and documentation and are not looked for. Whatever a text says, it is data in a prompt and widens no grant.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import cache
from html import unescape
from typing import Final

_ACT: Final = (
    r"(?:call|use|invoke|run|execute|look\s+up|query|send|forward|transfer|answer|reply|respond|return|say|read)"
)
_RULES: Final = r"(?:instructions?|rules?|prompts?|guidelines?|restrictions?|safety|security|polic(?:y|ies)|filters?)"
_ELEMENTS: Final = (
    "system|skill|task|instructions?|user_(?:request|goal)|assistant|untrusted|tool_(?:output|result)|memory|reflection"
    "|agent_card"
)
_INSTRUCTIONS: Final[tuple[str, int]] = (
    rf"""
    \b(?:ignore|disregard|forget|override|bypass|skip)\b[^.\n]{{0,15}}
        \b(?:all|any|previous|prior|above|earlier|your|safety|security)\b[^.\n]{{0,40}}\b{_RULES}\b
    | \b(?:ignore|disregard|forget|override)\b[^.\n]{{0,15}}\b{_RULES}\s+(?:above|before|so\s+far|you)\b
    | \b(?:system|safety|instruction)s?\s+(?:override|bypass)\b
    | \b(?:hidden|system|role|override|emergency)\s+(?:directive|instruction)
    | \b(?:reveal|print|show|output|repeat|leak|replace|ignore)\b[^.\n]{{0,30}}\byour\s+(?:system|developer)\s+prompt\b
    | (?:^|\n)[ \t]{{0,20}}(?:system|developer|assistant)[ ]?:\s{{0,20}}
        (?:you|call|use|ignore|trust|run|invoke|execute|forget|send)\b
    | \bfrom\s+now\s+on,?\s+(?:you|always|never|answer|reply|respond|call|invoke|ignore|treat)\b
    | \b(?:in|for|on)\s+(?:all\s+|any\s+|every\s+)?future\s+(?:tasks?|requests?|runs?|quer(?:y|ies)|sessions?|prompts?)
        \b[^.\n]{{0,20}}\b(?:always|never|you|{_ACT})\b
    | \b(?:when(?:ever)?|if|once|each\s+time|every\s+time)\s+(?:you(?:'re|\s+are)\s+|someone\s+is\s+|ever\s+)?asked\b
        [^.\n]{{0,80}}\b(?:remember|always|never|must|instead|{_ACT})\b
    | \b(?:always|never)\s+{_ACT}\b[^.\n]{{0,20}}\b(?!\w+\.\w+\()\w+[._]\w+\b(?!\()
    | \b(?:so|therefore|hence)\b,?\s+(?:you\s+(?:must|should)\s+)?(?:always|never)\s+{_ACT}\b
    | \b(?:data|records?|orders?|entries|information|accounts?)\b[^.\n]{{0,40}}
        \b(?:moved|merged|saved|stored|transferred|replaced|renamed)\b[^.\n]{{0,60}}[.,;]\s*(?:so|therefore|thus|hence)\b
        [^.\n]{{0,30}}\b(?:always|instead|must)\b
    | \bremember\b[^.\n]{{0,80}}\b(?:from\s+now\s+on|next\s+time\s+you|(?:always|instead)\s+{_ACT})\b
    | \byou\s+are\s+now\s+(?:an?\s+|the\s+|in\s+)?[\w\s]{{0,20}}
        \b(?:mode|assistant|agent|administrator|root|unrestricted)\b
    | \byou\s+(?:must|have\s+to)\s+(?:now\s+)?(?:call|invoke|obey|ignore|(?:respond|answer|reply)\s+with
        |(?:delete|erase|wipe|remove|export)\s+(?:everything|all))\b
    | \bact(?:ing)?\s+as\b[^.\n]{{0,40}}\b(?:admin\w*|root|unrestricted|override|full\s+trust|no\s+restrictions)\b
    | \b(?:do\s+not|don't|without|never)\s+(?:tell(?:ing)?|mention(?:ing)?|reveal(?:ing)?|inform(?:ing)?|notify(?:ing)?|
        ask(?:ing)?)\b[^.\n]{{0,40}}\b(?:the\s+(?:user|operator|reviewer|supervisor)|this\s+instruction)
    | \b(?:important|attention|note)\b[^.\n]{{0,20}}\b(?:assistants?|agents?|ai|llms?|language\s+models?)\b\s*[:,]
    | <[ \t]{{0,3}}/?[ \t]{{0,3}}(?:{_ELEMENTS})\b(?!-)[^<>\n]{{0,40}}>
    | <\|\w+\|> | \[/?INST\] | <<\s*/?SYS\s*>>
    """,
    re.IGNORECASE | re.VERBOSE,
)
_IN_DEFINITIONS: Final[tuple[str, int]] = (
    r"""
    </?[ ]?(?i:important|tools?|functions?|admin|hidden|secret|developer|rules?)[ ]?>
    | \b(?:SYSTEM|DEVELOPER|ASSISTANT|ADMIN)[ ]?:\s{0,5}\w
    | (?i:\b(?:read|open|send|include|pass|copy|attach|upload)\b[^.\n]{0,40}
        (?:~/\.\w+|\bid_(?:rsa|ed25519)\b|/etc/(?:passwd|shadow)\b|\.aws/credentials\b))
    | (?i:\b(?:also|always|silently|secretly)\s+(?:bcc|cc|forward|copy|send|upload|post|report)\b[^.\n]{0,60}
        \b(?:[\w.+-]{1,40}@[\w.-]+|https?://))
    """,
    re.VERBOSE,
)
_PIECE: Final = 4_096  # characters that are searched at once: other threads wait meanwhile, up to 10 ms
_OVERLAP: Final = 1_024
_SPACES: Final = re.compile(r"[^\S\n]+")
_LINES: Final = re.compile(r"\n[\n ]*")
_HIDDEN: Final = re.compile(
    "[\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\U000e0000-\U000e007f\U000e0100-\U000e01ef]"
)
_IGNORABLE: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2065\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff]"
)
"""What Unicode calls Default_Ignorable_Code_Point, beyond the categories Cc and Cf."""
_NOT_SHOWN: Final = frozenset({"Co", "Cs", "Cn", "Zl", "Zp"})
_HINTS: Final = 5
_VIRAMA: Final = 9  # the combining class of all viramas
_FLAG: Final = "\U0001f3f4"
_REGIONS: Final = frozenset(
    f"{_FLAG}{''.join(chr(0xE0000 + ord(letter)) for letter in region)}\U000e007f"
    for region in ("gbeng", "gbsct", "gbwls")  # all flags of regions that Unicode recommends
)


def is_hidden(character: str) -> bool:
    """Whether a character isn't shown or changes how others are, unless it is where a script or an emoji needs it."""
    return unicodedata.category(character) in ("Cc", "Cf") or _IGNORABLE.match(character) is not None


def has_hidden(text: str) -> bool:
    """Whether a text has hidden characters where no script and no emoji needs them."""
    found = {one for one in set(text) if is_hidden(one)} - {"\t", "\n"}
    return bool(found) and any(one in found and not _belongs(text, at) for at, one in enumerate(text))


def hidden(texts: Iterable[str]) -> str:
    """Return the reason to keep what has these texts from agents, empty if none has hidden characters."""
    return "A text has characters that aren't shown." if any(map(has_hidden, texts)) else ""


def visible(text: str) -> str:
    """Return a text with all characters escaped that aren't shown, or that change how others are."""
    return "".join(map(_visible, text))


def _visible(character: str) -> str:
    if not is_hidden(character) and unicodedata.category(character) not in _NOT_SHOWN:
        return character
    return f"\\u{ord(character):04x}" if ord(character) <= 0xFFFF else f"\\U{ord(character):08x}"


def _belongs(text: str, at: int) -> bool:
    """Whether the hidden character at a position is part of a sequence that Unicode defines, or of a line's end."""
    one, before, after = text[at], text[max(0, at - 1) : at], text[at + 1 : at + 2]
    match one:
        case "\ufeff":
            return at == 0
        case "\r":
            return after == "\n"
        case "\ufe0e" | "\ufe0f":
            return _is_emoji(before) or (before in tuple("0123456789#*") and after == "\u20e3")
        case "\u200c" | "\u200d":
            base = text[max(0, at - 2) : at - 1] if before == "\ufe0f" else before
            is_joined = _is_emoji(base) or "\U0001f3fb" <= base <= "\U0001f3ff"
            if one == "\u200d" and is_joined and _is_emoji(after):
                return True
            is_persian = one == "\u200c" and [*map(unicodedata.bidirectional, before + after)] == ["AL", "AL"]
            return is_persian or _VIRAMA in map(unicodedata.combining, before + after)
        case _:
            start = text.rfind(_FLAG, max(0, at - 6), at)
            return start >= 0 and text[start : start + 7] in _REGIONS


def _is_emoji(character: str) -> bool:
    return character != "" and (unicodedata.category(character) in ("So", "Sm") or character in "‼⁉\u2139〰〽")


def suspicion(texts: Iterable[str]) -> str:
    """Return what in the texts of a skill tries to instruct its reader, empty if nothing does."""
    for piece in (piece for text in texts for piece in _pieces(text)):
        if _HIDDEN.search(piece):
            return "A text has characters that aren't shown."
        for part in _pieces(_plain(piece)):
            if found := _compiled(*_INSTRUCTIONS).search(part):
                return f"A text tries to instruct: “{_quoted(found)}”."
    return ""


def hints(texts: Iterable[str]) -> list[str]:
    """Return wordings in the texts of a definition that address an agent, at most five: for who is to approve it."""
    plain = (part for text in texts for piece in _pieces(text) for part in _pieces(_plain(piece)))
    found = (_compiled(*pattern).search(piece) for piece in plain for pattern in (_INSTRUCTIONS, _IN_DEFINITIONS))
    return [*dict.fromkeys(visible(_quoted(one)) for one in found if one)][:_HINTS]


@cache
def _compiled(pattern: str, flags: int) -> re.Pattern[str]:
    """Return a compiled pattern. Each takes milliseconds, which a start has no need of."""
    return re.compile(pattern, flags)


def _pieces(text: str) -> Iterator[str]:
    return (text[max(0, start - _OVERLAP) : start + _PIECE] for start in range(0, len(text), _PIECE))


def _quoted(found: re.Match[str]) -> str:
    return found[0].strip()[:200]


def _plain(text: str) -> str:
    """Return a text without entities and forms of characters, each run of white space as one character.

    It may be 18 times as long: U+FDFA stands for a sentence.

    Otherwise a page of blank lines would take a pattern that skips white space seconds.
    """
    return _LINES.sub("\n", _SPACES.sub(" ", unicodedata.normalize("NFKC", unescape(text))))
