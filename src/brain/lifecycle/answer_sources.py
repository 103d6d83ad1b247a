"""The sources of an answer: what in it none of them has, and the excerpts of them that it rests on."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

from brain.lifecycle.answer_check import MOST_CHARS, unsupported
from brain.lifecycle.answer_passages import Passage, is_json, passages, unit_at
from brain.lifecycle.citations import citations_of, cited_of
from brain.lifecycle.stated_numbers import NUMBER, factors_of, readings
from brain.state import CitationRecord, CitedCall, ExcerptRecord, GraphState, ResultCall, TaskOutcome
from starling.core.artifacts import ArtifactStore
from starling.core.errors import DatabaseUnavailableError, NotFoundError
from starling.core.secrets.look_alikes import mask_keys

MARK: Final = "[?]"
"""Follows a passage of an answer that no source has."""

_CHECKED_AT_ONCE: Final = 64 * 1024  # characters of sources; more are checked in a thread
_MOST_EXCERPTS, _MOST_CALLS, _EXCERPT_CHARS, _AROUND = 5, 20, 200, 60
_CITED: Final = re.compile(r"\[\s*(\d{1,6}(?:\s*[,;]\s*\d{1,6})*)\s*\](?!\()")
_WORD: Final = re.compile(r"\w{3,}")
_REST_OF_CODE: Final = re.compile(r"[^`\n]*`")


@dataclass(frozen=True, slots=True)
class AnswerSources:
    """The approved results that the answer of a run is made of, and what the user said.

    Whole artifacts are read once something is missing in the results that models were shown.
    """

    state: GraphState
    outcomes: Sequence[TaskOutcome]
    artifacts: ArtifactStore | None
    tenant: str
    run_id: str

    async def unsupported(self, answer: str) -> Sequence[Passage]:
        """Return the passages of an answer that no source it cites has; none where these can't be read whole."""
        cited = cited_of(self.outcomes, answer)
        given = [one["output"] for one in (*cited, *self.state.get("given", []))]
        found = await self._missing_in(answer, given)
        kept = [one["id"] for outcome in cited for one in outcome.get("artifacts", ())]
        if not found or not kept:
            return found
        texts = await self._artifacts(kept)
        return () if texts is None else await self._missing_in(answer, [*given, *texts.values()])

    async def citations(self, answer: str) -> list[CitationRecord]:
        """Return the sources of an answer with their calls and the excerpts that it rests on; none if it is empty."""
        cited = citations_of(self.outcomes)
        for record, outcome in zip(cited, self.outcomes, strict=True):
            calls = outcome.get("result_calls", [])
            if calls:
                record["calls"] = [_cited_call(call) for call in calls[:_MOST_CALLS]]
            statements = _statements(answer, record["id"])
            if excerpts := (await self._excerpts(statements, outcome["output"], calls))[:_MOST_EXCERPTS]:
                record["excerpts"] = excerpts
        return cited

    async def _excerpts(
        self, statements: Sequence[str], output: str, calls: Sequence[ResultCall]
    ) -> list[ExcerptRecord]:
        """Return what the statements rest on: in results of calls, else elsewhere in the output, else in artifacts."""
        missing = [(one, text) for text in statements for one in passages(text)]
        own = [(call["call_id"], output[call.get("start", 0) : call.get("end", 0)]) for call in calls]
        excerpts, nowhere = list[ExcerptRecord](), dict[str, str]()
        said = [*(({"call_id": call_id}, text) for call_id, text in own), (nowhere, output)]
        holders = [(place, mask_keys(text)) for place, text in said]  # as the API serves them
        for place, text in holders:
            spans, missing = _found(missing, text)
            excerpts += [_excerpt(text, span, place) for span in spans]
        long = {call["artifact"]: call["call_id"] for call in calls if "artifact" in call}
        if missing and long and len(excerpts) < _MOST_EXCERPTS:
            for key, text in (await self._artifacts(list(long)) or {}).items():
                spans, missing = _found(missing, text)
                excerpts += [_excerpt(text, span, {"call_id": long[key], "artifact": key}) for span in spans]
        if not excerpts:
            lines = [(*_best_line(" ".join(statements), text), place, text) for place, text in holders]
            shared, span, place, text = max(lines, key=lambda line: line[0])
            excerpts = [_excerpt(text, span, place)] if shared else []
        return excerpts

    async def _artifacts(self, ids: Sequence[str]) -> Mapping[str, str] | None:
        """Return the texts of artifacts, None if one can't be read or they are too long."""
        sizes = {one["id"]: one["characters"] for outcome in self.outcomes for one in outcome.get("artifacts", ())}
        wanted = [key for key in dict.fromkeys(ids) if sizes.get(key)]
        if self.artifacts is None or sum(sizes[key] for key in wanted) > MOST_CHARS:
            return None
        try:
            read = [await self.artifacts.read(self.tenant, self.run_id, key) for key in wanted]
        except (NotFoundError, DatabaseUnavailableError):
            return None
        return {key: one.content.decode(errors="replace") for key, one in zip(wanted, read, strict=True)}

    async def _missing_in(self, answer: str, sources: Sequence[str]) -> Sequence[Passage]:
        size = sum(map(len, sources)) + len(answer) * 8  # many numbers are compared with each other
        if size <= _CHECKED_AT_ONCE:
            return _unsupported(answer, sources, self._said)
        return await asyncio.to_thread(_unsupported, answer, sources, self._said)

    @property
    def _said(self) -> list[str]:
        state = self.state
        asked = [text for one in state.get("clarifications", []) for text in (one["question"], one["answer"])]
        left_out = [text for part in state["degraded"] for text in (part["part"], part["reason"])]
        said = [message["content"] for message in state["messages"]]
        return [state["input_request"], *said, *asked, *state["assumptions"], *left_out]


def marked(answer: str, found: Sequence[Passage]) -> str:
    """Return an answer with the mark behind each of these passages; a document in JSON stays as it is."""
    if is_json(answer):
        return answer
    for passage in reversed(found):
        end = passage.end
        if answer[end : end + 1] == ")" and "](" in answer[max(0, passage.start - 2) : passage.start]:
            end += 1  # the address of a link
        if answer.count("`", answer.rfind("\n", 0, end) + 1, end) % 2 and (code := _REST_OF_CODE.match(answer, end)):
            end = code.end()
        answer = f"{answer[:end]} {MARK}{answer[end:]}"
    return answer


def _unsupported(answer: str, sources: Sequence[str], said: Sequence[str]) -> Sequence[Passage]:
    return unsupported(answer, [_without_marked(text) for text in sources], [_without_marked(text) for text in said])


def _without_marked(text: str) -> str:
    """Return what a team, or an earlier answer, said, without what was marked in it: it stood nowhere then."""
    for passage in reversed(passages(text)) if MARK in text else ():
        if text.startswith((f" {MARK}", f") {MARK}"), passage.end):
            text = f"{text[: passage.start]}{text[passage.end :]}"
    return text


def named(found: Sequence[Passage]) -> str:
    """Return the passages in one line, each once."""
    return "; ".join(dict.fromkeys(f"“{one.text.strip('“”')}”" for one in found))


def _cited_call(call: ResultCall) -> CitedCall:
    cited = CitedCall(call_id=call["call_id"], tool=call["tool"])
    return {**cited, "artifact": call["artifact"]} if "artifact" in call else cited


def _statements(answer: str, citation: int) -> list[str]:
    """Return the parts of an answer that cite this source, and the lines that cite none."""
    found = list[str]()
    for line in answer.splitlines():
        at, part = 0, ""
        for match in _CITED.finditer(line):
            if line[at : match.start()].strip():
                part = line[at : match.start()]
            at = match.end()
            if citation in map(int, re.findall(r"\d+", match[1])):
                found.append(part)
        if not at:
            found.append(line)
    return found


type _Span = tuple[int, int]


def _found(wanted: Sequence[tuple[Passage, str]], text: str) -> tuple[list[_Span], list[tuple[Passage, str]]]:
    """Return where a text has passages of statements, with what is around them, and the passages that it hasn't."""
    spans, missing = list[_Span](), list[tuple[Passage, str]]()
    for passage, statement in wanted:
        if len(spans) == _MOST_EXCERPTS:
            break
        if (at := _place_of(passage, statement, text)) is None:
            missing.append((passage, statement))
        elif not any(start <= at[0] and at[1] <= end for start, end in spans):
            begin = max(text.rfind("\n", 0, at[0]) + 1, at[0] - _AROUND)
            end = text.find("\n", at[1])
            end = min(len(text) if end < 0 else end, at[1] + _AROUND, begin + _EXCERPT_CHARS)
            spans.append((begin, end))
    return spans, missing


def _place_of(passage: Passage, statement: str, text: str) -> _Span | None:
    """Return where a text has a passage, or a number that it is a form of."""
    plain = passage.text.strip("`“”„«»\"'‘’ ") if passage.kind == "quote" else passage.text
    words = r"\s+".join(map(re.escape, plain.split()))  # a quoted text may go on in the next line
    if match := re.search(rf"(?<!\w){words}(?!\w)", text, re.IGNORECASE):
        return match.span()
    if not NUMBER.fullmatch(plain):
        return None
    unit = unit_at(statement, plain, passage.start)
    bounds = [one.times(factor) for one in readings(plain) for factor in factors_of(unit, stated=True)]
    for match in NUMBER.finditer(text[:_CHECKED_AT_ONCE]):
        if any(low <= one.value <= high for one in readings(match[0]) for low, high in bounds):
            return match.span()
    return None


def _best_line(statement: str, text: str) -> tuple[int, _Span]:
    """Return how many words the line of a text shares with a statement that shares most, and where it is."""
    said, at, best = set(_WORD.findall(statement.casefold())), 0, (0, (0, 0))
    for line in text[:_CHECKED_AT_ONCE].splitlines(keepends=True):
        shared = len(said.intersection(_WORD.findall(line.casefold())))
        best = max(best, (shared, (at, at + min(len(line.rstrip()), _EXCERPT_CHARS))), key=lambda one: one[0])
        at += len(line)
    return best


def _excerpt(text: str, span: _Span, place: Mapping[str, str]) -> ExcerptRecord:
    return cast("ExcerptRecord", {"text": text[slice(*span)], "start": span[0], "end": span[1], **place})
