"""Review of an attempt: checks the output against the task and the results of the tool calls."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starling.infra.llm.offline.error_detection import error_line, is_empty
from starling.infra.llm.offline.prompt_parsing import Element, PromptSections, elements, leaves, parse_json, values_text
from starling.infra.llm.offline.tokenization import READING_VERBS, STOP_WORDS, content_words, normalize, tokens
from starling.infra.llm.offline.value_extraction import (
    Kind,
    Value,
    extract_values,
    mask_values,
    to_24_hour_time,
    values_of_kind,
)
from starling.infra.llm.offline.write_intent import is_write_tool, requested_changes

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
_RANKED = re.compile(r"\b(?:last|first|top|latest|newest|oldest|recent|biggest|busiest)\s+$", re.IGNORECASE)
_THE_LAST = re.compile(r"\b(?:the|its|their|my|our|your) (?:last|latest|newest) ([^\W\d_]+\b)(?<!s)", re.IGNORECASE)
_NAMED: tuple[Kind, ...] = ("zone", "path", "url", "email", "quoted", "number", "date", "time", "name")
_RECORD = re.compile(r"^([A-Z][\w ]{1,30}):(?= )", re.MULTILINE)
_SPECIALIST = "mcp_agent_"
_EVIDENCE_CHARS = 200
_LONG_RESULT = 2_000  # longer results may be shortened in the prompt


@dataclass(frozen=True, slots=True)
class _Call:
    name: str
    status: str
    arguments: Mapping[str, object]
    result: str

    @property
    def failed(self) -> bool:
        return self.status.casefold() not in _SUCCEEDED or bool(error_line(self.result))

    @property
    def texts(self) -> list[str]:
        """The scalars in the arguments, as strings."""
        return [str(leaf) for _, leaf in leaves(dict(self.arguments)) if not isinstance(leaf, bool | None)]


@dataclass(frozen=True, slots=True)
class _Attempt:
    task: str
    request: str
    agent: str
    calls: Sequence[_Call]
    output: str

    @property
    def successful_calls(self) -> list[_Call]:
        return [call for call in self.calls if not call.failed]

    @property
    def allowed_sources(self) -> str:
        """The texts from which arguments may be taken."""
        return f"{self.task}\n{self.request}"

    @property
    def subject(self) -> frozenset[str]:
        """The content words of the task without verbs."""
        return frozenset(content_words(self.task)) - READING_VERBS - requested_changes(self.task)

    @property
    def evidence_text(self) -> str:
        """Names, arguments and results of all calls."""
        return "\n".join(" ".join([call.name, *call.arguments, *call.texts, call.result]) for call in self.calls)


def review(sections: PromptSections) -> dict[str, Any]:
    """Return the verdict on an attempt, in the form of its response schema."""
    attempt = _Attempt(
        sections.text("task"),
        sections.text("user_request"),
        sections.element("task").get("agent"),
        [_call(item) for item in sections.children("tool_calls", "call")],
        sections.text("output"),
    )
    for check in _CHECKS:
        objections = list(check(attempt))
        if objections:
            return _verdict("REJECTED", [reason for reason, _ in objections], [passage for _, passage in objections])
    fenced = _FENCE.fullmatch(attempt.output)
    if fenced and parse_json(fenced[1]) is not None:
        fixed = {"refined_output": fenced[1].strip(), "changed": ["removed the code fence"]}
        return _verdict("FIXED", ["The output answers the task inside a code fence."], []) | fixed
    return _verdict("APPROVED", ["The output comes from the calls and fits the task."], _supporting_lines(attempt))


def _verdict(status: str, reasons: list[str], evidence: list[str]) -> dict[str, Any]:
    passages = [passage[:_EVIDENCE_CHARS] for passage in evidence if passage]
    return {"status": status, "refined_output": "", "reasons": reasons, "evidence": passages, "changed": []}


def _call(item: Element) -> _Call:
    arguments = parse_json(next((inner.text for inner in elements(item.raw, "arguments")), ""))
    result = next((inner.text for inner in elements(item.raw, "result")), "")
    return _Call(item.get("name"), item.get("status"), arguments if isinstance(arguments, Mapping) else {}, result)


def _check_errors(attempt: _Attempt) -> Iterator[tuple[str, str]]:
    """Report failed calls without a later success, and error messages given as the output."""
    error = error_line(attempt.output)
    if is_empty(attempt.output):
        yield "The output is empty.", ""
    if error:
        yield "The output is an error message, not a result.", error
    good = {call.name for call in attempt.successful_calls}
    for call in attempt.calls:
        if (
            call.failed
            and (call.name not in good or normalize(call.result.strip()) in normalize(attempt.output))
            and not error
        ):
            yield f"The call of {call.name} failed.", error_line(call.result) or call.result


def _check_unsupported_output(attempt: _Attempt) -> Iterator[tuple[str, str]]:
    """Report output without tool calls, if the agent is a specialist or did not do the task."""
    if attempt.calls:
        return
    unable = _UNABLE.match(attempt.output)
    if unable:
        yield f"The task was not done: {attempt.output[:_EVIDENCE_CHARS]}", unable[0]
    elif attempt.agent.startswith(_SPECIALIST):
        yield "No tool was called, so nothing supports the output.", attempt.output


def _check_prompt_injection(attempt: _Attempt) -> Iterator[tuple[str, str]]:
    for text in (*(call.result for call in attempt.calls), attempt.output):
        order = _ORDERS_REVIEW.search(text)
        if order and order[0] not in attempt.allowed_sources:
            yield "A result contains instructions to the reviewer.", order[0]
            return


def _check_unrequested_changes(attempt: _Attempt) -> Iterator[tuple[str, str]]:
    """Report calls of write tools for a task that requests no change."""
    for call in attempt.calls:
        if is_write_tool(call.name) and not requested_changes(attempt.task):
            yield f"{call.name} changes something, which the task does not request.", call.result


def _check_arguments(attempt: _Attempt) -> Iterator[tuple[str, str]]:
    """Report arguments that are not in the task, if a value of the task was used in no call."""
    texts = [text for call in attempt.calls for text in call.texts]
    for kind in _NAMED:
        wanted = [value.text for value in values_of_kind(attempt.task, kind) if not _is_covered(value, texts)]
        foreign = [text for text in texts if _is_foreign(text, kind, attempt.allowed_sources)]
        if wanted and foreign:
            yield f"The task is about {', '.join(wanted)}, but a call asked for {foreign[0]}.", foreign[0]


def _is_covered(value: Value, texts: Sequence[str]) -> bool:
    """Return whether an argument contains a value of the task."""
    if value.kind == "number":
        return any(value.value in (text, *re.findall(r"\d+", text)) for text in texts)
    if value.kind == "time":
        return to_24_hour_time(value.value) in {
            to_24_hour_time(found.value) for text in texts for found in values_of_kind(text, "time")
        }
    forms = {normalize(value.value).rstrip("/"), normalize(value.text).rstrip("/")}
    return any(form in normalize(text) for form in forms for text in texts)


def _is_foreign(text: str, kind: Kind, asked: str) -> bool:
    """Return whether an argument is of a kind and does not occur in the task or request."""
    found = extract_values(text)
    of_this = any(value.kind == kind for value in found) or (kind in ("name", "quoted") and not found)
    known = {value.value for value in extract_values(asked)}.union(content_words(asked))
    return (
        of_this
        and normalize(text) not in normalize(asked)
        and known.isdisjoint([*content_words(text), *(v.value for v in found)])
    )


def _check_places(attempt: _Attempt) -> Iterator[tuple[str, str]]:
    """Report results about places other than those of the task, and places without a result."""
    wanted = {value.value: value.text for value in values_of_kind(attempt.task, "zone")}
    if not wanted or not attempt.successful_calls:
        return
    text = "\n".join(
        values_text(part) for part in (*(call.result for call in attempt.successful_calls), attempt.output)
    )
    asked = normalize("\n".join(text for call in attempt.successful_calls for text in call.texts))
    found = {
        value.value: value.text for value in (*values_of_kind(text, "zone"), *values_of_kind(attempt.output, "zone"))
    }
    others = [name for zone, name in found.items() if zone not in wanted and zone not in ("UTC", "GMT", "Etc/UTC")]
    for zone, name in wanted.items():
        in_results = zone in found or normalize(name) in normalize(text)
        if not in_results and (others or not (normalize(zone) in asked or normalize(name) in asked)):
            yield f"Nothing in the results is about {name}.", others[0] if others else attempt.output


def _check_counts(attempt: _Attempt) -> Iterator[tuple[str, str]]:
    """Report more entries than requested, as by "the last 3". Fewer entries may be all that exist."""
    numbers = [value for value in values_of_kind(attempt.task, "number") if _RANKED.search(attempt.task[: value.start])]
    limits = [int(value.value) for value in numbers if value.value.isdigit()]
    for call in attempt.successful_calls if len(limits) == 1 else []:
        entries = _count_entries(call.result)
        if entries > limits[0]:
            yield f"The task asks for {limits[0]}, but the result has {entries} entries.", call.result


def _count_entries(text: str) -> int:
    """Return the number of records in a result: list items, or occurrences of the most frequent line label."""
    data = parse_json(text)
    if isinstance(data, Mapping):
        data = next(iter(data.values())) if len(data) == 1 else None
    if isinstance(data, list):
        return len(data)
    return max(Counter(_RECORD.findall(text)).values(), default=0) if data is None else 0


def _check_topic(attempt: _Attempt) -> Iterator[tuple[str, str]]:
    """Report prose without any word of the task, and results without the noun of phrases like "the last commit".

    Numbers and data need not repeat words of the task; these were matched when the tool was selected.
    """
    folded = normalize(attempt.evidence_text)
    names = tuple(token for call in attempt.calls for token in tokens(call.name) if len(token) > 2)
    prose = parse_json(attempt.output) is None and not re.search(r"\d", attempt.output)
    if not attempt.calls or not attempt.subject:
        return
    if prose and not any(word in folded or word.startswith(names) for word in attempt.subject):
        yield "Neither the calls nor their results have to do with the task.", attempt.output
    for noun in _THE_LAST.findall(mask_values(attempt.task)):
        if not any(word in folded for word in tokens(noun)):
            yield f"Nothing in the calls or their results is about a {noun}.", attempt.output


def _check_invented_values(attempt: _Attempt) -> Iterator[tuple[str, str]]:
    """Report values in the output that occur in no result, if the results are complete in the prompt."""
    cut = any(len(call.result) >= _LONG_RESULT and call.result in attempt.output for call in attempt.calls)
    if not attempt.calls or cut:
        return
    source = normalize(f"{attempt.evidence_text}\n{attempt.allowed_sources}")
    known = {*re.findall(r"\d+", source), *tokens(source), *STOP_WORDS}
    for value in extract_values(values_text(attempt.output)):
        parts = {*re.findall(r"\d+", value.value), *tokens(value.text)}
        if normalize(value.value) not in source and normalize(value.text) not in source and not parts <= known:
            yield "The output contains a value that no call returned.", value.text


def _supporting_lines(attempt: _Attempt) -> list[str]:
    """Return lines of the output that share words with the task."""
    lines = [line.strip() for line in attempt.output.splitlines() if line.strip()]
    return ([line for line in lines if any(word in normalize(line) for word in attempt.subject)] or lines)[:2]


# In order of severity; each check yields `(reason, passage)`.
_CHECKS = (
    _check_errors,
    _check_unsupported_output,
    _check_prompt_injection,
    _check_unrequested_changes,
    _check_arguments,
    _check_places,
    _check_counts,
    _check_topic,
    _check_invented_values,
)
