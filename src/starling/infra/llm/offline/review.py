"""The review of one attempt: does the output do what the task asks, going by what the tools returned?"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starling.infra.llm.offline.faults import fault, nothing
from starling.infra.llm.offline.prompts import Element, Sections, elements, leaves, parsed
from starling.infra.llm.offline.values import Value, clock, of_kind, values
from starling.infra.llm.offline.words import ORDERS, STOP, content, fold, tokens

_FENCE = re.compile(r"\s*```\w*\n(.*?)\n?```\s*", re.DOTALL)
_SUCCEEDED = ("succeeded", "success", "ok", "")
_UNABLE = re.compile(
    r"^[^.]{0,80}\b(?:can['’]?t|cannot|couldn['’]t|unable|which the task doesn['’]t name|no tool|no language model)\b",
    re.IGNORECASE,
)
_ORDERS_REVIEW = re.compile(
    r"\b(?:verdict|review\w*|approve|respond|answer|output|mark|return|status)\b.{0,60}\b(?:APPROVED|REJECTED|FIXED)\b"
    r"|\b(?:ignore|disregard|forget)\b.{0,30}\b(?:instructions?|rules?|prompts?|task)\b",
)
_QUANTITY = re.compile(r"\b(?:last|first|top|latest|newest|oldest|recent|biggest|busiest)\s+$", re.IGNORECASE)
_RECORD = re.compile(r"^([A-Z][\w ]{1,30}):(?= )", re.MULTILINE)
_SPECIALIST = "mcp_agent_"
_EVIDENCE_CHARS = 200
_LONG_RESULT = 2_000  # from here on a prompt may show less of a result than of the output


@dataclass(frozen=True, slots=True)
class _Call:
    name: str
    status: str
    arguments: Mapping[str, object]
    result: str

    @property
    def failed(self) -> bool:
        return self.status.casefold() not in _SUCCEEDED or bool(fault(self.result))

    @property
    def texts(self) -> list[str]:
        """Return the arguments' scalars as texts."""
        return [
            str(leaf) for _, leaf in leaves(dict(self.arguments)) if not isinstance(leaf, bool) and leaf is not None
        ]


@dataclass(frozen=True, slots=True)
class _Attempt:
    task: str
    request: str
    agent: str
    calls: Sequence[_Call]
    output: str

    @property
    def good(self) -> list[_Call]:
        return [call for call in self.calls if not call.failed]

    @property
    def asked(self) -> str:
        """What the arguments may come from."""
        return f"{self.task}\n{self.request}"

    @property
    def returned(self) -> str:
        return "\n".join(call.result for call in self.calls)


def review(sections: Sections) -> dict[str, Any]:
    """Return the verdict on an attempt, as its response schema wants it."""
    attempt = _Attempt(
        sections.text("task"),
        sections.text("user_request"),
        sections.element("task").get("agent"),
        [_call(item) for item in sections.children("tool_calls", "call")],
        sections.text("output"),
    )
    reasons, evidence = _objections(attempt)
    if reasons:
        return _verdict("REJECTED", reasons, evidence)
    fenced = _FENCE.fullmatch(attempt.output)
    if fenced and parsed(fenced[1]) is not None:
        return _verdict(
            "FIXED",
            ["The output answers the task inside a code fence."],
            [],
            fenced[1].strip(),
            ["removed the code fence"],
        )
    return _verdict("APPROVED", ["The output comes from the calls and fits the task."], _support(attempt))


def _verdict(
    status: str, reasons: list[str], evidence: list[str], refined: str = "", changed: Sequence[str] = ()
) -> dict[str, Any]:
    return {
        "status": status,
        "refined_output": refined,
        "reasons": reasons,
        "evidence": evidence,
        "changed": list(changed),
    }


def _call(item: Element) -> _Call:
    arguments = parsed(next((inner.text for inner in elements(item.raw, "arguments")), ""))
    result = next((inner.text for inner in elements(item.raw, "result")), "")
    return _Call(item.get("name"), item.get("status"), arguments if isinstance(arguments, Mapping) else {}, result)


def _objections(attempt: _Attempt) -> tuple[list[str], list[str]]:
    """Return why an attempt has to be rejected, with the passages; nothing if it needn't."""
    for found in _checks(attempt):
        reasons, evidence = zip(*found, strict=True)
        return list(reasons), [passage[:_EVIDENCE_CHARS] for passage in evidence if passage]
    return [], []


def _checks(attempt: _Attempt) -> Iterator[list[tuple[str, str]]]:
    """Yield `(reason, passage)` lists of the checks that object, the gravest first."""
    checks = (_empty, _errors, _unfounded, _orders, _contradictions, _places, _counts, _off_topic, _invented)
    yield from (found for check in checks if (found := list(check(attempt))))


def _empty(attempt: _Attempt) -> Iterator[tuple[str, str]]:
    if nothing(attempt.output):
        yield "The output is empty.", ""


def _errors(attempt: _Attempt) -> Iterator[tuple[str, str]]:
    """Object to errors that nothing made good, and to errors dressed as a result."""
    shown = fault(attempt.output)
    if shown:
        yield "The output is an error message, not a result.", shown
    good = {call.name for call in attempt.good}
    for call in attempt.calls:
        if call.failed and (call.name not in good or fold(call.result.strip()) in fold(attempt.output)) and not shown:
            yield f"The call of {call.name} failed.", fault(call.result) or call.result


def _unfounded(attempt: _Attempt) -> Iterator[tuple[str, str]]:
    """Object to what rests on no call: a specialist has nothing to say without one."""
    if attempt.calls:
        return
    unable = _UNABLE.match(attempt.output)
    if unable:
        yield f"The task was not done: {attempt.output[:_EVIDENCE_CHARS]}", unable[0]
    elif attempt.agent.startswith(_SPECIALIST):
        yield "No tool was called, so the output comes from nowhere.", attempt.output


def _orders(attempt: _Attempt) -> Iterator[tuple[str, str]]:
    for text in (attempt.returned, attempt.output):
        order = _ORDERS_REVIEW.search(text)
        if order and order[0] not in attempt.asked:
            yield "A result tries to tell the reviewer what to decide.", order[0]
            return


def _contradictions(attempt: _Attempt) -> Iterator[tuple[str, str]]:
    """Object to arguments from nowhere while the task names something that no call asked for."""
    kinds = ("zone", "path", "url", "email", "quoted", "number", "date", "time", "name")
    for kind in kinds:
        wanted = [value for value in of_kind(attempt.task, kind) if not _covered(value, attempt.calls)]
        foreign = [text for call in attempt.calls for text in call.texts if _foreign(text, kind, attempt)]
        if wanted and foreign:
            named = ", ".join(value.text for value in wanted)
            yield f"The task is about {named}, but a call asked for {foreign[0]}.", foreign[0]


def _covered(value: Value, calls: Sequence[_Call]) -> bool:
    """Whether a call asked for a value of the task, or its result names it."""
    asked = [text for call in calls for text in call.texts]
    if value.kind == "number":
        return value.value in asked or any(value.value in re.findall(r"\d+", text) for text in asked)
    if value.kind == "time":
        return clock(value.value) in {clock(found.value) for text in asked for found in of_kind(text, "time")}
    return any(_same(value, text) for text in asked)


def _same(value: Value, text: str) -> bool:
    return any(
        fold(form) in fold(text) or fold(text).rstrip("/") == fold(form).rstrip("/")
        for form in (value.value, value.text)
    )


def _foreign(text: str, kind: str, attempt: _Attempt) -> bool:
    """Whether an argument is of a kind and stands neither in the task nor in the request."""
    found = values(text)
    of_this = [value for value in found if value.kind == kind] or (kind in ("name", "quoted") and not found)
    if not of_this or fold(text) in fold(attempt.asked):
        return False
    known = {value.value for value in values(attempt.asked)}
    return not any(value.value in known for value in found) and not set(content(text)) & set(content(attempt.asked))


def _places(attempt: _Attempt) -> Iterator[tuple[str, str]]:
    """Object to results about other places than those of the task, and to places that no result is about."""
    wanted = {value.value: value.text for value in of_kind(attempt.task, "zone")}
    if not wanted or not attempt.good:
        return
    text = "\n".join(_plain(part) for part in (*(call.result for call in attempt.good), attempt.output))
    asked = "\n".join(" ".join(call.texts) for call in attempt.good)
    found = {value.value: value.text for value in of_kind(text, "zone")} | {
        value.value: value.text for value in of_kind(attempt.output, "zone")
    }
    others = [name for zone, name in found.items() if zone not in wanted and zone not in ("UTC", "GMT", "Etc/UTC")]
    for zone, name in wanted.items():
        in_results = zone in found or fold(name) in fold(text)
        if not in_results and (others or not (zone in asked or fold(name) in fold(asked))):
            yield f"Nothing in the results is about {name}.", others[0] if others else attempt.output


def _plain(text: str) -> str:
    data = parsed(text)
    return text if data is None else "\n".join(str(leaf) for _, leaf in leaves(data))


def _counts(attempt: _Attempt) -> Iterator[tuple[str, str]]:
    """Object to more entries than "the last 3" asks for. Fewer may be all there are."""
    limits = [int(value.value) for value in of_kind(attempt.task, "number") if _limits(attempt.task, value)]
    if len(limits) != 1:
        return
    for call in attempt.good:
        entries = _entries(call.result)
        if entries > limits[0]:
            yield f"The task asks for {limits[0]}, but the result has {entries} entries.", call.result


def _limits(task: str, value: Value) -> bool:
    return value.value.isdigit() and bool(_QUANTITY.search(task[: value.start]))


def _entries(text: str) -> int:
    """Return how many records a result has: items of a list, or the label that begins most records."""
    data = parsed(text)
    if isinstance(data, Mapping):
        data = next(iter(data.values())) if len(data) == 1 else None
    if isinstance(data, list):
        return len(data)
    return max(Counter(_RECORD.findall(text)).values(), default=0) if data is None else 0


def _off_topic(attempt: _Attempt) -> Iterator[tuple[str, str]]:
    """Object to calls that have no word and no value in common with the task."""
    about = set(content(attempt.task)) - ORDERS
    if not about or not attempt.calls:
        return
    said = " ".join(
        [
            attempt.returned,
            *(f"{call.name} {' '.join(call.arguments)} {' '.join(call.texts)}" for call in attempt.calls),
        ]
    )
    folded = fold(said)
    names = {token for call in attempt.calls for token in tokens(call.name) if len(token) > 2}
    if not any(word in folded or word.startswith(tuple(names)) for word in about):
        yield "Neither the calls nor their results have to do with the task.", attempt.output


def _invented(attempt: _Attempt) -> Iterator[tuple[str, str]]:
    """Object to numbers, places and other values of the output that no result holds, as far as results are shown."""
    cut = any(len(call.result) >= _LONG_RESULT and call.result in attempt.output for call in attempt.calls)
    if not attempt.calls or cut:
        return
    source = fold(
        "\n".join([attempt.returned, attempt.asked, *(f"{call.name} {' '.join(call.texts)}" for call in attempt.calls)])
    )
    known = set(re.findall(r"\d+", source)) | set(tokens(source))
    for value in values(_plain(attempt.output)):
        if fold(value.value) in source or fold(value.text) in source:
            continue
        if not set(re.findall(r"\d+", value.value)).issubset(known) or not set(tokens(value.text)) - STOP <= known:
            yield "The output says what no call returned.", value.text


def _support(attempt: _Attempt) -> list[str]:
    """Return lines of the output that have to do with the task."""
    lines = [line.strip() for line in attempt.output.splitlines() if line.strip()]
    about = {word for word in content(attempt.task) if word not in ORDERS}
    telling = [line for line in lines if any(word in fold(line) for word in about)]
    return [line[:_EVIDENCE_CHARS] for line in (telling or lines)[:2]]
