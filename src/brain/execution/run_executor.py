"""The execution of claimed runs: to their end, or to the step at which they wait or their worker stops."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from langgraph.errors import GraphDrained

from brain.agents.runtimes.architect import ArchitectRuntime
from brain.agents.runtimes.crew import executor as crew_executor
from brain.agents.runtimes.crew.executor import CrewAIRuntime
from brain.agents.runtimes.direct_call import DirectCallRuntime
from brain.agents.runtimes.native import NativeRuntime, TextRuntime
from brain.agents.runtimes.team import TeamRuntime, TeamTrial
from brain.agents.tools.reading_tools import ArtifactTool
from brain.agents.tools.tool_calling import ToolAccess
from brain.agents.tools.tool_finder import ToolFinder
from brain.agents.turn.pipeline import Pipeline
from brain.agents.turn.reflection import Reviewer
from brain.durability.attempt_outcomes import AttemptOutcomes
from brain.durability.checkpointer import RunCheckpoints
from brain.durability.inheritance import INHERITED
from brain.durability.journal import Journal
from brain.durability.ledger import Ledger
from brain.execution.forks import ChosenModels, begin_fork, trial_of
from brain.execution.graph import StarRunner
from brain.governance import RequestGovernance, with_usable_agent
from brain.history import history_messages
from brain.interrupts.budget import Meter, RunBudget, tightest_budget
from brain.interrupts.requests import Interrupts
from brain.lifecycle.active_runs import ActiveRun, ActiveRuns
from brain.lifecycle.fallback_answer import state_at_timeout
from brain.lifecycle.finalization import RunFinalizer
from brain.lifecycle.termination import LEFT_OPEN, RunTerminator, count_usage
from brain.nodes.qa import Qa
from brain.nodes.supervisor import SupervisorNode
from brain.planning.shortlist import Shortlister
from brain.registry.availability import Availability
from brain.registry.cards import ARCHITECT, Roster
from brain.registry.service import Registry
from brain.retrieval.agent_finder import AgentFinder
from brain.retrieval.search import AgentSearch
from brain.run.context import RunContext
from brain.run.journaled_model import JournaledModel
from brain.run.recorder import RunRecorder
from brain.run.tracing import TracedGateway, TracedModels
from brain.skills.memory import RunSkills, SkillMemory
from brain.state import GraphState, initial_state
from starling.core.artifacts import ArtifactStore
from starling.core.clock import Clock, Deadline
from starling.core.errors import (
    DatabaseUnavailableError,
    DeadlineExceededError,
    LeaseLostError,
    RunCancelledError,
    StarlingError,
    SuspendedError,
)
from starling.core.events.run_events import Failure, Warn
from starling.core.governance import GovernanceTable
from starling.core.llm import ModelClient, ModelRole
from starling.core.principal import Scope
from starling.core.runs import Run, RunResult
from starling.core.settings.schema import Limits
from starling.core.teams.building import TeamBuilder
from starling.core.teams.stars import MAIN_STAR
from starling.core.tool_calls import Effect
from starling.core.tools import Halts, ToolGateway
from starling.core.tracing import NOOP_TRACER, Span, Tracer, outcome_scores
from starling.infra.postgres.engine import Engine
from starling.infra.postgres.runs.acceptance import Claim, RunKey
from starling.infra.postgres.runs.broadcast import Broadcast
from starling.infra.postgres.runs.conversations import ConversationRepository, RecentTurns
from starling.infra.postgres.runs.interrupts import InterruptRepository
from starling.infra.postgres.runs.ledger import LedgerReader
from starling.infra.postgres.runs.reader import RunReader
from starling.infra.postgres.runs.writer import RunWriter


@dataclass(frozen=True, slots=True)
class Collaborators:
    """What every run is executed with; the same for all runs of a process."""

    engine: Engine
    broadcast: Broadcast
    finalizer: RunFinalizer
    reader: RunReader
    conversations: ConversationRepository
    interrupts: InterruptRepository
    registry: Registry
    governance: RequestGovernance
    models: ModelClient
    gateway: ToolGateway
    agent_ranker: AgentFinder
    clock: Clock
    limits: Limits
    halts: Halts
    artifacts: ArtifactStore
    tracer: Tracer = NOOP_TRACER
    active_runs: ActiveRuns = field(default_factory=ActiveRuns)
    memory: SkillMemory | None = None  # None where skills are switched off
    builder: TeamBuilder | None = None  # None where no teams can be built


_ANSWER_SHARE, _ANSWER_SECONDS = 0.1, 5.0  # of a run's time, kept for its answer
_log = logging.getLogger(__name__)


class Brain:
    """Executes claimed runs on the main star."""

    def __init__(self, parts: Collaborators) -> None:
        models, gateway = TracedModels(parts.models, parts.tracer), TracedGateway(parts.gateway, parts.tracer)
        traced = replace(parts, models=models, gateway=gateway)
        self._parts = parts if parts.tracer is NOOP_TRACER else traced
        shortlister = Shortlister(parts.agent_ranker, parts.limits.shortlist, parts.tracer)
        supervisor = SupervisorNode(parts.limits, shortlister, self._parts.gateway, parts.tracer)
        qa = Qa(parts.artifacts, parts.limits.max_clarifications, parts.limits.input_chars)
        self._stars = StarRunner(supervisor, qa, partial(_pipeline, self._parts))
        self._terminator = RunTerminator(parts.engine, parts.broadcast, parts.reader, parts.finalizer)

    def drain(self) -> None:
        """Let every execution end after its current tool calls or its current step, from now on."""
        self._stars.drain()

    async def park(self, claim: Claim) -> RunResult:
        """End a claimed run that crashed its workers too often. Raises what `execute` raises."""
        again = claim.run.crashes > self._parts.limits.crashes_per_run  # parking failed the last time
        with self._parts.tracer.segment(claim.run) as segment:
            result = await self._terminator.park(claim, blind=again)
            self._describe(segment, result)
        return result

    async def execute(self, claim: Claim) -> RunResult | None:
        """Execute a claimed run to its end, or to the end of a step once this process drains.

        Returns its result, or None if it waits for an answer or is continued by another worker. Raises LeaseLostError
        if another worker took the run over, DatabaseUnavailableError if Postgres was away for too long: the run is
        continued by another worker, or later.
        """
        writer = RunWriter(self._parts.engine, claim, self._parts.broadcast, span_id=self._parts.tracer.span_id)
        try:
            with (
                self._parts.tracer.segment(claim.run) as segment,
                self._parts.active_runs.track(claim.run) as active,
            ):
                result = await self._execute(claim.run, writer, active)
                self._describe(segment, result)
        finally:
            await writer.close()
        return result

    async def _execute(self, run: Run, writer: RunWriter, active: ActiveRun) -> RunResult | None:
        meter = Meter()
        state, ledger = initial_state(run.input), None
        failure: Failure | None = None
        try:
            async with active.time_limit(run.remaining_seconds):
                context = await self._context(run, writer, active, meter)
                ledger = context.ledger
                state = await self._run_star(context, writer)
        except (LeaseLostError, DatabaseUnavailableError):
            raise
        except SuspendedError as suspended:
            key, wake = RunKey(run.tenant, run.id), self._parts.interrupts.wake_if_answered
            return await writer.suspend(partial(wake, key=key, interrupts=suspended.interrupts))
        except GraphDrained:
            return await writer.flush()
        except RunCancelledError:
            return await self._terminator.end(writer)
        except TimeoutError:
            failure = Failure(
                code=DeadlineExceededError.code, message="The run's time ran out before the answer was complete."
            )
        except StarlingError as error:
            failure = Failure(code=error.code, message=str(error))
        except Exception:  # noqa: BLE001 - the worker's edge: the caller gets an answer
            _log.exception("run %s failed", run.id)
            writer.drop_unwritable()
            failure = Failure(code="internal", message=f"Something went wrong inside Starling (run {run.id}).")
        if failure:
            state, failure = await self._state_at_failure(writer, failure)
        changes = ledger.changes() if ledger else await self._terminator.changes(writer)
        return await self._parts.finalizer.end(writer, state, meter, failure, changes=changes)

    def _describe(self, segment: Span, result: RunResult | None) -> None:
        """Add the outcome of a claim, and the scores of the run if it has ended: its status, and why it failed."""
        if result is None:
            segment.set(lambda: {"starling.status": "waiting"})
            return
        segment.set(lambda: {"starling.status": result.status, "output": result.reply})
        if result.status != "succeeded":
            segment.fail(result.reply)
        for name, value, comment in outcome_scores(result.status, result.code, result.reply):
            self._parts.tracer.score(name, value, comment, of_trace=True)

    async def _context(self, run: Run, writer: RunWriter, active: ActiveRun, meter: Meter) -> RunContext:
        origin, registry = run.forked_from, self._parts.registry
        roster, prompts = await registry.roster(run.epoch, run.tenant), await registry.prompts(run.epoch)
        if origin:
            roster = await registry.with_stars(roster, run.tenant, origin.stars.values())
            prompts = await registry.with_prompts(prompts, origin.changes.prompts)
        key, parts, governance = RunKey(run.tenant, run.id), self._parts, self._parts.governance
        asked = await parts.interrupts.of_run(key) if run.fence > 1 else ()
        calls = await LedgerReader(parts.engine).calls(key) if run.fence > 1 else ()
        recorded = await parts.reader.journal(key) if run.fence > 1 or origin else ()
        entries = [entry for entry in recorded if entry.kind != INHERITED]
        sent = await LedgerReader(parts.engine).calls_of_originals(key, live=origin.live) if origin else ()
        interrupts = Interrupts(writer, parts.clock, parts.limits.interrupt_seconds, asked)
        attempts, repeated = AttemptOutcomes(entries), sent if origin and origin.live else ()
        ledger = Ledger(
            *(writer, interrupts, parts.clock, parts.limits.lease_seconds / 3, calls, attempts, repeated),
            lambda: self._stars.draining,
        )
        count_usage(meter, entries, ledger.settled)
        recorder, journal = RunRecorder(writer), Journal(writer, entries)
        stored = (journal.find("", "context") or {}) if entries else None
        original = await parts.reader.own_context(RunKey(run.tenant, origin.run)) if origin and not entries else None
        decision = await governance.decision(run, await self._table(run, stored), stored, original)
        run = governance.bounded(run, decision)
        active.shorten(run.remaining_seconds)
        usable, switched_off = self._usable(run, roster, governance.allowance(run, decision).effects)
        if stored is None:
            decision = with_usable_agent(decision, run, usable)
            if decision.warning:
                recorder.warn("governance", decision.warning)
        allowance = governance.allowance(run, decision)
        shows_some = len(usable.cards) > parts.limits.shortlist
        before = (
            await parts.conversations.recent(run, parts.limits.max_history) if run.has_history else RecentTurns((), ())
        )
        # the first versions cut results where a run has no `fit`, and may continue this one during a rollout
        own: Mapping[str, Any] = {"fit": 1} | ({"last_plan": [*before.last_plan]} if before.last_plan else {})
        if stored is None:  # the run's own context: no task and no node has this path
            journal.record("", "context", {**own, "governance": decision.model_dump(mode="json")})
            if decision.source != "table":  # the service may decide otherwise the next time
                await recorder.flush()
        else:
            own = stored
        models = ChosenModels(parts.models, origin.changes.model) if origin else parts.models
        tokens = tightest_budget(self._parts.limits.run_tokens, run.config.limits.tokens)
        reserved = min(_ANSWER_SHARE * run.remaining_seconds, _ANSWER_SECONDS)
        budget = RunBudget(Deadline(parts.clock, run.remaining_seconds - reserved), meter, interrupts, tokens)
        return RunContext(
            run=run,
            allowance=allowance,
            roster=usable,
            search=AgentSearch(run.tenant, roster, usable),
            recent_agents=await parts.conversations.last_agents(run) if shows_some else (),
            history=history_messages(before.said),
            last_plan=own.get("last_plan", ()),
            turns=partial(parts.conversations.turns, run),
            recorder=recorder,
            journal=journal,
            model=JournaledModel(
                models,
                journal,
                recorder,
                budget,
                self._parts.limits.model_call_seconds,
                downgrades=ModelRole.ROUTER in allowance.roles,
                wait_seconds=self._parts.limits.model_wait_seconds,
                draining=lambda: self._stars.draining,
            ),
            budget=budget,
            interrupts=interrupts,
            ledger=ledger,
            skills=RunSkills(writer),
            checkpoints=RunCheckpoints(self._parts.engine, writer),
            prompts=prompts,
            trial=trial_of(origin, sent),
            inherited=[entry for entry in recorded if entry.kind == INHERITED],
            close_inside=partial(self._terminator.close_inside, writer) if run.fence > 1 else None,
            switched_off=switched_off,
            availability=self._availability(run),
        )

    def _usable(self, run: Run, roster: Roster, effects: frozenset[Effect]) -> tuple[Roster, frozenset[str]]:
        """Return the agents of a run, and the names of those that a kill switch stops, also by one of their servers.

        Those that can't work or are switched off are degraded, with the reason.
        """
        available = self._availability(run)
        down, switched_off = available.degraded_servers(roster), available.switched_off(roster)
        is_trial = run.forked_from is not None and not run.forked_from.live
        may_build = Scope.TEAMS in run.scopes and effects > {Effect.READ} and not is_trial  # a team is more than a read
        if not may_build or self._parts.builder is None:
            roster = roster.without(ARCHITECT.name)
        usable = roster.limited(effects, down, run.grant)
        return usable.halted(self._parts.halts.named("agent", run.tenant)), switched_off

    async def _table(self, run: Run, stored: Mapping[str, Any] | None) -> GovernanceTable:
        """Return the table of the run's epoch; of a fork that begins that in force, whatever the original's was."""
        registry = self._parts.registry
        is_fork = run.forked_from is not None and stored is None
        return await (registry.governance_in_force() if is_fork else registry.governance(run.epoch))

    def _availability(self, run: Run) -> Availability:
        return Availability(self._parts.gateway.listing, self._parts.halts, run.tenant, run.caller)

    async def _run_star(self, context: RunContext, writer: RunWriter) -> GraphState:
        """Run the main star. Raises SuspendedError while it waits for answers."""
        begun = begin_fork(context, initial_state(context.run.input, context.history))
        reached = await self._stars.run(MAIN_STAR, context, begun)
        if context.run.fence > 1:  # a task may have failed before it reached calls that an earlier execution left open
            await self._terminator.close(writer, LEFT_OPEN, "failed")
        return reached

    async def _state_at_failure(self, writer: RunWriter, failure: Failure) -> tuple[GraphState, Failure | None]:
        """Return the state that the run had reached; running out of time with results is not a failure."""
        state = await self._terminator.last_state(writer)
        await self._terminator.close(writer, failure.message, "failed", failure.code)
        if failure.code != DeadlineExceededError.code:
            return state, failure
        state = state_at_timeout(state)
        if not state["reply"]:
            return state, failure
        writer.emit(Warn(code=failure.code, message=failure.message))
        return state, None


def _pipeline(parts: Collaborators, stars: StarRunner) -> Pipeline:
    limits, tracer = parts.limits, parts.tracer
    artifact_tool = ArtifactTool(parts.artifacts, limits, tracer)
    tool_finder = ToolFinder(parts.agent_ranker, tracer)
    access = ToolAccess(parts.gateway, artifact_tool, limits, tool_finder)
    trial = TeamTrial(stars, parts.clock)
    architect = ArchitectRuntime(parts.builder, parts.agent_ranker, trial, limits) if parts.builder else None
    return Pipeline(
        tool_runtime=NativeRuntime(access),
        text_runtime=TextRuntime(),
        reviewer=Reviewer(tracer),
        tracer=tracer,
        history_messages=limits.worker_context_messages,
        memory=parts.memory,
        team_runtime=TeamRuntime(stars, parts.clock),
        architect_runtime=architect,
        call_runtime=DirectCallRuntime(access),
        crewai_runtime=CrewAIRuntime.with_threads(access) if crew_executor.is_installed() else None,
    )
