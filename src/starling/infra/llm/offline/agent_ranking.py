"""Ranking of agents for a text, by TF-IDF over their cards."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from starling.infra.llm.offline.prompt_parsing import elements
from starling.infra.llm.offline.tokenization import COMMON_VERBS, content_words, tokens
from starling.infra.llm.offline.value_extraction import extract_values

_TOOL = re.compile(r"([\w./:-]+)(?:\s\((.*?)\))?(?=,\s|\.?\s*$)", re.DOTALL)
_NAME_WEIGHT = 2.0  # of a word in a name, compared with one in a description
_LATE_WEIGHT = 0.7  # lower limit for words late in a description
_VERB_WEIGHT = 0.3  # verbs such as get and list hardly distinguish tools
_PIVOT = 0.7  # pivoted length normalization, so that very short documents are not preferred
_SHARE_NEEDED = 0.2  # minimum coverage of the text, by weight
_SCORE_NEEDED = 0.18, 0.1  # or a cosine like this, with at least this coverage of a longer text
_BUILTIN = "builtin"


@dataclass(frozen=True, slots=True)
class Card:
    """The card of an agent; `documents` are the weighted stems of its description and of each tool."""

    name: str
    kind: str
    state: str
    summary: str
    tools: tuple[str, ...]
    documents: tuple[Mapping[str, float], ...]

    @property
    def ready(self) -> bool:
        return self.state != "degraded"


@dataclass(frozen=True, slots=True)
class Match:
    """How well a card matches a text: `score` is for ranking, `coverage` is what it covers of the text's weight."""

    card: Card
    score: float
    coverage: float
    matched: frozenset[str]


@lru_cache(maxsize=4_096)
def _card(name: str, kind: str, state: str, text: str) -> Card:
    summary, _, listed = text.partition("Tools:")
    tools = _TOOL.findall(listed.strip())
    head = term_weights(name, summary)
    documents = (head, *(term_weights(tool, about) for tool, about in tools))
    return Card(name, kind, state, summary.strip(), tuple(tool for tool, _ in tools), documents)


def term_weights(name: str, description: str) -> Mapping[str, float]:
    """Return the term weights of a name with a description."""
    weights = defaultdict[str, float](float, dict.fromkeys(content_words(name), _NAME_WEIGHT))
    for position, word in enumerate(content_words(description)):
        weights[word] += max(_LATE_WEIGHT, 1.0 - position / 20)
    return {word: 1.0 + math.log(weight) for word, weight in weights.items()}


def _is_relevant(match: Match) -> bool:
    """Return whether a match is strong enough and based on more than common verbs."""
    score, coverage = _SCORE_NEEDED
    enough = match.coverage >= _SHARE_NEEDED or (match.score >= score and match.coverage >= coverage)
    return enough and bool(match.matched - COMMON_VERBS)


class TfidfIndex:
    """TF-IDF over documents that belong to owners, numbered from 0; `low_weight` words hardly count."""

    def __init__(
        self,
        documents: Sequence[tuple[int, Mapping[str, float]]],
        owners: int,
        low_weight: frozenset[str] = COMMON_VERBS,
    ) -> None:
        self._owners = owners
        self._low_weight = low_weight
        self._owner_of = [owner for owner, _ in documents]
        holders: defaultdict[str, set[int]] = defaultdict(set)
        for owner, document in documents:
            for word in document:
                holders[word].add(owner)
        self._document_frequency = {word: len(held) for word, held in holders.items()}
        self._postings: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
        weighed = [{word: weight * self.weight(word) for word, weight in document.items()} for _, document in documents]
        lengths = [math.sqrt(sum(weight * weight for weight in weights.values())) for weights in weighed]
        usual = sum(lengths) / (len(lengths) or 1)
        for number, (weights, length) in enumerate(zip(weighed, lengths, strict=True)):
            pivoted = (1 - _PIVOT) * length + _PIVOT * usual or 1.0
            for word, weight in weights.items():
                self._postings[word].append((number, weight / pivoted))

    def weight(self, word: str) -> float:
        """Return the inverse document frequency of a word, reduced for common verbs."""
        rarity = 1.0 + math.log((self._owners + 1) / (self._document_frequency.get(word, 0) + 1))
        return rarity * (_VERB_WEIGHT if word in self._low_weight else 1.0)

    def contains(self, word: str) -> bool:
        return word in self._document_frequency

    def scores(self, words: Mapping[str, float]) -> dict[int, float]:
        """Return the cosine similarity of each document with the words, where it is not 0."""
        query = {word: count * self.weight(word) for word, count in words.items()}
        length = math.sqrt(sum(weight * weight for weight in query.values())) or 1.0
        found: defaultdict[int, float] = defaultdict(float)
        for word, weight in query.items():
            for number, posting in self._postings.get(word, ()):
                found[number] += posting * weight / length
        return found

    def owner_scores(self, words: Mapping[str, float]) -> dict[int, float]:
        """Return for each owner the score of its best document plus a fraction of the others."""
        best: defaultdict[int, list[float]] = defaultdict(list)
        for number, score in self.scores(words).items():
            best[self._owner_of[number]].append(score)
        return {owner: max(scores) + 0.3 * (sum(scores) - max(scores)) / len(scores) for owner, scores in best.items()}


def subject_terms(text: str, index: TfidfIndex) -> Counter[str]:
    """Return the content words of a text that aren't values; of names and places, those that the index contains."""
    words = Counter(content_words(text))
    for value in extract_values(text):
        named = value.kind in ("name", "zone", "revision")
        words.subtract(word for word in content_words(value.text) if not (named and index.contains(word)))
    return +words


def implied_terms(text: str) -> frozenset[str]:
    """Return words implied by values, such as `file` for the path in `read /a/b.txt`."""
    paths = [value.value for value in extract_values(text) if value.kind == "path"]
    folders = any("." not in path.rsplit("/", 1)[-1] for path in paths)
    links = any(value.kind == "url" for value in extract_values(text))
    return frozenset(tokens("file " * bool(paths) + "directory " * folders + "url" * links))


class AgentRanker:
    """Ranks the agents of one request. Equal scores are ordered by name."""

    def __init__(self, cards: Sequence[Card]) -> None:
        self.cards = tuple(sorted(cards, key=lambda card: card.name))
        self.selectable = [card for card in self.cards if card.kind != _BUILTIN]
        names = [frozenset(content_words(card.name)) for card in self.selectable]
        self._shared = frozenset[str]().union(*names[:1]).intersection(*names) if len(names) > 1 else frozenset[str]()
        documents = [(number, document) for number, card in enumerate(self.selectable) for document in card.documents]
        self._index = TfidfIndex(documents, len(self.selectable))
        self._vocabulary = [frozenset().union(*card.documents) for card in self.selectable]

    def subject_terms(self, text: str) -> Counter[str]:
        """Return the content words of a text without its values."""
        return subject_terms(text, self._index)

    def rank(self, text: str) -> list[Match]:
        """Return the cards that share words with a text, best first."""
        words = self._query(text)
        total = sum(self._index.weight(word) for word in words)
        found: list[Match] = []
        for owner, score in self._index.owner_scores(words).items():
            matched = frozenset(word for word in words if word in self._vocabulary[owner])
            coverage = sum(self._index.weight(word) for word in matched) / total
            found.append(Match(self.selectable[owner], score, coverage, matched))
        return sorted(found, key=lambda match: (-match.score, match.card.name))

    def _query(self, text: str) -> Counter[str]:
        """Return the query terms: the subject, or the words implied by values if there is none (as in "read /a/b")."""
        words = Counter({word: count for word, count in self.subject_terms(text).items() if word not in self._shared})
        if not words.keys() - COMMON_VERBS:
            words.update(word for word in implied_terms(text) if self._index.contains(word))
        elif next(iter(words)) not in COMMON_VERBS:
            words[next(iter(words))] += 1  # the first word is usually the subject of the request
        return words

    def relevant(self, text: str) -> list[Match]:
        """Return the relevant cards, best first."""
        return [match for match in self.rank(text) if _is_relevant(match)]

    def best(self, text: str) -> Match | None:
        return next(iter(self.relevant(text)), None)


@lru_cache(maxsize=16)
def _cached_ranker(cards: tuple[tuple[str, str, str, str], ...]) -> AgentRanker:
    return AgentRanker([_card(*card) for card in cards])


def agent_ranker(section: str) -> AgentRanker:
    """Return the ranker for an `<agents>` section; the order in the section does not matter."""
    listed = ((item.get("name"), item.get("kind"), item.get("state"), item.text) for item in elements(section, "agent"))
    return _cached_ranker(tuple(sorted(listed)))
