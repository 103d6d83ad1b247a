"""Results that are too long for a model's prompt: what they share with the task is kept, and each gap is named."""

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, pairwise
from typing import Final

# How many characters of results a model is shown, of all together:
REVIEWER: Final = 24_000
QA: Final = 32_000
DEPENDENT_TASK: Final = 12_000
SUPERVISOR: Final = 6_000
JUDGE: Final = 16_000
TOOL_RESULT: Final = 20_000  # of one call; the default of `limits.tool_result_chars`

READ_IN_PART: Final = "Read in part:"  # begins the line of an answer that names such results
LACKS_PARTS: Final = re.compile(rf"(?m)^(?:\[left out: [\d,]+ items?, .+ on\]$|{READ_IN_PART} )")
"""Finds what a text has where something is left out of it, or of what it was written from."""

_THREAD_CHARS: Final = 64 * 1024  # longer texts are fitted in a thread
_HEAD, _TAIL, _LONGEST_ITEM = 5, 6, 8  # as parts of the budget: 1/5, 1/6, 1/8
_SHORTEST_ITEM: Final = 100  # characters; a longer item may be divided
_MOST_ITEMS: Final = 10_000  # shorter ones are joined
_MOST_IDENTIFIERS: Final = 100
_NEIGHBOUR: Final = 0.25  # of an item's score

_WORD: Final = re.compile(r"[^\W_]+")
_IDENTIFIER: Final = re.compile(r"\w+(?:[-.:/@#]\w+)+|[^\W_]+(?:_[^\W_]+)+")
_UNSPACED: Final = re.compile("(?=([\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]{2}))")  # scripts without spaces, in pairs
_JSON: Final = re.compile(r'"(?:[^"\\]|\\.)*+"|[][{},]')
_JSON_BEGINS: Final = re.compile(r'[\s,]*[\[{"]')


def fit(text: str, budget: int, wanted: str) -> str:
    """Return a text within `budget` characters, itself if it fits.

    Else its head, its tail and whole items of it, in their order: first those that share rare words and identifiers
    with `wanted`. A note names each gap by the items and characters that are left out, and by the offset of the first.
    """
    if len(text) <= budget:
        return text
    room = len(_note(len(text), len(text), len(text))) + 2  # for a note and line breaks around it
    if budget < 3 * room:
        end = budget - room
        return text[:end] + f"\n{_note(1, len(text) - end, end)}" if end > 0 else text[: max(0, budget)]
    starts = [*_starts(text, max(budget // _LONGEST_ITEM, _SHORTEST_ITEM)), len(text)]
    ranking = _ranking([text[start:end] for start, end in pairwise(starts)], wanted)
    return _joined(text, starts, _chosen(starts, ranking, budget, room))


def share(budget: int, sizes: Sequence[int]) -> list[int]:
    """Return the part of one budget that each text of these sizes gets: what a short one leaves, longer ones get."""
    shares, left = [0] * len(sizes), max(0, budget)
    for place, at in enumerate(sorted(range(len(sizes)), key=lambda at: sizes[at])):
        shares[at] = min(sizes[at], left // (len(sizes) - place))
        left -= shares[at]
    return shares


async def fit_in_thread(text: str, budget: int, wanted: str) -> str:
    """Return what `fit` returns; a long text doesn't hold up the event loop."""
    is_short = len(text) <= max(budget, _THREAD_CHARS)
    return fit(text, budget, wanted) if is_short else await asyncio.to_thread(fit, text, budget, wanted)


async def shown(texts: Sequence[str], budget: int, wanted: str) -> list[str]:
    """Return results as a model is shown them: fitted into one budget."""
    shares = share(budget, list(map(len, texts)))
    return [await fit_in_thread(text, most, wanted) for text, most in zip(texts, shares, strict=True)]


def _note(items: int, characters: int, offset: int) -> str:
    return f"[left out: {items:,} item{'s' * (items != 1)}, {characters:,} characters from {offset:,} on]"


type _Cuts = Callable[[str, int, int], Iterable[int]]


def _after(pattern: str) -> _Cuts:
    """Return the function that gives the ends of a pattern's matches in a span of a text."""
    find = re.compile(pattern).finditer
    return lambda text, start, end: (match.end() for match in find(text, start, end))


def _elements(text: str, start: int, end: int) -> Iterable[int]:
    """Return where the members and elements of the outermost JSON value with several of them begin."""
    if not _JSON_BEGINS.match(text, start, end):
        return ()
    cuts, depth = dict[int, list[int]](), 0
    for found in _JSON.finditer(text, start, end):
        mark = text[found.start()]
        depth += (mark in "[{") - (mark in "]}")
        if mark == "," and found.end() < end:
            cuts.setdefault(depth, []).append(found.end())
    return cuts[min(cuts)] if cuts else ()


# Coarse to fine: paragraphs; lines with the more indented ones below them; lines; elements of JSON; sentences.
_BOUNDARIES: Final[Sequence[_Cuts]] = (
    _after(r"\n(?:[ \t]*\n)+"),
    *(_after(rf"\n(?=[ \t]{{0,{indent}}}[^\s\])}}])") for indent in (0, 1, 2, 4, 6, 8, 12)),
    _after(r"\n"),
    *(_elements,) * 4,
    _after(r"(?<=[.!?;])\s+|(?<=[。！？；])"),  # noqa: RUF001 - what ends sentences in Chinese
)


def _starts(text: str, longest: int) -> list[int]:
    """Return where the items of a text begin. Only items that are too long are divided further."""
    starts, windows = [0], _after(rf"(?s:.{{1,{longest - 1}}}[\s,;|]|.{{1,{longest}}})")
    for cuts in (*_BOUNDARIES, windows):
        spans = [(start, end) for start, end in pairwise([*starts, len(text)]) if end - start > longest]
        if not spans:
            break
        starts = sorted({*starts, *(cut for start, end in spans for cut in cuts(text, start, end) if cut < end)})
    least, kept = min(longest // 2, len(text) // _MOST_ITEMS), [0]
    for start in starts:
        if start - kept[-1] > least:
            kept.append(start)
    return kept


def _ranking(items: Sequence[str], wanted: str) -> list[int]:
    """Return the items that share something with `wanted`, the rarest first; neighbours of such items count too."""
    low = wanted.lower()
    identifiers = sorted(set(_IDENTIFIER.findall(low)), key=lambda one: (-len(one), one))[:_MOST_IDENTIFIERS]
    whole = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, identifiers))})(?!\w)")
    terms = [(_WORD, set(_WORD.findall(low))), (_UNSPACED, set(_UNSPACED.findall(low))), (whole, set(identifiers))]
    used = [(pattern.findall, known) for pattern, known in terms if known]
    shared = [{term for find, known in used for term in known.intersection(find(item.lower()))} for item in items]
    frequency = Counter(chain.from_iterable(shared))
    own = [sum(sorted(1 / frequency[term] for term in found)) for found in shared]
    around = zip([0.0, *own], own, [*own[1:], 0.0], strict=False)
    scores = [max(before * _NEIGHBOUR, score, after * _NEIGHBOUR) for before, score, after in around]
    return sorted((at for at, score in enumerate(scores) if score), key=lambda at: -scores[at])


def _chosen(starts: Sequence[int], ranking: Iterable[int], budget: int, room: int) -> list[int]:
    """Return the items to show, in their order: head and tail, then as many ranked ones as fit, then more of the head.

    `room` is what the note on a gap takes; an item beside a chosen one needs none of its own.
    """
    last, left = len(starts) - 2, budget - room  # for the one gap where nothing is chosen
    chosen = set[int]()

    def take(items: Iterable[int], most: int, *, skip: bool = False) -> None:
        nonlocal left
        until = max(0, left - most)
        for item in items:
            gaps = 1 - (item == 0 or item - 1 in chosen) - (item == last or item + 1 in chosen)
            cost = 0 if item in chosen else starts[item + 1] - starts[item] + gaps * room
            if left - cost >= until:
                chosen.add(item)
                left -= cost
            elif not skip:
                return

    take(range(last + 1), max(budget // _HEAD, starts[1]))
    take(range(last, -1, -1), max(budget // _TAIL, starts[-1] - starts[last]))
    take(ranking, left, skip=True)
    take(range(last + 1), left)
    return sorted(chosen)


def _joined(text: str, starts: Sequence[int], chosen: Sequence[int]) -> str:
    """Return the chosen items, with a note in place of those between them."""
    parts, following = [""], 0
    for item in (*chosen, len(starts) - 1):
        begin, end = starts[following], starts[item]
        if begin < end:
            newline = "\n" if parts[-1] and not parts[-1].endswith("\n") else ""
            parts.append(f"{newline}{_note(item - following, end - begin, begin)}")
            parts.append("\n" if end < len(text) else "")
        following = item + 1
        parts.append(text[end : starts[following]] if end < len(text) else "")
    return "".join(parts)
