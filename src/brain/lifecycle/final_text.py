"""The form of a final text: wrapped in JSON, cut off, empty, or repeating itself."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, cast

from brain.lifecycle.citations import without_citations
from starling.core.llm import Message, ModelReply, ModelRequest
from starling.core.model_output.json_document import without_fence

CUT_OFF: Final = "was cut off at the token limit"
_BLOCK: Final = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_NUMBERS: Final = re.compile(r"\[[\d, ]+\]")
_TOKEN: Final = re.compile(r"\w{1,8}|[^\w\s]")
_FOUND_BY, _COPIES, _REPEATED = 8, 3, 30  # tokens that find a block again, copies of it in a row, tokens of all copies


def unwrapped(text: str, request: str) -> str:
    """Return the only text of a JSON object, beside citations, fenced or not; other text, and requested JSON, as is."""
    try:
        value: Any = json.loads(without_fence(text), strict=False)
    except (ValueError, RecursionError):
        return text
    if not isinstance(value, dict) or "json" in request.casefold() or "{" in request:
        return text
    while isinstance(value, dict):
        members = list(cast("dict[str, Any]", value).values())
        told = [one for one in members if one and not _NUMBERS.fullmatch(str(one))]
        if len(told) > 1:
            return text
        value = told[0] if told else ""
    return value.strip() if isinstance(value, str) else text


def fault_of(reply: ModelReply, text: str, sources: Sequence[str]) -> str:
    """Return what is wrong with the form of a final text, read from `reply` and made of `sources`; empty if nothing."""
    if reply.finish_reason == "length":
        return CUT_OFF
    if not without_citations(text, len(sources)):
        return "is empty"
    prose = _BLOCK.sub("", text)
    return "repeats itself" if _repeats_itself(prose) and not any(map(_repeats_itself, sources)) else ""


def _repeats_itself(text: str) -> bool:
    tokens, last = _TOKEN.findall(text.casefold()), dict[tuple[str, ...], int]()
    for at in range(len(tokens)):
        start = tuple(tokens[at : at + _FOUND_BY])
        if (size := at - last.get(start, at)) and any(token.isalpha() for token in start):
            more = max(_COPIES, -(-_REPEATED // size)) - 1
            if tokens[at - size : at] * more == tokens[at : at + size * more]:
                return True
        last[start] = at
    return False


def asked_again(request: ModelRequest, written: str, fault: str) -> ModelRequest:
    """Return the request for another answer in place of the one that has this fault."""
    again = f"This answer {fault}. Write the whole answer again, in plain text and more briefly."
    said = Message("assistant", written[:500] or "(nothing)"), Message("user", again)
    return replace(request, messages=(*request.messages, *said))


def sent_back(request: ModelRequest, written: str, passages: str) -> ModelRequest:
    """Return the request for another answer in place of one that has `passages` which no result it cites has."""
    again = (
        f"No cited result has these passages of the answer: {passages}. Write the whole answer again, with what "
        "results have in their place, or with the right citations, or without them. What no result has is not known."
    )
    return replace(request, messages=(*request.messages, Message("assistant", written), Message("user", again)))
