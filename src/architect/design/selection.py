"""Which servers and teams serve the parts of a goal, and which parts nothing serves."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from architect.design.document import DesignDocument
from architect.design.goal_parts import tells_about_caller
from starling.core.events.build_events import MissingPart
from starling.core.teams.building import Candidate
from starling.core.tool_calls import Effect

type Fit = Literal["good", "weak", "text", "none"]
"""`weak`: something may serve the part. `text`: a writer without tools can do it. `none`: nothing serves it."""

SHORTLIST: Final = 24
"""How many candidates are asked for each text; more of them never changed a choice."""

_GOAL_SHARE: Final = 0.5
"""What a candidate's score for the whole goal counts beside its score for a part: it decides between near equals."""
_LEAST_FIT: Final = 3.8
_WORDS_SHARE: Final = 2.0
"""What it adds to a fit that a candidate has all words of a part."""
_LEAST_SHARE: Final = 0.6
"""What a part's value has to be of the value of the part that is served best; else its fit is weak."""
_OF_TEAM: Final = 0.8
"""What the value of a team counts: a server that fits about as well is chosen before a team that uses it."""
_FEW: Final = 10
"""With fewer candidates, scores say little: the best of two always has the same one. A shared word decides then."""
_NEAREST: Final = 3

_WORD: Final = re.compile(r"[A-Z]?[^\W\d_A-Z]+|[A-Z]+(?![a-z])|\d+")
_AFTER_SUBJECT: Final = re.compile(r"[.:(,;\n]| (?:that|which|with|using|from|by|when|if) ")
_ENDINGS: Final = (("ies", "y"), ("sses", "ss"), ("ing", ""), ("ed", ""), ("es", ""), ("s", ""))
_COMMON_TEXT: Final = """
    a about additionally all also am an and any api are as at available be been but by can could data details do
    does each fetch find for from further get give had has have help her his how i if in information into is it its
    just know latest let like list looking make me more most my need no not of on or other our out please provide
    related search several should show so some specific such suggest team tell than that the their them then there
    these they this those to tool up us use using want was we were what when where which while who why will with would
    you your"""
_COMMON: Final = frozenset(_COMMON_TEXT.split())
_WRITING: Final = re.compile(
    r"\W*(?:(?:and|then|also|finally)\s+)*(?:answer|compare|compose|describe|draft|explain|rank|report|rephrase|review"
    r"|rewrite|sum|summari[sz]e|translate|turn|write)(?:s|es)?\b",
    re.IGNORECASE,
)
_CHANGING: Final = re.compile(
    r"\W*(?:(?:and|then|also|finally|please)\s+)*(?:append|book|buy|commit|create|delete|edit|e?mail|move|order|pay|post|push"
    r"|remove|rename|save|send|store|update|upload|write)(?:s|es)?\b",
    re.IGNORECASE,
)
_OF_RESULTS: Final = re.compile(
    r"\b(?:it|them|this|these|those|both|everything|findings?|results?|answers?|what|summary|overview)\b", re.IGNORECASE
)
_ELSEWHERE: Final = re.compile(
    r"\b(?:into|files?|folders?|databases?|tables?|e?-?mails?|messages?|channels?|calendars?|tickets?|pages?|issues?)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class PartFit:
    """A part of a goal with the candidates that fit it, best first, and how well the best one does."""

    text: str
    fit: Fit
    candidates: Sequence[Candidate]

    @property
    def best(self) -> Candidate | None:
        """The candidate that fits best, None where there is none at all."""
        return self.candidates[0] if self.candidates else None

    @property
    def orders_change(self) -> bool:
        """Whether it begins as the order to change something, which tools that only read can't do."""
        return bool(_CHANGING.match(self.text)) and self.fit != "text"

    @property
    def missing(self) -> MissingPart:
        """The part as one that nothing serves."""
        return MissingPart(part=self.text, nearest=[name_of(one) for one in self.candidates[:_NEAREST]])


def shortlist(parts: Sequence[PartFit], goal: Sequence[Candidate], size: int) -> list[Candidate]:
    """Return the best candidates of each part and of the goal, in turn, at most `size`."""
    rankings = [*(part.candidates for part in parts), goal]
    places = range(max(map(len, rankings), default=0))
    found = [ranking[at] for at in places for ranking in rankings if at < len(ranking)]
    return list({name_of(one): one for one in reversed(found)}.values())[::-1][:size]


def name_of(candidate: Candidate) -> str:
    """Return the server or the team that a candidate is."""
    return candidate.server or candidate.team


def select(
    parts: Sequence[str], goal: Sequence[Candidate], rankings: Sequence[Sequence[Candidate]], population: int
) -> Sequence[PartFit]:
    """Return what serves each part, by the candidates for the goal and for each part, best first.

    `population` is how many agents were ranked: scores are sums of z-scores, the best of which grows with its logarithm
    where nothing fits.
    """
    scores = {name_of(one): one.score for one in goal}
    ranked = [
        _servers_first(
            part, sorted(ranking, key=lambda one: (_only_reads(part, one), -_value(one, scores))), population
        )
        for part, ranking in zip(parts, rankings, strict=True)
    ]
    best = max((_value(ranking[0], scores) for ranking in ranked if ranking), default=0.0)
    fits = [
        PartFit(part, _fit(part, ranking, population, best, scores), ranking)
        for part, ranking in zip(parts, ranked, strict=True)
    ]
    if all(part.fit != "good" for part in fits):
        return fits
    # what tells about the caller is not a gap where another part is served
    return [replace(one, fit="weak") if one.fit == "none" and tells_about_caller(one.text) else one for one in fits]


def _servers_first(part: str, ranking: Sequence[Candidate], population: int) -> list[Candidate]:
    """Return a ranking in which a team comes after the servers, where one of those serves the part.

    A team has tools for other things too. One that the part names keeps its place.
    """
    if not any(one.server and _certainty(part, one, population) >= _LEAST_FIT for one in ranking):
        return list(ranking)
    return sorted(ranking, key=lambda one: bool(one.team) and not _words([one.team]) <= _words([part]))


def shared_words(part: str, candidate: Candidate) -> float:
    """Return the share of the words of a part that the name, the description or a tool of a candidate has."""
    wanted = _words([part])
    tools = [text for tool in candidate.tools for text in (tool.name, tool.description)]
    known = _words([candidate.server, candidate.team, candidate.description, *tools])
    return len(wanted & known) / len(wanted) if wanted else 0.0


def words_in_common(first: str, second: str) -> int:
    """Return how many words two texts share, without those that any goal may have."""
    return len(_words([first]) & _words([second]))


def _value(candidate: Candidate, of_goal: dict[str, float]) -> float:
    value = candidate.score + _GOAL_SHARE * of_goal.get(name_of(candidate), 0.0)
    return value * _OF_TEAM if candidate.team and value > 0 else value


def _fit(part: str, ranking: Sequence[Candidate], population: int, best: float, of_goal: dict[str, float]) -> Fit:
    if max((_certainty(part, one, population) for one in ranking[:_NEAREST]), default=0.0) < _LEAST_FIT:
        is_text = _WRITING.match(part) and _OF_RESULTS.search(part) and not _ELSEWHERE.search(part)
        return "text" if is_text else "none"
    return "good" if _value(ranking[0], of_goal) >= _LEAST_SHARE * best else "weak"


def _certainty(part: str, candidate: Candidate, population: int) -> float:
    """Return how certain it is that a candidate serves a part, 0 where its tools can't change what is ordered."""
    if _only_reads(part, candidate):
        return 0.0
    if population < _FEW:
        return _LEAST_FIT * bool(_words([part]) & _subjects(candidate))
    return candidate.score / math.log(population) + _WORDS_SHARE * shared_words(part, candidate)


def _subjects(candidate: Candidate) -> frozenset[str]:
    """Return the words of what the tools of a candidate, or a team as a whole, are about, and of its name."""
    abouts = [_AFTER_SUBJECT.split(tool.description.strip(), maxsplit=1)[0] for tool in candidate.tools]
    whole = candidate.description if candidate.team else ""
    return _words([candidate.team, whole, *(tool.name for tool in candidate.tools), *abouts])


def _only_reads(part: str, candidate: Candidate) -> bool:
    """Return whether a part orders a change that no tool of a candidate can make."""
    return bool(_CHANGING.match(part)) and all(tool.effect is Effect.READ for tool in candidate.tools)


def _words(texts: Iterable[str]) -> frozenset[str]:
    written = {word.casefold() for text in texts for word in _WORD.findall(text)} - _COMMON
    return frozenset(map(_stem, written)) - _COMMON


def _stem(word: str) -> str:
    for ending, instead in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            return word[: -len(ending)] + instead
    return word.removesuffix("e") if len(word) > 3 else word  # `charge` like `charges`


def missing_parts(
    document: DesignDocument, parts: Sequence[PartFit], candidates: Sequence[Candidate]
) -> tuple[MissingPart, ...]:
    """Return each part that nothing serves, with what came nearest.

    A part that the search found nothing for counts as served where a member with tools says that it does it, and the
    best candidate has at least a word of it: the designer reads more than the search.
    """
    does = {number for member in document.members if member.server or member.team for number in member.parts}
    found = {
        part.text: part.missing
        for number, part in enumerate(parts, 1)
        if part.fit == "none" and not (number in does and part.best and shared_words(part.text, part.best) > 0)
    }
    for text in filter(None, map(str.strip, document.missing)):
        part = max(parts, key=lambda one: words_in_common(one.text, text), default=None)
        if part and words_in_common(part.text, text):
            found.setdefault(part.text, part.missing)
        else:
            found[text] = MissingPart(part=text, nearest=[name_of(one) for one in candidates[:_NEAREST]])
    return tuple(found.values())
