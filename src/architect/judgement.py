"""Which criteria of a case a trial met: by rules where they decide, else by a model's answer."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, ClassVar, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict

from architect.plain_text import folded
from starling.core.errors import LLMInvalidResponse
from starling.core.model_output.names import aliases, resolve
from starling.core.teams.building import BuildRun, Section
from starling.core.teams.proofs import CriterionReport, TrialRecord
from starling.core.teams.spec import Criterion, Example

_ANSWER_CHARS: Final = 12_000
_FIXTURE_CHARS: Final = 2_000
_FIXTURES: Final = 8
_CALLS: Final = 50
_VALUE_CHARS: Final = 80  # of a criterion's value in a reason
_REASON_CHARS: Final = 300
_NO_REASON: Final = "The judge did not find it met."


def _listed(value: object) -> object:
    return [] if value is None else value


class Judgement(BaseModel):
    """A judge's answer: ids of the criteria that are met and of those that are not, and why not."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    EXPECTED: ClassVar[str] = 'one JSON object with "met", "not_met" (lists of ids) and "reason"'
    NEEDED_IF_CUT: ClassVar[tuple[str, ...]] = ("met", "not_met")
    MUST_AGREE: ClassVar[tuple[str, ...]] = ("met",)

    met: Annotated[list[str], BeforeValidator(_listed)]
    not_met: Annotated[list[str], BeforeValidator(_listed)] = []
    reason: str = ""


async def judged(
    example: Example, criteria: Mapping[str, Criterion], trial: TrialRecord, run: BuildRun, step: str
) -> list[CriterionReport]:
    """Return for each demand of an example whether the trial meets it; at least one.

    A model is asked at most once, as this step, about all criteria that only it can judge. Nothing is met where the
    team gave no answer. Raises what `BuildRun.ask` raises, but for an answer that can't be read: then nothing that was
    asked is met.
    """
    failure = trial.failure or ("" if trial.reply.strip() else "The team gave no answer.")
    own = [criteria[name] for name in example.criteria]
    asked = [] if failure else [one for one in own if one.kind == "judged"]
    verdicts: Mapping[str, CriterionReport] = await _verdicts(example, asked, trial, run, step) if asked else {}
    found = [*(verdicts.get(one.id) or _by_rule(one, trial) for one in own), *_calls(example, trial)]
    if not found:
        return [_report("answer", failure[:_REASON_CHARS])]
    return [_report(one.id, failure[:_REASON_CHARS]) for one in found] if failure else found


def _by_rule(criterion: Criterion, trial: TrialRecord) -> CriterionReport:
    return _report(criterion.id, _FAULTS[criterion.kind](criterion.value or "", trial))


def _without_text(value: str, trial: TrialRecord) -> str:
    wanted = folded(value)
    return "" if wanted and wanted in folded(trial.reply) else f"The answer doesn't contain {_shown(value)}."


def _without_call(tool: str, trial: TrialRecord) -> str:
    statuses = [call.status for call in trial.calls if call.tool == tool]
    if "succeeded" in statuses:
        return ""
    return f"No call of {tool!r} succeeded." if statuses else f"{tool!r} was not called."


def _without_artifact(name: str, trial: TrialRecord) -> str:
    return "" if name in trial.artifacts else f"There is no artifact {_shown(name)}."


_FAULTS: Final[Mapping[str, Callable[[str, TrialRecord], str]]] = {
    "text_contains": _without_text,
    "tool_called": _without_call,
    "artifact": _without_artifact,
    "judged": lambda _value, _trial: _NO_REASON,
}


def _calls(example: Example, trial: TrialRecord) -> Iterator[CriterionReport]:
    """Return whether the tools were called that must be, and none that must not be, not even in vain."""
    for tool in dict.fromkeys(example.must_call):
        yield _report(f"must_call {tool}", _without_call(tool, trial))
    called = {call.tool for call in trial.calls}
    for tool in dict.fromkeys(example.must_not_call):
        yield _report(f"must_not_call {tool}", f"{tool!r} was called." if tool in called else "")


def _report(name: str, fault: str) -> CriterionReport:
    return CriterionReport(id=name, met=not fault, reason=fault)


async def _verdicts(
    example: Example, criteria: Sequence[Criterion], trial: TrialRecord, run: BuildRun, step: str
) -> Mapping[str, CriterionReport]:
    """Return what the judge says of each criterion; one that isn't named as met, or is named as both, is not met."""
    try:
        judgement = await run.ask(step, "judge", list(_sections(example, criteria, trial)), Judgement)
    except LLMInvalidResponse as error:
        return {one.id: _report(one.id, f"It could not be judged: {error}") for one in criteria}
    known = aliases({one.id: () for one in criteria})
    met, unmet = ({resolve(name, known) for name in names} for names in (judgement.met, judgement.not_met))
    reason = " ".join(judgement.reason.split())[:_REASON_CHARS] or _NO_REASON
    return {one.id: _report(one.id, "" if one.id in met - unmet else reason) for one in criteria}


def _sections(example: Example, criteria: Sequence[Criterion], trial: TrialRecord) -> Iterator[Section]:
    """Return what the judge is shown, cut to a fixed length."""
    yield Section("request", example.input)
    calls = [
        Section("call", attributes={"tool": call.tool, "status": call.status, "result_from": call.source})
        for call in trial.calls[:_CALLS]
    ]
    results = [
        _cut("result", json.dumps(one.result, ensure_ascii=False), _FIXTURE_CHARS, {"tool": one.tool})
        for one in example.fixtures[:_FIXTURES]
    ]
    if calls:
        yield Section("calls", parts=calls)
    if results:
        yield Section("known_results", parts=results)
    yield _cut("answer", trial.reply, _ANSWER_CHARS, {})
    yield Section("criteria", parts=[Section("criterion", one.text, {"id": one.id}) for one in criteria])


def _cut(name: str, text: str, most: int, attributes: Mapping[str, str]) -> Section:
    note = {} if len(text) <= most else {"shown": f"the beginning of {len(text):,} characters"}
    return Section(name, text[:most], {**attributes, **note})


def _shown(value: str) -> str:
    return repr(value if len(value) <= _VALUE_CHARS else f"{value[: _VALUE_CHARS - 1]}…")
