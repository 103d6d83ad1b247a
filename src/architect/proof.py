"""Proofs: a team is tried on its cases, and what it did is judged by their criteria."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from architect.cases import with_cases
from architect.checks.few_cases import FEWEST
from architect.judgement import judged
from starling.core.events.build_events import MetCriterion, Proof
from starling.core.teams.building import BuildCase, BuildRun
from starling.core.teams.proofs import CaseReport, ProofReport, ProofState, TrialRecord, share_met
from starling.core.teams.spec import Criterion, Example, TeamSpec
from starling.core.teams.stars import StarSpec

_REPLY_CHARS: Final = 12_000
_REASON_CHARS: Final = 2_000


async def prove(
    team: TeamSpec, star: StarSpec, extra: Sequence[BuildCase], run: BuildRun, threshold: float
) -> ProofReport:
    """Try a team on its examples and on the caller's cases, one after another, and return what that shows.

    `star` is the team's; `threshold` the share of criteria that has to be met, from 0 to 1. Each case is made durable,
    with its event, before the next one begins: a build that is resumed goes on after it. Raises what `run` raises.
    """
    whole = with_cases(team, extra)
    criteria = {one.id: one for one in whole.criteria}
    cases = [await _case(f"case{n}", one, criteria, star, run) for n, one in enumerate(whole.examples, start=1)]
    score, tools, origin = share_met(cases), run.tools(), run.origin
    return ProofReport(
        state=_state(cases, score, threshold),
        score=score,
        threshold=threshold,
        cases=tuple(cases),
        spec_hash=team.hash,
        tools={tool: tools[tool].hash if tool in tools else "" for tool in star.tools},
        run_id=origin.run_id,
        trace_id=origin.trace_id,
    )


async def _case(
    step: str, example: Example, criteria: Mapping[str, Criterion], star: StarSpec, run: BuildRun
) -> CaseReport:
    """Return what a trial of one case came to, or what an earlier process recorded of it."""
    recorded = run.recorded(step)
    if recorded is not None:
        return CaseReport.model_validate(recorded)
    trial = await run.try_case(star, example)
    found = await judged(example, criteria, trial, run, f"{step}.judge")
    trial = _shortened(trial)
    report = CaseReport(
        id=example.id,
        passed=all(one.met for one in found),
        simulation_only=_is_simulation(trial),
        criteria=tuple(found),
        trial=trial,
    )
    if not report.passed:
        run.check_budget()  # a run that is at its end says nothing about the team
    run.record(step, report.model_dump(mode="json"), _event(report, star.name, run.origin.path))
    await run.flush()
    return report


def _shortened(trial: TrialRecord) -> TrialRecord:
    """Return what is kept of a trial: long texts are cut, and say so."""
    verdicts = tuple(one.model_copy(update={"reason": _cut(one.reason, _REASON_CHARS)}) for one in trial.verdicts)
    texts = {"reply": _cut(trial.reply, _REPLY_CHARS), "failure": _cut(trial.failure, _REASON_CHARS)}
    return trial.model_copy(update={**texts, "verdicts": verdicts})


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}\n[cut: the beginning of {len(text):,} characters]"


def _is_simulation(trial: TrialRecord) -> bool:
    """Whether tools were called, and no server gave a result."""
    live = any(call.source == "live" and call.status == "succeeded" for call in trial.calls)
    return bool(trial.calls) and not live


def _event(report: CaseReport, team: str, path: str) -> Proof:
    sources = Counter(call.source for call in report.trial.calls)
    return Proof(
        path=path,
        team=team,
        case=report.id,
        passed=report.passed,
        criteria=[MetCriterion(id=one.id, met=one.met, reason=one.reason) for one in report.criteria],
        live=sources["live"],
        fixture=sources["fixture"],
        simulated=sources["simulated"],
        trial_path=report.trial.path,
    )


def _state(cases: Sequence[CaseReport], score: float, threshold: float) -> ProofState:
    if score < threshold:
        return "failed"
    if len(cases) < FEWEST or any(case.simulation_only for case in cases):
        return "unproven"
    return "proven"
