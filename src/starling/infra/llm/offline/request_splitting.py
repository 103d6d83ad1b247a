"""Splits a request into parts for different agents, with back-references resolved."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from starling.infra.llm.offline.agent_ranking import AgentRanker
from starling.infra.llm.offline.tokenization import IMPERATIVE_VERBS, QUESTION_WORDS, tokens
from starling.infra.llm.offline.value_extraction import extract_values, mask_values, values_of_kind

_BOUNDARY = re.compile(
    r"""(?P<end>[.!?]+(?=\s|$)|[;](?=\s|$)|[\u3002\uff01\uff1f\uff1b\n]+)
      | (?P<join>,?\s+(?:and|but|then|plus|also|as\ well\ as)(?:\s+(?:then|also|please|finally))*\s+
            |,\s+|\s*&\s+|\s\+\s|\uff0c)""",
    re.VERBOSE | re.IGNORECASE,
)
_REFERS = re.compile(
    r"(?<!is )(?<!was )\b(it|its|them|their|there|that|this|those|these|the same)\b(?! is\b| was\b|'s\b)",
    re.IGNORECASE,
)
_FOLLOWS = re.compile(
    r"\b(then|after(wards| that)|its? result|(the|that|this|those|these) (results?|outputs?|answers?|values?))\b",
    re.IGNORECASE,
)
_LEADING = re.compile(r"^(?:(?:and|but|then|also|please|finally|first|next|so)\b[\s,]*)+", re.IGNORECASE)
_MOST_CUTS = 60  # more means that the text is a document


@dataclass(slots=True)
class RequestPart:
    """A part of a request; `follows`: it needs the result of the previous part."""

    text: str
    follows: bool = False


def has_back_reference(text: str) -> bool:
    """Return whether a text contains a back-reference, such as "there", "its" or "the same"."""
    return bool(_REFERS.search(text))


def split_request(request: str, roster: AgentRanker) -> list[RequestPart]:
    """Return the parts of a request in order, with back-references resolved."""
    found: list[RequestPart] = []
    waiting = ""
    for piece, joined_by in _merged_pieces(request, roster):
        text = f"{waiting} {piece}".strip()
        if _is_context_only(text, roster):
            waiting = text
            continue
        waiting = ""
        if roster.subject_terms(text) or any(value.kind != "number" for value in extract_values(text)):
            found.append(_resolve_references(text, joined_by, found))
    if waiting and found:
        found[-1].text += f" {waiting}"
    return found or [RequestPart(waiting or request.strip())]


def _pieces(request: str) -> Iterator[tuple[str, str, bool]]:
    """Yield `(text, boundary before it, hard)`; values are never split."""
    start, before, hard = 0, "", True
    for match in islice(_BOUNDARY.finditer(mask_values(request)), _MOST_CUTS):
        end = match.end() if match.lastgroup == "end" else match.start()
        if request[start:end].strip():
            yield request[start:end].strip(), before, hard
        hard = match.lastgroup == "end" or (hard and not request[start:end].strip())
        start, before = match.end(), match[0]
    if request[start:].strip():
        yield request[start:].strip(), before, hard


def _merged_pieces(request: str, roster: AgentRanker) -> list[tuple[str, str]]:
    merged: list[tuple[str, str]] = []
    for text, before, hard in _pieces(request):
        if merged and not hard and not _stands_alone(text, merged[-1][0], roster):
            merged[-1] = (f"{merged[-1][0]}{before}{text}", merged[-1][1])
        else:
            merged.append((text, before))
    return merged


def _stands_alone(text: str, earlier: str, roster: AgentRanker) -> bool:
    """Return whether a piece is a request of its own: a question, an imperative, or a match for a different agent."""
    opening = tokens(_LEADING.sub("", text))[:1]
    if not (QUESTION_WORDS | IMPERATIVE_VERBS).isdisjoint(opening):
        return bool(roster.subject_terms(text)) or bool(extract_values(text))
    mine, other = roster.best(text), roster.best(earlier)
    return mine is not None and other is not None and mine.card is not other.card


def _is_context_only(text: str, roster: AgentRanker) -> bool:
    """Return whether a sentence requests nothing but gives context for the next one."""
    words = tokens(_LEADING.sub("", text))
    if not roster.subject_terms(text):
        return bool(values_of_kind(text, "path", "url", "zone", "name", "quoted"))
    asks = text.endswith("?") or not (QUESTION_WORDS | IMPERATIVE_VERBS).isdisjoint(words[:1])
    return not asks and bool(extract_values(text)) and roster.best(text) is None


def _resolve_references(text: str, joined_by: str, earlier: list[RequestPart]) -> RequestPart:
    """Return a part with the values that it refers to, or marked as dependent on the previous part."""
    clean = _LEADING.sub("", text).strip(" ;,") or text
    if not earlier:
        return RequestPart(clean)
    before = earlier[-1].text
    follows = bool(_FOLLOWS.search(f"{joined_by} {text}"))
    if has_back_reference(clean) and not values_of_kind(clean, "path", "url", "zone", "name"):
        referred = [value.text for value in values_of_kind(before, "path", "url", "zone", "quoted", "name")]
        if referred:
            clean = f"{clean.rstrip('?.! ')} ({', '.join(dict.fromkeys(referred))})"
        else:
            follows = True
    return RequestPart(clean, follows)
