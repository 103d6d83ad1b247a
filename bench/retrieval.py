"""How many of the agents that a request needs are among the first ones found, and how long a search takes.

Recall is that of the half of the requests that no weight of ADR 0087 was chosen on; `…_all` is that of both halves.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from statistics import fmean, median
from time import perf_counter
from typing import Final

from bench.embedders import minilm_embedder, static_embedder
from bench.figures import Figure
from bench.harness import BenchSetup
from bench.labelled_texts import (
    Request,
    RequestSet,
    livemcpbench,
    metatool,
    public_server_rows,
    roster_of,
    stabletoolbench,
)
from brain.planning.shortlist import Shortlister
from brain.registry.cards import Roster
from brain.retrieval.agent_finder import AgentFinder
from brain.retrieval.search import AgentSearch
from starling.core.clock import SystemClock
from starling.core.embeddings import CachingEmbedder
from starling.core.settings.schema import Limits
from starling.core.tracing import NOOP_TRACER

_PATIENCE_SECONDS: Final = 600  # for the vectors of all agents
_TEXTS_SEARCHED: Final = 8  # by the supervisor, at most
_DEPTHS: Final = (5, 12)  # the mark's, and the length of a shortlist
_SETS: Final[Mapping[str, Callable[[], RequestSet]]] = {
    "stabletoolbench_50": lambda: stabletoolbench(50),
    "stabletoolbench_300": lambda: stabletoolbench(300),
    "stabletoolbench_811": lambda: stabletoolbench(811),
    "stabletoolbench_1600": lambda: stabletoolbench(1600),
    "metatool_199": lambda: metatool(199),
    "metatool_1065": lambda: metatool(1065),
    "livemcpbench_70": livemcpbench,
}
_TIMED: Final = ("stabletoolbench_50", "stabletoolbench_300", "stabletoolbench_811", "stabletoolbench_1600")
_MINILM_SETS: Final = ("stabletoolbench_811", "metatool_199")  # the distractors would take it six minutes


def _names(sets: Sequence[str], suffix: str) -> tuple[str, ...]:
    return tuple(f"retrieval.{name}.recall_at_{depth}{suffix}" for name in sets for depth in _DEPTHS)


NAMES: Final = (
    *_names(tuple(_SETS), ""),
    *_names(tuple(name for name in _SETS if name != "livemcpbench_70"), "_all"),
    *_names(tuple(_SETS), "_off"),
    *(f"retrieval.query_ms_{name.rpartition('_')[2]}{suffix}" for name in _TIMED for suffix in ("", "_off")),
    *(f"retrieval.livemcpbench_70.with_steps.recall_at_{depth}" for depth in _DEPTHS),
    "retrieval.query_ms_ten_rosters_300",
)
MINILM_NAMES: Final = _names(_MINILM_SETS, "_minilm")


@dataclass(frozen=True, slots=True)
class Measured:
    """What searching a set's agents for all its requests gave."""

    recall: Mapping[int, float]  # of the judged requests
    judged: int
    recall_of_all: Mapping[int, float]
    milliseconds: float  # of a search, median


async def measure(setup: BenchSetup) -> list[Figure]:
    """Measure all sets by words only and with the built-in vectors."""
    figures = list[Figure]()
    first: dict[str, Measured] = {}
    for name, load in _SETS.items():
        setup.say(f"Searches for agents, {name}")
        requests = load()
        off, static = await measured(requests, None), await measured(requests, static_embedder())
        for depth in _DEPTHS:
            chance = depth / len(requests.roster.cards)
            words = off.recall[depth]
            against = (_tf_idf(requests, depth), "plain TF-IDF") if name == "livemcpbench_70" else (words, "words only")
            figures += [
                _recall(name, depth, "", static, *against),
                _recall(name, depth, "_off", off, chance, f"{depth} agents picked at random"),
            ]
            if len(requests.judged) < len(requests.requests):
                judged = static.recall[depth], f"{len(requests.judged)} judged of {len(requests.requests)} requests"
                figures.append(
                    Figure(f"retrieval.{name}.recall_at_{depth}_all", static.recall_of_all[depth], "", *judged)
                )
        if name in _TIMED:
            servers = name.rpartition("_")[2]
            for suffix, found in (("", static), ("_off", off)):
                few = first.setdefault(suffix, found).milliseconds
                figures.append(
                    Figure(f"retrieval.query_ms_{servers}{suffix}", found.milliseconds, "ms", few, "among 50 servers")
                )
    setup.say("Searches with the steps of a plan")
    for depth in _DEPTHS:
        found, alone = await _with_steps(livemcpbench(), depth)
        name = f"retrieval.livemcpbench_70.with_steps.recall_at_{depth}"
        figures.append(Figure(name, found, "", alone, "the request alone"))
    setup.say("Searches of ten tenants in turn")
    ten, one = await _milliseconds_of(10), await _milliseconds_of(1)
    return [*figures, Figure("retrieval.query_ms_ten_rosters_300", ten, "ms", one, "one tenant among 300 servers")]


async def measure_minilm(setup: BenchSetup) -> list[Figure]:
    """Measure the sets that have marks, with MiniLM."""
    figures = list[Figure]()
    async with minilm_embedder() as embedder:
        for name in _MINILM_SETS:
            setup.say(f"Searches for agents with MiniLM, {name}")
            requests = _SETS[name]()
            off, found = await measured(requests, None), await measured(requests, embedder)
            figures += [_recall(name, k, "_minilm", found, off.recall[k], "words only") for k in _DEPTHS]
    return figures


def _recall(name: str, depth: int, suffix: str, found: Measured, reference: float, against: str) -> Figure:
    against = f"{against}; {found.judged} requests"
    return Figure(f"retrieval.{name}.recall_at_{depth}{suffix}", found.recall[depth], "", reference, against)


async def measured(requests: RequestSet, embedder: CachingEmbedder | None) -> Measured:
    """Search for each request. The first search, which builds the index, is not timed. Raises RuntimeError."""
    finder = AgentFinder(embedder, SystemClock(), patience=_PATIENCE_SECONDS)
    search = AgentSearch("bench", requests.roster, requests.roster)
    await _found(finder, search, requests.requests[0])
    seconds, found = list[float](), list[list[str]]()
    for request in requests.requests:
        begun = perf_counter()
        found.append(await _found(finder, search, request))
        seconds.append(perf_counter() - begun)
    shown = {request.text: names for request, names in zip(requests.requests, found, strict=True)}
    of_judged, of_all = [
        {depth: fmean(share_found(one, shown[one.text], depth) for one in some) for depth in _DEPTHS}
        for some in (requests.judged, requests.requests)
    ]
    return Measured(of_judged, len(requests.judged), of_all, median(seconds) * 1000)


async def _milliseconds_of(tenants: int) -> float:
    """Return the median time of searches of so many tenants in turn; the first search of each is not timed."""
    requests = stabletoolbench(300)
    finder = AgentFinder(static_embedder(), SystemClock(), patience=_PATIENCE_SECONDS)
    searches = [_own_search(requests.roster, number) for number in range(tenants)]
    for search in searches:
        await _found(finder, search, requests.requests[0])
    seconds = list[float]()
    for search, request in zip(cycle(searches), requests.requests, strict=False):
        begun = perf_counter()
        await _found(finder, search, request)
        seconds.append(perf_counter() - begun)
    return median(seconds) * 1000


def _own_search(shared: Roster, number: int) -> AgentSearch:
    """Return a search of a tenant with three agents of its own, which may not use one in ten servers, nor all tools."""
    rows = public_server_rows()[3 * number : 3 * number + 3]
    own = [replace(card, kind="custom", server=None) for card in roster_of(rows).cards.values()]
    roster = Roster({**shared.cards, **{card.name: card for card in own}})
    granted = [card for place, card in enumerate(roster.cards.values()) if place % 10 != number]
    limited = [replace(card, tools=card.tools[1:] or card.tools) for card in granted[number::7]]
    candidates = {card.name: card for card in (*granted, *limited)}
    return AgentSearch(f"tenant{number}", roster, Roster(candidates))


async def _found(ranker: AgentFinder, search: AgentSearch, request: Request) -> list[str]:
    ranking = await ranker.rank(search, request.text, max(_DEPTHS))
    if ranking.warning:
        raise RuntimeError(ranking.warning)
    return [agent.name for agent in ranking.agents]


def share_found(request: Request, found: Sequence[str], depth: int) -> float:
    """Return the share of what a request needs that is among the first `depth` agents found."""
    return len(request.agents.intersection(found[:depth])) / len(request.agents)


async def _with_steps(requests: RequestSet, depth: int) -> tuple[float, float]:
    """Return the recall of what the supervisor is shown last and first, if its plan has the steps of a person's."""
    finder = AgentFinder(static_embedder(), SystemClock(), patience=_PATIENCE_SECONDS)
    shortlister = Shortlister(finder, Limits().shortlist, NOOP_TRACER)
    search, shares = AgentSearch("bench", requests.roster, requests.roster), list[tuple[float, float]]()
    for request in requests.requests:
        first = [card.name for card in (await shortlister.choose(search, [request.text], ())).cards]
        last = first
        if await shortlister.best(search, request.steps) - set(first):
            texts = [request.text, *request.steps][:_TEXTS_SEARCHED]
            last = [card.name for card in (await shortlister.choose(search, texts, ())).cards]
        shares.append((share_found(request, last, depth), share_found(request, first, depth)))
    return fmean(last for last, _ in shares), fmean(first for _, first in shares)


def _tf_idf(requests: RequestSet, depth: int) -> float:
    """Return the recall of plain TF-IDF: words of two letters or more, smoothed frequencies, cosines of whole cards."""
    texts = {
        name: f"{card.server} {card.description}\n"
        + "\n".join(f"{tool.name}: {tool.description}" for tool in card.tools)
        for name, card in requests.roster.cards.items()
    }
    counts = {name: _words_of(text) for name, text in texts.items()}
    frequencies = Counter(word for words in counts.values() for word in words)
    idf = {word: math.log((1 + len(texts)) / (1 + count)) + 1 for word, count in frequencies.items()}
    lengths = {name: math.hypot(*(words[word] * idf[word] for word in words)) for name, words in counts.items()}
    shares = list[float]()
    for request in requests.requests:
        asked = {word: count * idf[word] ** 2 for word, count in _words_of(request.text).items() if word in idf}
        scores = {
            name: sum(weight * words[word] for word, weight in asked.items()) / lengths[name]
            for name, words in counts.items()
        }
        shares.append(share_found(request, sorted(scores, key=lambda name: -scores[name]), depth))
    return fmean(shares)


def _words_of(text: str) -> Counter[str]:
    return Counter(re.findall(r"\w\w+", text.lower()))
