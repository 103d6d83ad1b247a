"""The parts of a goal in ordinary words: the sentences and clauses that order or ask something of their own.

They are what is searched for; whether something serves them is not decided by these words.
"""

import re
from typing import Final

MOST_PARTS: Final = 12
"""What follows the eleventh part counts as one: a team has at most twelve members."""

_BULLET: Final = re.compile(r"^ ?(?:[-*•–]|\(?\d{1,2}[.)]) ", re.MULTILINE)
_SENTENCE: Final = re.compile(r"(?<=[.!?])[\"'”’)]* |(?<=[。！？])| ?; |\n")
_JOINT: Final = re.compile(r" ?,? (?:as well as|then|and|but|plus) | ?, ", re.IGNORECASE)
_COORDINATION: Final = re.compile(r",? (?:and|as well as|plus|along with|und|y|et) |[,;] | & ", re.IGNORECASE)
_HIDDEN: Final = re.compile(r"\"[^\"\n]*\"|“[^”\n]*”|`[^`\n]*`|(?<!\w)'[^'\n]*'(?!\w)|https?://\S+")
_WORD: Final = re.compile(r"[^\W\d_]+")
_READ_CHARS: Final = 10_000
_OPENING_CHARS: Final = 120
_POLITE: Final = re.compile(
    r"""\W*(?:(?:and|then|also|but|so|finally|lastly|additionally|furthermore|moreover|please|kindly)\b[\s,]*)*
    (?:(?:(?:can|could|would|will|should)\s+(?:you|it|they)|(?:i|we)(?:['’]d|\s+would)?\s+(?:want|like|need)
        (?:\s+you)?\s+to|let\s+me|help\s+me(?:\s+to)?)\b\s*)?
    (?:(?:also|please|then)\b\s*)*""",
    re.IGNORECASE | re.VERBOSE,
)
_TEAM: Final = re.compile(
    r"""\W*(?:please\s+)?(?:(?:can|could|would|will)\s+you\s+(?:please\s+)?)?
    (?:(?:i|we)(?:['’]d|\s+would)?\s+(?:want|need|like)\s+(?:to\s+have\s+)?
        |(?:build|create|make|design|set\s+up|assemble|give|form)\s+)?
    (?:me\s+|us\s+)?(?:an?|one|some|the)?\s*(?:\w+\s+)?(?:team|crew|group|agents?)(?:\s+of\s+agents)?
    (?:\s+(?:that|which|who|to|for)\b|\s*[:,]|\W*$)(?:\s+(?:can|will|should|could|must)\b)?\s*""",
    re.IGNORECASE | re.VERBOSE,
)
_ABOUT_CALLER: Final = re.compile(
    r"""\W*(?:(?:i\s+am|i['’]m|we\s+are|we['’]re|my|our|as\s+an?)\b
    |(?:i|we)\s+(?:have|(?:want|would\s+like)\s+to\s+(?:plan|start|write|organi[sz]e|create|surprise|explore))\b)""",
    re.IGNORECASE | re.VERBOSE,
)
_POLITENESS: Final = re.compile(
    r"""\W*(?:(?:please|(?:can|could)\s+you)\s+)*(?:your\s+(?:help|assistance)|help\s+me|assist|thanks?|any\s+(?:help|ideas))\b
    (?:\s+(?:with|on)\s+(?:this|that|it))?[^.?!]{0,30}\W*""",
    re.IGNORECASE | re.VERBOSE,
)
_ASKING: Final = re.compile(
    r"""\?|\b(?:needs?|looking\s+for|interested\s+in|would\s+like|i['’]d\s+like|curious|provide|fetch|find|give|show
    |suggest|recommend|please)\b""",
    re.IGNORECASE | re.VERBOSE,
)
_QUESTIONS_TEXT: Final = (
    "what which how who whose when where why is are do does did was were will has have can could would should"
)
_QUESTIONS: Final = frozenset(_QUESTIONS_TEXT.split())
_VERBS_TEXT: Final = """
    add analyse analyze answer append archive ask assign book build calculate call cancel change check choose
    classify clean collect combine commit compare compile compute confirm convert copy correct count create deliver
    delete deploy describe detect determine display download draft draw edit email estimate evaluate examine explain
    export extract fetch fill filter find fix forecast format generate get give identify import include inform insert
    inspect install invite keep list load locate log look mail make manage measure merge message monitor move name
    notify observe open order organize parse pay plan play post predict prepare print produce provide publish pull push
    put query rank rate read recall recommend record reduce refund remember remind remove rename reply report research
    reserve resize restart retrieve return review rewrite run save say scan schedule score search see select sell send
    set share shorten show sort start stop store submit suggest sum summarise summarize survey tell test track
    transcribe transform translate turn update upload validate verify visualize watch write"""
_VERBS: Final = frozenset(_VERBS_TEXT.split())


def parts_of(goal: str) -> list[str]:
    """Return the parts of a goal in order, at most `MOST_PARTS`; a goal without words has none.

    A sentence, an item of a list, or a clause after a comma or conjunction is a part if it begins as an order or as a
    question. Sentences that only tell about the caller are left out unless there are no others. Nothing is split
    within quoted texts.
    """
    text = re.sub(r"(?: ?\n)+ ?", "\n", re.sub(r"[^\S\n]+", " ", goal[:_READ_CHARS])).strip()
    text = text[1:-1] if _HIDDEN.fullmatch(text) and not text.startswith("http") else text  # a goal in quotes
    team = _TEAM.match(text)
    text = _BULLET.sub(" ", text[team.end() :] if team else text)
    ends = [(match.start(), match.end()) for match in _SENTENCE.finditer(_masked(text))]
    places = zip([0, *(end for _, end in ends)], [*(start for start, _ in ends), len(text)], strict=True)
    sentences = [text[start:stop].strip() for start, stop in places]
    found = [part for sentence in sentences for part in _clauses(sentence) if _says_something(part)]
    asking = [part for part in found if not _ABOUT_CALLER.match(part) or _ASKING.search(part)]
    found = [part for part in asking if not _POLITENESS.fullmatch(part)] or found
    return [*found[: MOST_PARTS - 1], *filter(None, [" ".join(found[MOST_PARTS - 1 :])])]


def coordinated(part: str) -> list[str]:
    """Return the pieces of a part at its conjunctions and commas, in order; none if it has only one."""
    joints, masked = [0], _masked(part)
    for joint in _COORDINATION.finditer(masked):
        joints += joint.span()
    pieces = [part[start:end] for start, end in zip(joints[::2], [*joints[1::2], len(part)], strict=True)]
    found = [piece for piece in pieces if _says_something(piece)]
    return found if 1 < len(found) <= MOST_PARTS else []


def _clauses(sentence: str) -> list[str]:
    masked, start, read, says, found = _masked(sentence), 0, 0, False, list[str]()
    for joint in _JOINT.finditer(masked):
        says = says or _says_something(masked[read : joint.start()])
        read = joint.end()
        if says and _orders(masked[read : read + _OPENING_CHARS]):
            found.append(sentence[start : joint.start()].strip())
            start, says = read, False
    return [*found, sentence[start:].strip()]


def _masked(text: str) -> str:
    return _HIDDEN.sub(lambda match: "\ufffc" * len(match[0]), text)


def _says_something(text: str) -> bool:
    """Return whether a text is more than words of politeness and connection."""
    return "\ufffc" in text or bool(_WORD.search(_POLITE.sub("", f"{text} ", count=1)))


def _orders(text: str) -> bool:
    """Return whether a text begins as an order or as a question."""
    first = _WORD.search(_POLITE.sub("", text, count=1))
    word = first[0].casefold() if first else ""
    forms = (word, word.removesuffix("s"), word.removesuffix("es"), f"{word.removesuffix('ies')}y")
    return word in _QUESTIONS or any(form in _VERBS for form in forms)
