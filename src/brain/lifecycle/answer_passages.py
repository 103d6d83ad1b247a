"""The passages of an answer that its sources have to have: its numbers, paths and quoted texts."""

import json
import re
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from brain.lifecycle.stated_numbers import CURRENCY, DATE, DURATION, MEASURE, NUMBER, SCALES, TABLE, UNIT, readings

type Kind = Literal["number", "path", "quote", "count"]


class Passage(NamedTuple):
    """A passage of a text, and where it stands there; a `count` is a number or name too short to be checked."""

    text: str
    start: int
    end: int
    kind: Kind


CITATION: Final = re.compile(r"\[\s*\d{1,6}(?:\s*[,;–-]\s*\d{1,6})*\s*\](?!\()")
_FENCE: Final = re.compile(r"(?ms)^[ \t>]*(```|~~~).*?(?:^[ \t>]*\1|\Z)")
_WHOLE_BLOCK: Final = re.compile(r"\s*```[^\n]*\n(.*?)\n?```\s*", re.DOTALL)
_CODE: Final = re.compile(r"(`{1,2})(?!`)[^`\n]+\1")
_ADDRESS: Final = re.compile(
    r"(?i)\b(?:https?|ftp|file|s3|ssh|git|wss?)://[^\s<>\"'`|*“”»«]*[\w/=]"
    r"|(?<![\w.+-])[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+"
)
_FILE: Final = (
    r"[\w@%+-][\w.@%+-]*\.(?:py|[jt]sx?|jsonl?|ya?ml|toml|md|txt|log|[ct]sv|pdf|png|jpe?g|gif|svg|html?|css|xml|sh|sql"
    r"|ini|cfg|conf|go|rs|java|kt|rb|php|[ch]pp|lock|env|zip|tar|t?gz|docx?|xlsx?|pptx?|db|sqlite|pem|key|crt|service|bak"
    r"|parquet|ipynb|exe|dll|so|jar|whl|deb|rpm|iso|mp[34]|wav|[ch])(?![\w-]|\.\w)"
)
_PATH: Final = re.compile(
    r"(?<![\w/.\\:@%+-])(?=[^\sA-Za-z]{0,80}[^\W\d_])(?:(?:~|\.{1,2})?(?:/[\w.@%+~{}-]*[\w}]){2,}/?|(?:~|\.{1,2})?/\w[\w.-]{2,}\w/?"
    r"|[A-Za-z]:\\[^\s\"<>|`*]*\w|\\\\[\w.$-]+(?:\\[\w.$-]+)+"
    rf"|(?=[\w@%+/-]*[._\d])(?:[\w.@%+-]+/){{2,}}(?:[\w.@%+-]*\w)?|(?:[\w.@%+-]+/)*{_FILE})(?::\d+(?:[-–:]\d+)*|\#L\d+(?:-L?\d+)?)?"
)
_QUOTE: Final = re.compile(
    r"“([^“”\n]{2,600})”|„([^„“”\n]{2,600})[“”]|«([^«»\n]{2,600})»|»([^«»\n]{2,600})«|「([^「」\n]{2,300})」|『([^『』\n]{2,300})』"
    r"|(?<![\w\\])\"(?!\s)([^\"\n]{2,600})(?<!\s)\"|(?<!\w)[‘'](?!\s)([^‘’'\n]*(?:\w[’']\w[^‘’'\n]*)*[^\s‘’'])[’'](?!\w)"
)
_SEVERAL_WORDS: Final = re.compile(r"\w\W+\w|[\u3040-\u9fff\uac00-\ud7af]{5}")
_ID: Final = re.compile(
    r"(?<![\w.])\+?(?=(?:[A-Z ]{0,5}\d){8})[A-Z\d]{2,4}(?: [A-Z\d]{2,4}){3,}(?!\w)"  # of an account, a telephone
    r"|(?a:(?<![\w.])(?=[\w.-]{0,60}\d)(?=[\w.-]{0,60}[A-Za-z])#?\w+(?:[-.]\w+)*)|(?<![\w.])\d+(?:\.\d+){2,}(?:/\d+)?"
)
_WITH_UNIT: Final = re.compile(rf"(?:{NUMBER.pattern})(?:-?[^\W\d_]+(?:-[^\W\d_]+)*)?")
_KNOWN_NAME: Final = re.compile(r"(?i)(?:utf|sha|aes|iso|base|arm|amd|x|win|p)-?\d+")
_YEAR: Final = re.compile(r"(?:19|20)\d\d")


def passages(answer: str) -> Sequence[Passage]:
    """Return the numbers, paths and quoted texts of an answer, in order, without what is exempt."""
    reader = _Reader(answer)
    for exempt in (CITATION,) if _WHOLE_BLOCK.fullmatch(answer) else (_FENCE, CITATION):
        reader.blank(exempt)
    reader.rest = _CODE.sub(_addresses_only, reader.rest)
    if not is_json(answer):
        reader.take(_QUOTE, "quote")
    reader.take(_ADDRESS, "path")
    reader.take(_PATH, "path")
    for exempt in (DATE, DURATION):
        reader.blank(exempt)
    reader.take(_ID, "number")
    reader.take(NUMBER, "number")
    return sorted(reader.found, key=lambda one: one.start)


def is_json(answer: str) -> bool:
    """Whether an answer is one object or list in JSON, maybe in a block of code."""
    block = _WHOLE_BLOCK.fullmatch(answer)
    text = (block[1] if block else answer).strip()
    try:
        return text[:1] in ("{", "[") and not CITATION.fullmatch(text) and json.loads(text) is not None
    except (ValueError, RecursionError):
        return False


def _addresses_only(code: re.Match[str]) -> str:
    """Blank code of more than one name save its addresses, and its paths unless it is a command: it may make a file."""
    if not re.search(r"[\s()=]", code[0]):
        return code[0]
    is_command = code[0].lstrip("`")[:1].islower()
    spans = [
        one.span()
        for pattern in ((_ADDRESS,) if is_command else (_ADDRESS, _PATH))
        for one in pattern.finditer(code[0])
    ]
    return "".join(char if any(start <= at < end for start, end in spans) else " " for at, char in enumerate(code[0]))


class _Reader:
    """Takes passages out of a text; what was taken or blanked is spaces in `rest`."""

    def __init__(self, text: str) -> None:
        self.text = self.rest = text
        self.found = list[Passage]()

    def blank(self, pattern: re.Pattern[str]) -> None:
        self.rest = pattern.sub(lambda match: " " * len(match[0]), self.rest)

    def take(self, pattern: re.Pattern[str], kind: Kind) -> None:
        def taken(match: re.Match[str]) -> str:
            start, text = match.start(), match[0]
            if kind == "quote" and not _SEVERAL_WORDS.search(text):
                return text
            end, found = match.end(), kind
            if kind == "number" and _WITH_UNIT.fullmatch(text) and (number := NUMBER.match(text)):
                end, found = start + number.end(), self._kind_of(number[0], start)
            elif kind == "number" and (sum(map(str.isdigit, text)) < 2 or _KNOWN_NAME.fullmatch(text)):
                found = "count"
            self.found.append(Passage(self.text[start:end], start, end, found))
            return " " * len(text)

        self.rest = pattern.sub(taken, self.rest)

    def _kind_of(self, token: str, start: int) -> Kind:
        """Whether a number is no year, digit or count: of three digits, with decimals, with a unit or of money."""
        number, unit = readings(token)[0], unit_at(self.text, token, start)
        is_long = (number.value >= 100 or number.step < 1) and not _YEAR.fullmatch(token)
        is_share = unit == "%" and 0 < number.value < 100
        is_checked = is_long or is_share or MEASURE.fullmatch(unit) or CURRENCY.match(unit)
        return "number" if is_checked and number.value > 9.5 * number.step else "count"


def unit_at(text: str, token: str, start: int) -> str:
    """Return the unit of a number of a text: the word or sign behind it, else the currency before it, or `TABLE`."""
    unit, before = UNIT.match(text, start + len(token)), CURRENCY.search(text[max(0, start - 4) : start])
    if unit and unit[1] and not (before and unit[1].casefold() not in SCALES):
        return "%" if re.match(r"(?i)p\w+ ?[cz]i?ent(?!age|p)|\uff05", unit[1]) else unit[1]
    is_cell = text.startswith("|", text.rfind("\n", 0, start) + 1)
    return before[0].strip(" *_") if before else TABLE if is_cell else ""
