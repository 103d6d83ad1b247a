"""Which servers and teams serve the parts of a goal, by the scores of a search, and which parts it found nothing for.

No words of any language are compared with a list here: a designer model reads the goal, and what it claims counts.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from architect.design.goal_parts import coordinated
from starling.core.events.build_events import MissingPart
from starling.core.teams.building import Candidate

type Fit = Literal["good", "weak", "none"]
"""`weak`: something may serve the part. `none`: the search found nothing for it."""

type Rankings = Mapping[str, Sequence[Candidate]]
"""The candidates for each text that was searched, best first."""

SHORTLIST: Final = 24
"""How many candidates are asked for each text; more of them never changed a choice."""

# ADR 0090 has what was tried
_GOAL_SHARE: Final = 0.75
"""What a candidate's score for the whole goal counts beside its score for a part: it decides between near equals."""
_LEAST_FIT: Final = 2.6
_LEAST_SHARE: Final = 0.6
"""What a part's value has to be of the value of the part that is served best; else its fit is weak."""
_GOAL_FIT: Final = 0.75
"""What a candidate's score for the whole goal has to be of the best one, to be selected for it."""
_MOST_FOR_GOAL: Final = 3
_FEW: Final = 10
"""With fewer candidates, scores say little: the best of two always has the same one."""
_NEAREST: Final = 3
_WORD: Final = re.compile(r"[A-Z]?[^\W\d_A-Z]+|[A-Z]+(?![a-z])|\d+")


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
    def nearest(self) -> list[str]:
        """The names of the candidates that fit best."""
        return [name_of(one) for one in self.candidates[:_NEAREST]]

    @property
    def missing(self) -> MissingPart:
        """The part as one that nothing serves."""
        return MissingPart(part=self.text, nearest=self.nearest)


@dataclass(frozen=True, slots=True)
class Selection:
    """The parts of a goal with what fits each, and the servers that fit the goal as a whole, best first."""

    parts: Sequence[PartFit] = ()
    for_goal: Sequence[Candidate] = ()


def shortlist(parts: Sequence[PartFit], goal: Sequence[Candidate], size: int) -> list[Candidate]:
    """Return the best candidates of each part and of the goal, in turn, at most `size`."""
    rankings = [*(part.candidates for part in parts), goal]
    places = range(max(map(len, rankings), default=0))
    found = [ranking[at] for at in places for ranking in rankings if at < len(ranking)]
    return list({name_of(one): one for one in found}.values())[:size]


def name_of(candidate: Candidate) -> str:
    """Return the server or the team that a candidate is."""
    return candidate.server or candidate.team


def searched_texts(parts: Sequence[str]) -> list[str]:
    """Return what is searched for parts: each of them, and the pieces that it may be split into."""
    return list(dict.fromkeys([*parts, *(piece for part in parts for piece in coordinated(part))]))


def select(parts: Sequence[str], goal: Sequence[Candidate], found: Rankings, population: int) -> Selection:
    """Return what serves each part, by the candidates for the goal, and for each text of `searched_texts`.

    `population` is how many agents were ranked: scores are sums of z-scores, the best of which grows with its logarithm
    where nothing fits.
    """
    of_goal = {name_of(one): one.score for one in goal}
    split = [piece for part in parts for piece in _split(part, found)]
    ranked = {
        text: _servers_first(text, sorted(ranking, key=lambda one: -_value(one, of_goal)), population)
        for text, ranking in split
    }
    best = max((_value(ranking[0], of_goal) for ranking in ranked.values() if ranking), default=0.0)
    fits = [PartFit(text, _fit(ranking, population, best, of_goal), ranking) for text, ranking in ranked.items()]
    for_goal = [one for one in goal[:_MOST_FOR_GOAL] if one.server and one.score >= _GOAL_FIT * goal[0].score]
    return Selection(fits, for_goal if population >= _FEW else ())


def _split(part: str, found: Rankings) -> list[tuple[str, Sequence[Candidate]]]:
    """Return a part with its candidates, or its pieces where each of several of its first ones is the first of one.

    Such a candidate has a word of the piece that most of the others lack: among few, some candidate is always first.
    """
    pieces = coordinated(part)
    near, firsts = [name_of(one) for one in found.get(part, ())[: len(pieces)]], dict[str, Sequence[Candidate]]()
    starts, ends, at = list[int](), list[int](), 0
    for piece in pieces:
        at, ranking = part.index(piece, at), found.get(piece, ())
        name = name_of(ranking[0]) if ranking else ""
        if name in near and name not in firsts and _has_rare_word(piece, ranking[0], ranking):
            starts, ends = [*starts, at if firsts else 0], [*ends, at]
            firsts[name] = ranking
        if firsts:
            ends[-1] = at + len(piece)
    if len(firsts) < 2:
        return [(part, found.get(part, ()))]
    texts = [part[start:end] for start, end in zip(starts, ends, strict=True)]
    return list(zip(texts, firsts.values(), strict=True))


def _has_rare_word(piece: str, candidate: Candidate, others: Sequence[Candidate]) -> bool:
    shared, known = _words(piece) & _texts(candidate), [_texts(one) for one in others]
    return any(2 * sum(word in words for words in known) <= len(known) for word in shared)


def _texts(candidate: Candidate) -> frozenset[str]:
    return _words(" ".join([name_of(candidate), candidate.description, *(tool.name for tool in candidate.tools)]))


def _words(text: str) -> frozenset[str]:
    return frozenset(word.casefold() for word in _WORD.findall(text))


def _servers_first(part: str, ranking: Sequence[Candidate], population: int) -> list[Candidate]:
    """Return a ranking in which a team comes after the servers, where one of those serves the part.

    A team has tools for other things too. One that the part names keeps its place.
    """
    if not any(one.server and _is_found(one, population) for one in ranking):
        return list(ranking)
    return sorted(ranking, key=lambda one: bool(one.team) and not _words(one.team) <= _words(part))


def _value(candidate: Candidate, of_goal: Mapping[str, float]) -> float:
    return candidate.score + _GOAL_SHARE * of_goal.get(name_of(candidate), 0.0)


def _fit(ranking: Sequence[Candidate], population: int, best: float, of_goal: Mapping[str, float]) -> Fit:
    if not ranking or (population >= _FEW and not any(_is_found(one, population) for one in ranking[:_NEAREST])):
        return "none"
    return "good" if _value(ranking[0], of_goal) >= _LEAST_SHARE * best else "weak"


def _is_found(candidate: Candidate, population: int) -> bool:
    """Return whether a score is better than what chance gives the best of so many agents; of few, than the mean."""
    return candidate.score >= _LEAST_FIT * math.log(population) if population >= _FEW else candidate.score > 0
