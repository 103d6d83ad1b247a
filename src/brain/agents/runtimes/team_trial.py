"""Trials of teams: a team does the input of a case inside the task that tries it, and changes nothing by it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from brain.agents.runtimes.team_star import StarExecution, TeamStars, answer_text, star_report, why_failed
from brain.agents.turn.agent_runtime import TaskExecution
from brain.durability.journal import Journal
from brain.registry.cards import AgentCard
from brain.run.context import RunContext
from brain.state import TaskOutcome, initial_state
from starling.core.clock import Clock
from starling.core.json import digest
from starling.core.task_paths import trial_path
from starling.core.teams.proofs import TrialCall, TrialRecord, TrialVerdict
from starling.core.teams.spec import Example
from starling.core.tools import Trial, TrialResult


@dataclass(frozen=True, slots=True)
class TeamTrial:
    """Has teams do the inputs of cases, with their fixtures in place of calls that may change something."""

    stars: StarExecution
    clock: Clock

    async def run(self, execution: TaskExecution, card: AgentCard, case: Example, name: str) -> TrialRecord:
        """Return what the team of `card` does with a case, or what an earlier process recorded of that.

        `name`, `case1`, is unique in the task, and the same when the task is resumed. The star has what is left of the
        task's budget. Raises SuspendedError while a member waits for an answer, or while this process drains, and
        JournalDivergedError where another team or case was tried under this name.
        """
        path, tried = trial_path(execution.path, name), _digest(card, case)
        journal, place = execution.context.journal, f"{path}.star"
        recorded = journal.find(place, "result", request_hash=tried)
        if recorded is None:
            begun = self._begun(journal, place, tried)
            record = await self._tried(execution.context, card, case, path, begun)
            recorded = record.model_dump(mode="json")
            journal.record(place, "result", recorded, request_hash=tried)
        return TrialRecord.model_validate(recorded)

    async def _tried(
        self, outer: RunContext, card: AgentCard, case: Example, path: str, begun: datetime
    ) -> TrialRecord:
        teams = TeamStars(self.stars, self.clock)
        fixtures = tuple(TrialResult(given.tool, given.arguments, given.result) for given in case.fixtures)
        context = replace(teams.context(outer, card, path), trial=Trial(fixtures))
        report = star_report(await teams.run(card, context, initial_state(case.input)))
        seconds = max(0.0, (self.clock.now() - begun).total_seconds())
        return _record(path, report, context.budget.meter.tokens.total, round(seconds, 3))

    def _begun(self, journal: Journal, place: str, tried: str) -> datetime:
        """Return when the trial began, in whichever process."""
        if (recorded := journal.find(place, "context", request_hash=tried)) is not None:
            return datetime.fromisoformat(recorded["begun"])
        begun = self.clock.now()
        journal.record(place, "context", {"begun": begun.isoformat()}, request_hash=tried)
        return begun


def _digest(card: AgentCard, case: Example) -> str:
    return digest([card.star.hash if card.star else card.name, case.model_dump(mode="json")])


def _record(path: str, report: Mapping[str, Any], tokens: int, seconds: float) -> TrialRecord:
    outcomes: list[TaskOutcome] = report["outcomes"]
    kept = [record["name"] for outcome in outcomes for record in outcome.get("artifacts", ())]
    return TrialRecord(
        path=path,
        reply="" if report["failed"] else answer_text(report),
        failure=why_failed(report) if report["failed"] else "",
        calls=tuple(TrialCall(**call) for outcome in outcomes for call in outcome.get("calls", ())),
        verdicts=tuple(
            TrialVerdict(member=outcome["agent"], status=outcome["status"], reason=outcome["reason"])
            for outcome in outcomes
        ),
        artifacts=tuple(dict.fromkeys(kept)),
        tokens=tokens,
        seconds=seconds,
    )
