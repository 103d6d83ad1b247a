"""The agents that a decision is shown: all of a small roster; else those that fit, are named or were used."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import chain, islice

from brain.prompts import Xml, lines
from brain.registry.cards import AgentCard
from brain.retrieval.agent_finder import AgentFinder
from brain.retrieval.search import AgentSearch
from brain.retrieval.text_similarity import content_words, sentences, stem
from starling.core.model_output.names import plain_name
from starling.core.tracing import SpanKind, Tracer

_MOST_NAMED = 12  # servers may be named by common words


@dataclass(frozen=True, slots=True)
class Shortlist:
    """The agents that a decision is shown, out of `total`; `warning` says why they were found by words alone.

    Cards show the tools first that share words with `wanted`, or that are in `tools`, by agent.
    """

    cards: Sequence[AgentCard]
    total: int
    warning: str = ""
    wanted: str = ""
    tools: Mapping[str, Collection[str]] = field(default_factory=dict[str, Collection[str]])

    @property
    def is_partial(self) -> bool:
        return len(self.cards) < self.total

    def elements(self) -> Xml:
        """Return the cards, one a line, after a line that says how many are missing."""
        cards = lines(card.element(" ".join([self.wanted, *self.tools.get(card.name, ())])) for card in self.cards)
        return Xml(f"{len(self.cards)} of {self.total} agents\n{cards}") if self.is_partial else cards


@dataclass(frozen=True, slots=True)
class Shortlister:
    """Chooses up to `size` agents for each decision, besides those that are shown in any case."""

    ranker: AgentFinder
    size: int
    tracer: Tracer

    async def choose(self, search: AgentSearch, texts: Sequence[str], kept: Collection[str]) -> Shortlist:
        """Return the agents that fit any of the texts best, with built-in ones and `kept`.

        Agents that the first text names, by their own name or by that of their server, are kept too. The last third
        of the places is for teams, as far as there are any; they get those that other agents leave, too. A roster of
        not more than `size` agents is returned whole.
        """
        cards = search.candidates.cards
        always = {card.name for card in cards.values() if card.kind == "builtin"}
        if len(cards) - len(always) <= self.size:
            return Shortlist(list(cards.values()), len(cards), wanted=_content(texts))
        words = {plain_name(word) for word in texts[0].split()}
        names = ((name, {plain_name(name), plain_name(card.server or name)}) for name, card in cards.items())
        always |= {name for name in kept if name in cards}
        always |= set(islice((name for name, named in names if named & words), _MOST_NAMED))
        with self.tracer.span("find_agents", SpanKind.RETRIEVER, lambda: {"input": list(texts)}) as span:
            most = len(cards) if any(card.kind == "team" for card in cards.values()) else self.size
            rankings = [await self.ranker.rank(search, text, most) for text in texts]
            tools = dict[str, set[str]]()  # the agents' best, in the order of their highest scores
            for agent in sorted(chain(*(ranking.agents for ranking in rankings)), key=lambda agent: -agent.score):
                tools.setdefault(agent.name, set()).add(agent.tool)
            teams = [name for name in tools if cards[name].kind == "team"]
            others = [name for name in tools if cards[name].kind not in ("team", "builtin")]
            found = others[: self.size - min(self.size // 3, len(teams))]
            found += teams[: self.size - len(found)]
            span.set(lambda: {"output": found, "starling.agents_total": len(cards)})
        chosen = [cards[name] for name in dict.fromkeys((*found, *sorted(always)))]
        warning = next((one.warning for one in rankings if one.warning), "")
        return Shortlist(chosen, len(cards), warning, _content(texts), tools)

    async def best(self, search: AgentSearch, texts: Sequence[str]) -> set[str]:
        """Return the names of the agents that fit each text best."""
        return {agent.name for text in texts for agent in (await self.ranker.rank(search, text, 1)).agents}

    async def is_certain(self, search: AgentSearch, text: str) -> bool:
        """Whether an agent certainly has a tool for a sentence of a text: it is ranked first, and its best tool fits.

        That tool has half of the words of the sentence, one in its name. z-scores can't say so: one is always ahead.
        """
        cards = search.candidates.cards
        for sentence in sentences(text) if named_agents(cards.values(), text) else ():
            wanted = _stems(sentence)
            for best in (await self.ranker.rank(search, sentence, 1)).agents:
                for tool in () if cards[best.name].degraded else cards[best.name].tools:
                    known, named = _stems(f"{tool.name} {tool.description}"), _stems(tool.full_name)
                    if tool.name == best.tool and wanted & named and 2 * len(wanted & (known | named)) >= len(wanted):
                        return True
        return False


def named_agents(cards: Iterable[AgentCard], text: str) -> list[AgentCard]:
    """Return the agents with a tool whose name, or that of its server, has a word of a text or is nearly the text."""
    wanted = _stems(text)
    named = [(card, [name for tool in card.tools for name in (tool.name, tool.full_name)]) for card in cards]
    return [card for card, names in named if wanted & _stems(" ".join(names)) or get_close_matches(text, names)]


def _stems(text: str) -> set[str]:
    return set(map(stem, content_words(text)))


def _content(texts: Iterable[str]) -> str:
    return " ".join(word for text in texts for word in content_words(text))
