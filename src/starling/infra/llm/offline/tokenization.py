"""Tokenization: words of any script, light stemming, stop words and verb lists."""

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WORD = re.compile(r"[^\W_]+")
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")

_FUNCTION_WORDS = """
a an the this that these those here there it its itself he she they them their his her i me my mine we us our you your
yours am is are was were be been being do does did done has have had having can could may might must shall should will
would of in on at to from by for with without about into onto over under between through during before after since
until till as than per via and or but nor so if then else when while where what which who whom whose why how because
also too plus both either neither not no please kindly just only very really quite some any each every all more most
much many few little lot several other another such same own s t re ve ll d m don doesn isn aren let lets want need
like wish would know help able using use used new now right currently today moment ago out up down off again ever yet
still already once last first latest next previous
"""
_GREETINGS = """
hello hi hey thanks thank bye ok okay yes sorry welcome good great nice morning evening afternoon night
"""
# Verbs of nearly all tools: they identify requests but hardly distinguish tools.
_READING = """
tell show give get list read find fetch search look check see display print return retrieve explain describe provide
compute count query view report recommend suggest
"""
_CHANGING = "create add write set update change edit delete remove"
_VAGUE = "make generate run execute open send put"  # the meaning depends on the object
_OTHER_CHANGES = """
copy move rename download upload switch start stop commit reset toggle trigger install cancel kill restart insert drop
checkout stage unstage push pull merge revert restore replace append overwrite clear modify save post publish submit
pay buy assign close archive enable disable deploy record store register invite mark
"""
_OTHER_ORDERS = "convert calculate translate compare summarize think draw"
_FUNCTION = frozenset(f"{_FUNCTION_WORDS} {_GREETINGS}".split())


def normalize(text: str) -> str:
    """Return text in lower case without accents. The length may differ."""
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join(char for char in decomposed if not unicodedata.combining(char)).casefold()


@lru_cache(maxsize=20_000)
def stem(word: str) -> str:
    """Return a normalized word without common English endings."""
    cut = _strip_endings(word) if len(word) > 3 else word
    return word if word in _FUNCTION or cut in _FUNCTION else cut


def _strip_endings(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        word = word[:-3] + "y"
    elif word.endswith(("sses", "xes", "ches", "shes", "zes")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in ("ing", "ed"):
        if word.endswith(ending) and len(word) >= len(ending) + 3:
            word = word.removesuffix(ending)
            word = word[:-1] if word[-1] == word[-2] and word[-1] not in "ls" else word
            break
    return word[:-1] if word.endswith("e") and len(word) > 3 else word


def _pieces(word: str) -> Iterable[str]:
    if not _UNSPACED.search(word):
        return (word,)
    return [word[i : i + 2] for i in range(max(1, len(word) - 1))]


@lru_cache(maxsize=4_096)
def tokens(text: str) -> tuple[str, ...]:
    """Return the stems of all words; camelCase and snake_case are split, scripts without spaces give bigrams."""
    words = _WORD.findall(normalize(_CAMEL.sub(" ", text)))
    return tuple(stem(piece) for word in words for piece in _pieces(word))


STOP_WORDS = _FUNCTION
GREETINGS = frozenset(_GREETINGS.split())
CHANGE_WORDS = frozenset(f"{_CHANGING} {_VAGUE} {_OTHER_CHANGES}".split())
READING_VERBS = frozenset(tokens(_READING))
CHANGE_STEMS = frozenset(map(stem, CHANGE_WORDS))
VAGUE_VERBS = frozenset(tokens(_VAGUE))
COMMON_VERBS = READING_VERBS.union(VAGUE_VERBS, tokens(_CHANGING))
IMPERATIVE_VERBS = COMMON_VERBS.union(CHANGE_STEMS, tokens(_OTHER_ORDERS))
QUESTION_WORDS = frozenset(
    tokens("what which who whose when where why how is are was were does did can could would will")
)


def content_words(text: str) -> tuple[str, ...]:
    """Return the stems in order, without stop words, single letters and numbers."""
    return tuple(token for token in tokens(text) if token not in STOP_WORDS and not token.isdigit() and len(token) > 1)
