"""Citations of an answer: its sources, and the numbers in its text that name none of them."""

import re
from collections.abc import Iterator, Sequence

from brain.lifecycle.answer_passages import CITATION
from brain.state import CitationRecord, TaskOutcome

_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`", re.DOTALL)
_CITATION = re.compile(r"(?<![ \t])[ \t]*\[\s*(\d{1,6}(?:\s*[,;]\s*\d{1,6})*)\s*\](?!\()")  # `[1](…)` is a link


def citations_of(outcomes: Sequence[TaskOutcome]) -> list[CitationRecord]:
    """Return the sources of an answer, numbered from 1."""
    return [
        CitationRecord(
            id=number,
            task_id=outcome["task_id"],
            agent=outcome["agent"],
            tools=list(dict.fromkeys(use["tool"] for use in outcome["tools"])),
        )
        for number, outcome in enumerate(outcomes, start=1)
    ]


def cited_of[T](sources: Sequence[T], text: str) -> Sequence[T]:
    """Return the sources that a text cites by their numbers from 1; all of them if it cites none."""
    said = "".join(part for part, is_code in _parts(text) if not is_code)
    cited = set[int]()
    for match in CITATION.finditer(said):
        for first, last in re.findall(r"(\d+)(?:\s*[–-]\s*(\d+))?", match[0]):
            cited.update(range(int(first), min(int(last or first), len(sources)) + 1))
    return [one for number, one in enumerate(sources, start=1) if number in cited] or sources


def without_unsourced(text: str, sources: int, quoted: Sequence[str] = ()) -> tuple[str, Sequence[int]]:
    """Return a text without the citations `[n]` whose `n` is not a source from 1 to `sources`, and these numbers.

    Numbers in brackets are content, and stay: in code, in a link, where one of the `quoted` texts has them, and a list
    of several of which none is a source.
    """
    removed: list[int] = []
    kept = [_compact(one) for one in quoted]

    def checked(match: re.Match[str]) -> str:
        numbers = [int(number) for number in re.findall(r"\d+", match[1])]
        valid = [number for number in numbers if 1 <= number <= sources]
        is_list = len(numbers) > 1 and not valid
        if len(valid) == len(numbers) or is_list or any(_compact(match[0]) in one for one in kept):
            return match[0]
        removed.extend(number for number in numbers if number not in valid)
        blank = match[0][: match[0].index("[")]
        return f"{blank}[{', '.join(map(str, valid))}]" if valid else ""

    parts = [part if is_code else _CITATION.sub(checked, part) for part, is_code in _parts(text)]
    return "".join(parts).strip(), removed


def without_citations(text: str, sources: int, quoted: Sequence[str] = ()) -> str:
    """Remove the citations of a text that name sources from 1 to `sources`; content in brackets stays, as above."""
    kept = [_compact(one) for one in quoted]

    def checked(match: re.Match[str]) -> str:
        numbers = [int(number) for number in re.findall(r"\d+", match[1])]
        is_citation = all(1 <= number <= sources for number in numbers)
        return "" if is_citation and not any(_compact(match[0]) in one for one in kept) else match[0]

    return "".join(part if is_code else _CITATION.sub(checked, part) for part, is_code in _parts(text)).strip()


def with_only_source(text: str) -> str:
    """Return a text that cites nothing, and is no code or JSON, with the citation of its only source at the end."""
    said = "".join(part for part, is_code in _parts(text) if not is_code)
    is_kept = re.match(r"\s*(?:[{\[]|\Z)", said) or any(
        "1" in re.findall(r"\d+", match[1]) for match in _CITATION.finditer(said)
    )
    return text if is_kept else f"{text}\n\n[1]" if text.endswith(("```", "|")) else f"{text} [1]"


def _parts(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the parts of a text in order, and whether each is code."""
    end = 0
    for match in _CODE.finditer(text):
        yield text[end : match.start()], False
        yield match[0], True
        end = match.end()
    yield text[end:], False


def _compact(text: str) -> str:
    return re.sub(r"\s", "", text)
