"""Finds texts that try to instruct an agent: skills and tools that have one are kept in quarantine. Pure.

It looks for what addresses an agent, not for single words: “always”, “remember” and “you must” stand in ordinary mails
and documentation. It is one of several protections: whatever such a text says, it is data in a prompt and widens no
grant.
"""

import re
import unicodedata
from collections.abc import Iterable
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
_ATTACKS: Final[tuple[str, int]] = (
    r"""
    \b(?:credential|password|secret|(?:api|access|session)[ ](?:key|token))s?[ ]
        (?:harvest|exfiltrat|extract|steal|theft|dump|sniff)\w*
    | \b(?:harvest|exfiltrat|steal|dump)\w*[ ](?:\w{1,20}[ ]){0,3}
        (?:credential|password|secret|private[ ]key|cookie)s?\b
    | \b(?:sandbox|container|detection|obfuscation|antivirus|safety)[ ](?:escape|evasion|bypass)\b
    | \bsensitive[ ](?:\w{1,20}[ ])?files?[ ](?:copy|scan|collect|exfiltrat|extract)\w*
    | \b(?:redirect|privilege|symlink|vulnerability)[ ](?:exploitation|escalation)\b
    | \b(?:attack|exploit)[ ]chains?\b | \bSUID[ ]bits?\b
    | \b(?:install|deploy|open)\w*[ ](?:an?[ ])?(?:rootkit|keylogger|backdoor|reverse[ ]shell|web[ ]shell)s?\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
_PIECE: Final = 16_384  # characters that are searched at once: other threads wait meanwhile, about 16 ms
_OVERLAP: Final = 1_024
_SPACES: Final = re.compile(r"[^\S\n]+")
_LINES: Final = re.compile(r"\n[\n ]*")
_HIDDEN: Final = re.compile(
    "[\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\U000e0000-\U000e007f\U000e0100-\U000e01ef]"
)


def suspicion(texts: Iterable[str]) -> str:
    """Return what in a text tries to instruct its reader, empty if nothing does."""
    return next(filter(None, (_suspicion(text, _INSTRUCTIONS) for text in texts)), "")


def suspicion_of_definition(texts: Iterable[str]) -> str:
    """Return what `suspicion` does for the texts of a tool's definition, which are read where instructions stand.

    Texts that name an attack as what the tool does are found too.
    """
    given = [*texts]
    instructing = (_suspicion(text, _IN_DEFINITIONS) for text in given)
    attacking = (_suspicion(text, _ATTACKS, "names an attack") for text in given)
    return suspicion(given) or next(filter(None, (*instructing, *attacking)), "")


@cache
def _compiled(pattern: str, flags: int) -> re.Pattern[str]:
    """Return a compiled pattern. Each takes milliseconds, which a start has no need of."""
    return re.compile(pattern, flags)


def _suspicion(text: str, instructions: tuple[str, int], what: str = "tries to instruct") -> str:
    for start in range(0, len(text) or 1, _PIECE):
        piece = text[max(0, start - _OVERLAP) : start + _PIECE]
        if _HIDDEN.search(piece):
            return "A text has characters that aren't shown."
        if found := _compiled(*instructions).search(_plain(piece)):
            return f"A text {what}: “{found[0].strip()[:200]}”."
    return ""


def _plain(text: str) -> str:
    """Return a text without entities and forms of characters, each run of white space as one character.

    Otherwise a page of blank lines would take a pattern that skips white space seconds.
    """
    return _LINES.sub("\n", _SPACES.sub(" ", unicodedata.normalize("NFKC", unescape(text))))
