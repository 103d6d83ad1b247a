"""Proofs: a team is tried on its cases, and each trial is judged by rules where they decide, else by a model."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, count, islice
from typing import Annotated, ClassVar, Final

from pydantic import BeforeValidator, Field

from architect.checks import PROOF_RULES, caller_grant, checked, trivial_criterion, unknown_tool
from architect.checks.examples import case_tools
from architect.checks.few_cases import FEWEST
from architect.team_world import TeamWorld
from architect.wording import contains, folded
from starling.core.closed_document import ClosedDocument
from starling.core.errors import LLMInvalidResponse
from starling.core.events.build_events import CriterionReport, Proof
from starling.core.fit import JUDGE, shown
from starling.core.model_output.names import aliases, resolve
from starling.core.teams.building import BuildCase, BuildRun, Section
from starling.core.teams.proofs import CaseReport, PartReport, ProofReport, TrialRecord
from starling.core.teams.spec import MOST_FINDINGS, Criterion, Example, Finding, TeamMember, TeamSpec
from starling.core.teams.stars import StarSpec
from starling.core.text import one_line

CASES: Final = "cases"
"""What paths of findings in the caller's cases begin with."""

_WRITER: Final = TeamMember(name="writer", role="Writer", goal="Write.")
_PART: Final = re.compile(r"^(criteria|examples)\[(\d+)\]")


def with_cases(team: TeamSpec, extra: Sequence[BuildCase]) -> TeamSpec:
    """Return a spec that has the caller's cases as further examples, to be checked and proved as one.

    They are named `case_1`, `case_2` and so on, as in a build; names of examples are left out. Their criteria are added
    too, under another id where theirs is taken.
    """
    criteria, examples = {one.id: one for one in team.criteria}, list(team.examples)
    taken = {example.id for example in examples}
    names = (name for name in map("case_{}".format, count(1)) if name not in taken)
    for case, name in zip(extra, names, strict=False):
        ids = [_added(criteria, one, name) for one in case.criteria]
        examples.append(Example.model_validate({**dict(case), "id": name, "criteria": tuple(dict.fromkeys(ids))}))
    if len(examples) == len(team.examples):
        return team
    return team.model_copy(update={"criteria": tuple(criteria.values()), "examples": tuple(examples)})


def case_findings(team: TeamSpec, extra: Sequence[BuildCase], world: TeamWorld) -> list[Finding]:
    """Return why a team's examples and the caller's cases can't prove it; empty if they can.

    Paths of the caller's cases begin with `cases`.
    """
    found = checked(with_cases(team, extra), world, PROOF_RULES)
    return [of_cases(finding, len(team.examples), len(team.criteria)) for finding in found]


def case_faults(cases: Sequence[BuildCase], world: TeamWorld) -> list[Finding]:
    """Return what is wrong with the caller's cases, whatever team is tried on them; empty if nothing is."""
    spec = with_cases(TeamSpec(name="team", purpose="Any.", members=(_WRITER,)), cases)
    unknown = (finding for place in case_tools(spec) for finding in unknown_tool.unknown(*place, world))
    found = chain(caller_grant.check(spec, world), unknown, trivial_criterion.check(spec, world))
    return [of_cases(finding, 0, 0) for finding in islice(found, MOST_FINDINGS)]


def of_cases(finding: Finding, examples: int, criteria: int) -> Finding:
    """Return a finding whose path begins with `cases` where it is in an example or a criterion after so many."""
    own = {"examples": examples, "criteria": criteria}

    def place(part: re.Match[str]) -> str:
        name, number = part[1], int(part[2])
        if number < own[name]:
            return part[0]
        return f"{CASES}{'.criteria' if name == 'criteria' else ''}[{number - own[name]}]"

    return replace(finding, path=_PART.sub(place, finding.path, count=1))


def _added(criteria: dict[str, Criterion], criterion: Criterion, case: str) -> str:
    """Add a criterion of a case to those of the team, and return the id that it has there."""
    if criteria.setdefault(criterion.id, criterion) == criterion:
        return criterion.id
    stem = f"{case}-{criterion.id}"[:40]
    free = (stem, *(f"{stem}-{number}" for number in range(2, len(criteria) + 3)))
    name = next(one for one in free if one not in criteria)
    criteria[name] = criterion.model_copy(update={"id": name})
    return name


_ABOUT_ANSWER: Final = frozenset({"text_contains", "judged"})  # kinds of criteria
_CALLS: Final = 50
_VALUE_CHARS: Final = 80  # of a criterion's value in a reason
_FAULT_CHARS: Final = 300
_NO_REASON: Final = "The judge did not find it met."


def _listed(value: object) -> object:
    return [] if value is None else value


class Judgement(ClosedDocument):
    """A judge's answer: ids of the criteria that are met and of those that are not, and why not.

    What is in neither of the lists, or in both, is not decided.
    """

    EXPECTED: ClassVar[str] = 'one JSON object with "met", "not_met" (lists of ids) and "reason"'
    NEEDED_IF_CUT: ClassVar[tuple[str, ...]] = ("met", "not_met")
    MUST_AGREE: ClassVar[tuple[str, ...]] = ("met",)

    met: Annotated[list[str], BeforeValidator(_listed)]
    not_met: Annotated[list[str], BeforeValidator(_listed)] = Field(default=[])
    reason: str = ""


async def judged(
    example: Example, criteria: Mapping[str, Criterion], trial: TrialRecord, run: BuildRun, step: str
) -> list[CriterionReport]:
    """Return for each demand of an example whether the trial meets it; at least one.

    A model is asked at most once, as this step, about all criteria that only it can judge. Nothing is met where the
    team gave no answer. Raises what `BuildRun.ask` raises, but for an answer that can't be read: then nothing that was
    asked is decided.
    """
    failure = trial.failure or ("" if trial.reply.strip() else "The team gave no answer.")
    own = [criteria[name] for name in example.criteria]
    asked = [] if failure else [one for one in own if one.kind == "judged"]
    verdicts: Mapping[str, CriterionReport] = await _verdicts(example, asked, trial, run, step) if asked else {}
    found = [
        *(verdicts.get(one.id) or _report(one.id, _FAULTS[one.kind](one.value or "", trial)) for one in own),
        *_calls(example, trial),
    ]
    if not found:
        return [_report("answer", failure[:_FAULT_CHARS])]
    return [_report(one.id, failure[:_FAULT_CHARS]) for one in found] if failure else found


def _without_text(value: str, trial: TrialRecord) -> str:
    return "" if contains(trial.reply, value) else f"The answer doesn't contain {one_line(value, _VALUE_CHARS)!r}."


def _without_call(tool: str, trial: TrialRecord) -> str:
    statuses = [call.status for call in trial.calls if call.tool == tool]
    if "succeeded" in statuses:
        return ""
    return f"No call of {tool!r} succeeded." if statuses else f"{tool!r} was not called."


_FAULTS: Final[Mapping[str, Callable[[str, TrialRecord], str]]] = {
    "text_contains": _without_text,
    "tool_called": _without_call,
    "artifact": lambda name, trial: (
        "" if name in trial.artifacts else f"There is no artifact {one_line(name, _VALUE_CHARS)!r}."
    ),
    "judged": lambda _value, _trial: _NO_REASON,
}


def _calls(example: Example, trial: TrialRecord) -> Iterator[CriterionReport]:
    """Return whether the tools were called that must be, and none that must not be, failed calls included."""
    for tool in dict.fromkeys(example.must_call):
        yield _report(f"must_call {tool}", _without_call(tool, trial))
    called = {call.tool for call in trial.calls}
    for tool in dict.fromkeys(example.must_not_call):
        yield _report(f"must_not_call {tool}", f"{tool!r} was called." if tool in called else "")


def _report(name: str, fault: str, *, decided: bool = True) -> CriterionReport:
    return CriterionReport(id=name, met=not fault, reason=fault, decided=decided)


async def _verdicts(
    example: Example, criteria: Sequence[Criterion], trial: TrialRecord, run: BuildRun, step: str
) -> Mapping[str, CriterionReport]:
    """Return what the judge says of each criterion."""
    try:
        sections = await _sections(example, criteria, trial)
        judgement = await run.ask(step, "judge", sections, Judgement)
    except LLMInvalidResponse as error:
        return {one.id: _report(one.id, f"It could not be judged: {error}", decided=False) for one in criteria}
    known = aliases({one.id: () for one in criteria})
    met, unmet = ({resolve(name, known) for name in names} for names in (judgement.met, judgement.not_met))
    reason = " ".join(judgement.reason.split())[:_FAULT_CHARS] or _NO_REASON
    return {
        one.id: _report(one.id, "" if one.id in met - unmet else reason, decided=one.id in met ^ unmet)
        for one in criteria
    }


async def _sections(example: Example, criteria: Sequence[Criterion], trial: TrialRecord) -> list[Section]:
    """Return what the judge is shown, within a fixed length."""
    made = [one for one in trial.calls[:_CALLS] if one.result]
    whole = [trial.reply, *(one.result for one in made)]
    wanted = "\n".join([example.input, *(one.text for one in criteria)])
    texts = await shown(whole, JUDGE, wanted)
    cut = [
        (text, {} if text == full else {"shown": f"parts of {len(full):,} characters"})
        for text, full in zip(texts, whole, strict=True)
    ]
    results = [
        Section("result", text, {"tool": one.tool, **note}) for one, (text, note) in zip(made, cut[1:], strict=True)
    ]
    calls = [
        Section("call", attributes={"tool": call.tool, "status": call.status, "result_from": call.source})
        for call in trial.calls[:_CALLS]
    ]
    return [
        Section("request", example.input),
        *([Section("calls", parts=calls)] if calls else []),
        *([Section("known_results", parts=results)] if results else []),
        Section("answer", *cut[0]),
        Section("criteria", parts=[Section("criterion", one.text, {"id": one.id}) for one in criteria]),
    ]


_REPLY_CHARS: Final = 12_000
_REASON_CHARS: Final = 2_000


async def prove(
    team: TeamSpec, star: StarSpec, parts: Sequence[PartReport], extra: Sequence[BuildCase], run: BuildRun
) -> ProofReport:
    """Try a team on its examples and on the caller's cases, one after another, and return what that shows.

    `star` is the team's; `parts` are those of its goal, with the members that do them. The goal of each other member
    that works with tools is a part too. Each case is made durable, with its event, before the next one begins: a build
    that is resumed goes on after it. Raises what `run` raises.
    """
    whole = with_cases(team, extra)
    criteria = {one.id: one for one in whole.criteria}
    cases = [await _case(f"case{n}", one, criteria, star, run) for n, one in enumerate(whole.examples, start=1)]
    tried = _tried(star, [*parts, *_further_parts(team, star, parts)], cases)
    requests = {folded(one.input) for one, case in zip(whole.examples, cases, strict=True) if case.counts}
    is_shown = len(requests) >= FEWEST and all(one.cases for one in tried)
    is_proven = is_shown and not any(case.simulation_only for case in cases)
    tools, origin = run.tools(), run.origin
    met = [one.met for case in cases for one in case.criteria if one.decided]
    return ProofReport(
        state="failed" if not all(case.passed for case in cases) else "proven" if is_proven else "unproven",
        score=sum(met) / len(met) if met else 0.0,
        threshold=1.0,
        cases=tuple(cases),
        spec_hash=team.hash,
        tools={tool: tools[tool].hash if tool in tools else "" for tool in star.tools},
        run_id=origin.run_id,
        trace_id=origin.trace_id,
        parts=tried,
    )


def _further_parts(team: TeamSpec, star: StarSpec, parts: Sequence[PartReport]) -> Iterator[PartReport]:
    known, tools = {name for part in parts for name in part.members}, _tools_of(star)
    for member in team.members:
        if tools.get(member.name) and member.name not in known:
            yield PartReport(part=member.goal, members=(member.name,))


def _tools_of(star: StarSpec) -> dict[str, frozenset[str]]:
    """Return the tools of each member, with those inside the team that it stands for."""
    return {one.name: frozenset(one.team.tools if one.team else one.tools) for one in star.members}


def _tried(star: StarSpec, parts: Sequence[PartReport], cases: Sequence[CaseReport]) -> tuple[PartReport, ...]:
    """Return the parts with the cases that count and in which all members that do the part have worked.

    A member has worked where a call of a tool of its own succeeded live, a writer where its task was approved: what a
    case demands, and what a member is called, shows nothing. One that does several parts tries none of them with fewer
    calls than parts, those of one tool in one case counted once: nobody knows which of the parts they were about.
    """
    tools = _tools_of(star)
    work = {
        name: {(case.id, what) for case in cases if case.counts and case.passed for what in _work(name, own, case)}
        for name, own in tools.items()
    }
    counts = Counter(name for part in parts for name in part.members)
    found = list[PartReport]()
    for part in parts:
        own = [{case for case, _ in work.get(name, ())} for name in part.members]
        is_tried = all(len(work.get(name, ())) >= counts[name] for name in part.members)
        tried_by = set[str].intersection(*own) if own and is_tried else set[str]()
        found.append(part.model_copy(update={"cases": tuple(case.id for case in cases if case.id in tried_by)}))
    return tuple(found)


def _work(member: str, tools: Collection[str], case: CaseReport) -> set[str]:
    """Return the tools of a member that a call in a case reached live; the name of a writer whose task was approved."""
    if tools:
        own = (call for call in case.trial.calls if call.member in (member, "") and call.tool in tools)
        return {call.tool for call in own if call.status == "succeeded" and call.source == "live"}
    return {one.member for one in case.trial.verdicts if one.member == member and one.status == "approved"}


async def _case(
    step: str, example: Example, criteria: Mapping[str, Criterion], star: StarSpec, run: BuildRun
) -> CaseReport:
    """Return the report of a trial of one case, or what an earlier process recorded of it."""
    recorded = run.recorded(step)
    if recorded is not None:
        return CaseReport.model_validate(recorded)
    trial = await run.try_case(star, example)
    found = await judged(example, criteria, trial, run, f"{step}.judge")
    is_live = any(call.source == "live" and call.status == "succeeded" for call in trial.calls)
    verdicts = tuple(one.model_copy(update={"reason": _cut(one.reason, _REASON_CHARS)}) for one in trial.verdicts)
    texts = {"reply": _cut(trial.reply, _REPLY_CHARS), "failure": _cut(trial.failure, _REASON_CHARS)}
    calls = tuple(one.model_copy(update={"result": ""}) for one in trial.calls)
    about_answer = {name for name in example.criteria if criteria[name].kind in _ABOUT_ANSWER}
    report = CaseReport(
        id=example.id,
        passed=all(one.met for one in found if one.decided),
        simulation_only=bool(trial.calls) and not is_live,
        criteria=tuple(found),
        trial=trial.model_copy(update={**texts, "verdicts": verdicts, "calls": calls}),
        counts=any(one.decided and one.id in about_answer for one in found),
    )
    if not report.passed:
        run.check_budget()  # a run that is at its end says nothing about the team
    run.record(step, report.model_dump(mode="json"), _event(report, star.name, run.origin.path))
    await run.flush()
    return report


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}\n[cut: the beginning of {len(text):,} characters]"


def _event(report: CaseReport, team: str, path: str) -> Proof:
    sources = Counter(call.source for call in report.trial.calls)
    return Proof(
        path=path,
        team=team,
        case=report.id,
        passed=report.passed,
        criteria=[*report.criteria],
        counts=report.counts,
        live=sources["live"],
        fixture=sources["fixture"],
        simulated=sources["simulated"],
        trial_path=report.trial.path,
    )
