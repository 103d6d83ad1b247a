"""The passages of an answer that its sources have to have: its numbers, paths and quoted texts."""

import re
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from brain.lifecycle.stated_numbers import NUMBER, seconds_of

type Kind = Literal["number", "path", "quote"]


class Passage(NamedTuple):
    """A passage of a text, and where it stands there."""

    text: str
    start: int
    end: int
    kind: Kind


# Exempt parts of an answer, which are blanked before it is read.
_MONTH: Final = (
    r"(?:jan|feb|fév|mar|mär|maa|apr|avr|abr|avril|may|mai|maj|mag|mei|jun|juin|giu|jul|juil|lug|aug|août|ago|sep|set"
    r"|oct|okt|ott|out|nov|dec|dez|déc|dic|ene|gen|янв|фев|мар|апр|мая|май|июн|июл|авг|сен|окт|ноя|дек)[^\W\d_]*\.?"
)
_DAY: Final = r"(?:0?[1-9]|[12]\d|3[01])"
DATE: Final = re.compile(
    r"(?i)(?<![\w.])(?:\d{4}([-/.])\d{1,2}\1\d{1,2}(?:[T ]\d{1,2}:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?"
    rf"|(?:19|20)\d\d-(?:0[1-9]|1[0-2])(?!\d)|\d{{1,2}}([-/.])\d{{1,2}}\2(?:19|20)\d\d|\d{{1,2}}/\d{{1,2}}/\d\d(?!\d)"
    rf"|(?:0[1-9]|[12]\d|3[01])\.(?:0[1-9]|1[0-2])\.(?:\d\d)?(?!\d)"
    r"|(?:[1-9]|[12]\d|3[01])\.(?:[1-9]|1[0-2])\.(?=\s(?-i:[a-zäöü\u0430-\u044f\d(])|[,;)])"
    rf"|(?:{_DAY}\s?[-–]\s?)?{_DAY}(?:st|nd|rd|th|\.|º|er)?\s(?:de\s|of\s)?{_MONTH}(?:,?\s(?:de\s|del\s)?(?:19|20)\d\d)?(?!\w)"
    rf"|{_MONTH}\s(?:{_DAY}(?:st|nd|rd|th)?(?:\s?[-–]\s?{_DAY})?(?:,?\s(?:19|20)\d\d)?|(?:de\s)?(?:19|20)\d\d)(?![\w.,]\d|\w)"
    r"|(?:\d{1,4}\s?[年月日号號년월일]\s?)+|(?:UTC|GMT)\s?[+−-]\s?\d{1,2}(?::?\d\d)?)"  # noqa: RUF001
)
_CITATION: Final = re.compile(r"\[\s*\d{1,6}(?:\s*[,;–-]\s*\d{1,6})*\s*\](?!\()")
_FENCE: Final = re.compile(r"(?ms)^[ \t>]*(```|~~~).*?(?:^[ \t>]*\1|\Z)")
_LIST_NUMBER: Final = re.compile(r"(?m)^[\s>#*_-]*\(?\d{1,3}(?:\.\d{1,2})?[.):](?=[\s*_])")
_KEYCAP: Final = re.compile("\\d\ufe0f?\u20e3")
_COUNTED_LINE: Final = re.compile(r"(?m)^[\s>#*_|-]*([^\W\d_]*)\s?#?(\d{1,3})[\s*_]*(?=[.:)|–—-])")
_ORDINAL: Final = re.compile(r"(?i)(?<![\w.])(?:[12]?\d|3[01])(?:st|nd|rd|th|º|ª|ème|e|er|re)(?!\w)")
_IDIOM: Final = re.compile(
    r"(?i)(?<![\w.])(?:24/7|24[\s-]?(?:h|hours?|stunden|heures|horas)|7 days a week|(?:100|0)\s?%)(?!\w)"
)
_WHOLE_BLOCK: Final = re.compile(r"\s*```[^\n]*\n(.*?)\n?```\s*", re.DOTALL)

# What is read in the rest of it, in this order; each is blanked for the next ones.
URL: Final = re.compile(r"(?i)\b(?:https?|ftp|file|s3|ssh|git|wss?)://[^\s<>\"'`|*“”»«]+")
_MAIL: Final = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_ENDINGS: Final = (
    "py|pyi|js|ts|tsx|jsx|json|jsonl|ya?ml|toml|md|txt|log|csv|tsv|pdf|png|jpe?g|gif|svg|html?|css|xml|sh|sql|ini|cfg|conf"
    "|go|rs|java|kt|rb|php|cpp|hpp|lock|env|zip|tar|gz|tgz|docx?|xlsx?|pptx?|db|sqlite|pem|key|crt|service|parquet|ipynb"
    "|bak|tmp|exe|dll|so|jar|whl|deb|rpm|iso|mp[34]|wav|tf|proto|c|h|cs"
)
_DOMAINS: Final = (
    "com|org|net|io|dev|gov|edu|info|local|internal|lan|eu|de|uk|fr|ch|at|es|it|nl|co|ai|app|cloud|example"
)
_FILE: Final = rf"[\w@%+-][\w.@%+-]*\.(?:{_ENDINGS})(?![\w-]|\.\w)"
PATH: Final = re.compile(
    rf"(?<![\w/.\\:])(?:(?:~|\.{{1,2}})?(?:/[\w.@%+~-]+)+/?|[A-Za-z]:\\[^\s\"<>|`*]+|\\\\[\w.$-]+(?:\\[\w.$-]+)+"
    rf"|(?:[\w.@%+-]+/){{2,}}[\w.@%+-]*|(?:[\w.@%+-]+/)+{_FILE}|{_FILE}|(?:[\w-]+\.)+(?:{_DOMAINS})(?![\w-]|\.\w)(?:/[\w./-]+)?)"
    r"(?::\d+(?:[-–:]\d+)*|\#L\d+(?:-L?\d+)?)?"
)
_QUOTES: Final = re.compile(
    r"“([^“”\n]{2,600})”|„([^„“”\n]{2,600})[“”]|«\s?([^«»\n]{2,600}?)\s?»|»([^«»\n]{2,600})«|「([^「」\n]{1,300})」|『([^『』\n]{1,300})』"
    r"|‹([^‹›\n]{2,300})›|‚([^‚‘’\n]{2,300})[‘’](?!\w)|(?<!\w)‘([^‘\n]{2,300}?)’(?!\w)|(?<![\w\\])\"(?!\s)([^\"\n]{2,600})(?<!\s)\""  # noqa: RUF001
    r"|(?<![\w\\'])'(?![\s\d]{1,2}s?\b)(?!\s)([^'\n]*(?:(?<=\w)'(?=\w)[^'\n]*)*[^\s'])'(?!\w)"
)
_CODE: Final = re.compile(r"(`{1,2})(?!`)([^`\n]+)\1")
TIME: Final = re.compile(
    r"(?i)(?<![\w.:])(\d{1,2})(?:[:h](\d\d)(?::(\d\d)(?:[.,]\d+)?)?(?:\s?([ap]\.?m\b\.?))?|\s?([ap]\.?m\b\.?|uhr\b|時|点))(?![:\d])"
)
_DURATION: Final = re.compile(
    r"(?<![\w.])(?:\d+(?:[.,]\d+)?\s?[^\W\d_]{1,9}\.?(?:,?\s+(?:(?:and|und|et|y|e|en)\s+)?)?){2,4}"
)
DURATION_PART: Final = re.compile(r"(\d+(?:[.,]\d+)?)\s?([^\W\d_]+)")
_ID: Final = re.compile(
    r"(?a:(?<![\w.])(?=[\w.-]*\d)(?=[\w.-]*[A-Za-z])#?\w+(?:[-.]\w+)*)|(?<![\w.])v?\d+(?:\.\d+){2,}(?:/\d+)?"
)
WITH_UNIT: Final = re.compile(rf"({NUMBER.pattern})-?([^\W\d_]+)(?:-[^\W\d_]+)*")
UNIT: Final = re.compile(r"[*_]{0,2}[ \u00a0\u202f-]?(%|°\s?[CFcf]?|[€$£¥]|[万萬億亿千만억天日週周秒分時]|[^\W\d_]+)?")


def passages(answer: str) -> Sequence[Passage]:
    """Return the numbers, paths and quoted texts of an answer, in order, without what is exempt."""
    whole = _WHOLE_BLOCK.fullmatch(answer)
    is_document = (whole[1] if whole else answer).lstrip()[:1] in ("{", "[") and not _CITATION.match(answer.lstrip())
    reader = _Reader(answer)
    if not whole:
        reader.blank(_FENCE)
    for exempt in (_CITATION, _KEYCAP, _LIST_NUMBER):
        reader.blank(exempt)
    reader.blank_counted()
    if not is_document:
        for pattern in (_CODE, _QUOTES):
            reader.take(pattern, "quote")
    for pattern in (URL, _MAIL, PATH):
        reader.take(pattern, "path")
    if any(map(str.isdigit, reader.rest)):
        for exempt in (DATE, _IDIOM, _ORDINAL):
            reader.blank(exempt)
        for pattern in (TIME, _DURATION, _ID, NUMBER):
            reader.take(pattern, "number")
    return sorted(reader.found, key=lambda one: one.start)


class _Reader:
    """Takes passages out of a text; what was taken or blanked is spaces in `rest`."""

    def __init__(self, text: str) -> None:
        self.text = self.rest = text
        self.found = list[Passage]()

    def blank(self, pattern: re.Pattern[str]) -> None:
        self.rest = pattern.sub(lambda match: " " * len(match[0]), self.rest)

    def blank_counted(self) -> None:
        """Blank the numbers of lines that count up from 1: `Step 1: …`, `Step 2: …`, or the first column of a table."""
        last = dict[str, int]()

        def counted(match: re.Match[str]) -> str:
            number = int(match[2])
            if number != last.get(match[1], 0) + 1:
                return match[0]
            last[match[1]] = number
            return " " * len(match[0])

        self.rest = _COUNTED_LINE.sub(counted, self.rest)

    def take(self, pattern: re.Pattern[str], kind: Kind) -> None:
        def taken(match: re.Match[str]) -> str:
            start, end = match.span()
            text = match[0]
            if kind == "path":
                text = _trimmed(text)
                end = start + len(text)
                if not _is_path(text):
                    return match[0]
            elif (
                pattern is _DURATION
                and (len(text := match[0].rstrip(", ")), duration_of(text))
                and not duration_of(text)
            ):
                return match[0]
            elif pattern is _DURATION:
                end = start + len(text)
            elif pattern is NUMBER or pattern is _ID:
                unit = UNIT.match(self.rest, end)
                end = unit.end(1) if unit and unit[1] and not unit[1][0].isalpha() else end
            self.found.append(Passage(self.text[start:end], start, end, kind))
            return " " * (end - start) + match[0][end - start :]

        self.rest = pattern.sub(taken, self.rest)


def _trimmed(path: str) -> str:
    """Return an address without the punctuation of its sentence."""
    end = len(path)
    while path[end - 1 : end] and path[end - 1] in ".,;:!?*_)]}'…":
        if path[end - 1] in ")]}" and path[:end].count("([{"[")]}".index(path[end - 1])]) >= path[:end].count(
            path[end - 1]
        ):
            break
        end -= 1
    return path[:end]


def _is_path(text: str) -> bool:
    """Whether a text with slashes is no fraction, unit or choice: `3/4`, `/s`, `and/or/nor`."""
    letters = sum(map(str.isalpha, text))
    if text[:1] == "/" and text.count("/") == 1:
        return letters > 1
    is_choice = "/" in text and text[0] not in "/~." and "." not in text and "_" not in text
    return bool(letters) and not (is_choice and not any(map(str.isdigit, text)) and text.count("/") < 3)


def duration_of(text: str) -> float:
    """Return the seconds of a duration of several units, 0 if the text is none."""
    parts = [(float(number.replace(",", ".")), seconds_of(unit)) for number, unit in DURATION_PART.findall(text)]
    units = [seconds for _, seconds in parts]
    is_one = len(parts) > 1 and all(units) and units == sorted(set(units), reverse=True)
    return sum(number * seconds for number, seconds in parts) if is_one else 0
