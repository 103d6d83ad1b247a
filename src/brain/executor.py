"""One life of a run: from its claim to its end, or to wherever it was when its worker stopped."""

import logging
from dataclasses import dataclass, field, replace
from typing import cast

from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphDrained, GraphRecursionError
from langgraph.runtime import RunControl

from brain.agents.artifact_tool import ArtifactTool
from brain.agents.native_runtime import NativeRuntime
from brain.agents.pipeline import Pipeline
from brain.agents.reflection import Reviewer
from brain.agents.text_runtime import TextRuntime
from brain.agents.tool_calling import ToolAccess
from brain.context import RunContext
from brain.conversation.rendering import SHOWN, render
from brain.conversation.repository import ConversationRepository
from brain.durability.checkpointer import FencedSaver
from brain.durability.journal import Journal
from brain.durability.ledger import Ledger
from brain.governance import Governance
from brain.graph import Star, build_star
from brain.interrupts.budget import Meter, RunBudget
from brain.interrupts.requests import Interrupts
from brain.journaled_model import JournaledModel
from brain.lifecycle.cancellation import ActiveRun, ActiveRuns
from brain.lifecycle.fallback_answer import state_at_timeout
from brain.lifecycle.finalization import RunFinalizer
from brain.lifecycle.termination import RunTerminator, count
from brain.nodes.qa import Qa
from brain.nodes.supervisor import Supervisor
from brain.prompts import prompt
from brain.recorder import RunRecorder
from brain.registry.cards import Roster
from brain.registry.service import Registry
from brain.state import ConversationMessage, GraphState, initial_state
from brain.tracing import TracedGateway, TracedModels
from starling.core.artifacts import DISABLED_ARTIFACT_STORE, ArtifactStore
from starling.core.clock import Clock, Deadline
from starling.core.errors import (
    DatabaseUnavailableError,
    DeadlineExceededError,
    LeaseLostError,
    RunCancelledError,
    StarlingError,
    SuspendedError,
)
from starling.core.events import Failure, Warn
from starling.core.llm import ModelClient
from starling.core.runs import Run, RunResult
from starling.core.settings import Limits
from starling.core.tool_calls import Effect
from starling.core.tools import NO_HALTS, Halts, ToolGateway
from starling.core.tracing import NOOP_TRACER, Span, Tracer
from starling.infra.postgres.engine import Engine
from starling.infra.postgres.runs.acceptance import Claim, Connection, RunKey
from starling.infra.postgres.runs.broadcast import Broadcast
from starling.infra.postgres.runs.interrupts import InterruptRepository
from starling.infra.postgres.runs.ledger import LedgerReader
from starling.infra.postgres.runs.reader import RunReader
from starling.infra.postgres.runs.writer import RunWriter

_ANSWER_SHARE, _ANSWER_SECONDS = 0.1, 5.0  # of a run's time, kept for its answer
_LEFT = "Its task failed before it came to this call again."
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Collaborators:
    """What every run is executed with."""

    engine: Engine
    broadcast: Broadcast
    ending: RunFinalizer
    reader: RunReader
    conversations: ConversationRepository
    interrupts: InterruptRepository
    registry: Registry
    governance: Governance
    models: ModelClient
    gateway: ToolGateway
    clock: Clock
    limits: Limits
    tracer: Tracer = NOOP_TRACER
    halts: Halts = NO_HALTS
    lives: ActiveRuns = field(default_factory=ActiveRuns)
    artifacts: ArtifactStore = DISABLED_ARTIFACT_STORE


class Brain:
    """Executes claimed runs on the one compiled star."""

    def __init__(self, with_: Collaborators) -> None:
        self._with = _traced(with_)
        self._star = _star(self._with)
        self._stopping = RunTerminator(with_.engine, with_.broadcast, with_.reader, with_.ending)
        self._control = RunControl()

    def drain(self) -> None:
        """Have each life end with the step that it is in, from now on."""
        self._control.request_drain()

    async def park(self, claim: Claim) -> RunResult:
        """End a claimed run that takes its workers down with it. Raises as `execute` does."""
        again = claim.run.crashes > self._with.limits.crashes_per_run  # the last time, parking didn't come to an end
        return await self._stopping.park(claim, blind=again)

    async def execute(self, claim: Claim) -> RunResult | None:
        """Bring a claimed run to its end, or to the end of a step once this process is drained.

        Returns what it came to, None where it waits for somebody or is to go on elsewhere.
        Raises LeaseLostError where another worker took the run over, and DatabaseUnavailableError where Postgres
        stayed away too long: then the run goes on elsewhere, or later.
        """
        writer = RunWriter(self._with.engine, claim, self._with.broadcast)
        with self._with.broadcast.writing(claim.run.id):
            try:
                with self._with.tracer.segment(claim.run) as segment, self._with.lives.living(claim.run) as life:
                    result = await self._live(claim.run, writer, life)
                    _describe(segment, result)
            finally:
                await writer.close()
        return result

    async def _live(self, run: Run, writer: RunWriter, life: ActiveRun) -> RunResult | None:
        deadline = Deadline(self._with.clock, _working_seconds(run.remaining_seconds))
        meter = Meter()
        state = initial_state(run.input)
        failure: Failure | None = None
        try:
            async with life.within(run.remaining_seconds):
                context = await self._context(run, writer, deadline, meter)
                state = await self._run_star(context, writer)
        except (LeaseLostError, DatabaseUnavailableError):
            raise
        except SuspendedError as suspended:
            return await self._suspend(run, writer, suspended)
        except GraphDrained:
            return await writer.flush()
        except RunCancelledError:
            return await self._stopping.end(writer)
        except TimeoutError:
            failure = Failure(
                code=DeadlineExceededError.code, message="The run's time ran out before the answer stood."
            )
        except GraphRecursionError:
            failure = Failure(code="recursion_limit", message="The run went round too often without an answer.")
        except StarlingError as error:
            failure = Failure(code=error.code, message=str(error))
        except Exception:  # noqa: BLE001 - the worker's edge: whatever it was, the caller gets an answer
            _log.exception("run %s failed", run.id)
            writer.drop_unwritable()
            failure = Failure(code="internal", message=f"Something went wrong inside Starling (run {run.id}).")
        if failure:
            state, failure = await self._broken_off(writer, failure)
        return await self._with.ending.end(writer, state, meter, failure)

    async def _suspend(self, run: Run, writer: RunWriter, suspended: SuspendedError) -> None:
        """Let the run wait for what it asked, held by nobody."""
        key = RunKey(run.tenant, run.id)

        async def wake(connection: Connection) -> None:
            await self._with.interrupts.wake_if_answered(connection, key, suspended.interrupts)

        await writer.suspend(wake)

    async def _context(self, run: Run, writer: RunWriter, deadline: Deadline, meter: Meter) -> RunContext:
        roster, history = await self._roster(run), await self._history(run)
        allowance = self._with.governance.evaluate_request(
            run.thread_id, run.config.channel, run.config.mode, run.input, run.config.limits
        )
        entries = await self._with.reader.journal(RunKey(run.tenant, run.id)) if run.fence > 1 else ()
        interrupts = await self._interrupts(run, writer)
        ledger = await self._ledger(run, writer, interrupts)
        count(meter, entries, ledger.settled)
        recorder, journal = RunRecorder(writer), Journal(writer, entries)
        budget = RunBudget(deadline, meter, interrupts, run.config.limits.tokens)
        return RunContext(
            run=run,
            allowance=allowance,
            roster=self._usable(run, roster, allowance.effects),
            history=history,
            recorder=recorder,
            journal=journal,
            model=JournaledModel(self._with.models, journal, recorder, budget, self._with.limits.model_call_seconds),
            budget=budget,
            interrupts=interrupts,
            ledger=ledger,
        )

    async def _interrupts(self, run: Run, writer: RunWriter) -> Interrupts:
        known = await self._with.interrupts.of_run(RunKey(run.tenant, run.id)) if run.fence > 1 else ()
        return Interrupts(writer, self._with.clock, self._with.limits.interrupt_seconds, known)

    async def _ledger(self, run: Run, writer: RunWriter, interrupts: Interrupts) -> Ledger:
        rows = await LedgerReader(self._with.engine).calls(RunKey(run.tenant, run.id)) if run.fence > 1 else ()
        return Ledger(writer, interrupts, self._with.clock, self._with.limits.lease_seconds / 3, rows)

    def _usable(self, run: Run, roster: Roster, effects: frozenset[Effect]) -> Roster:
        """Return what the run may choose from: what can't be used, or was switched off, says so."""
        halts = self._with.halts
        reasons = _degraded(roster, self._with.gateway) | dict(halts.named("server", run.tenant))
        if reason := halts.everything(run.tenant, run.caller):
            reasons = {server: reason for card in roster.cards.values() for server in card.servers}
        return roster.limited(effects, reasons, run.grant).halted(halts.named("agent", run.tenant))

    async def _roster(self, run: Run) -> Roster:
        return await self._with.registry.roster(run.epoch, run.tenant)

    async def _history(self, run: Run) -> tuple[ConversationMessage, ...]:
        return render(await self._with.conversations.last(run, SHOWN, self._with.limits.max_history))

    async def _run_star(self, context: RunContext, writer: RunWriter) -> GraphState:
        """Start the star, or go on from the last checkpoint. Raises SuspendedError where it can't go on for now."""
        saver = FencedSaver(self._with.engine, writer)
        config = _config(context.run, self._with.limits.graph_steps)
        resumed = await saver.aget_tuple(config) is not None
        star: Star = self._star.copy({"checkpointer": saver})
        given = None if resumed else initial_state(context.run.input)
        reached = await star.ainvoke(given, config, context=context, durability="sync", control=self._control)
        if waits := reached.get("__interrupt__"):
            raise SuspendedError(*dict.fromkeys(key for item in waits for key in item.value))
        if resumed:  # a task may have failed before it came to what was open in an earlier life
            await self._stopping.close(writer, _LEFT, "failed")
        return cast("GraphState", reached)

    async def _broken_off(self, writer: RunWriter, failure: Failure) -> tuple[GraphState, Failure | None]:
        """Return what the run had reached; out of time with something to answer is no failure."""
        state = await self._stopping.last_state(writer)
        await self._stopping.close(writer, failure.message, "failed")
        if failure.code != DeadlineExceededError.code:
            return state, failure
        state = state_at_timeout(state)
        if not state["reply"]:
            return state, failure
        writer.emit(Warn(code=failure.code, message=failure.message))
        return state, None


def _star(with_: Collaborators) -> Star:
    limits, tracer = with_.limits, with_.tracer
    artifact_tool = ArtifactTool(with_.artifacts, limits, tracer)
    pipeline = Pipeline(
        tool_runtime=NativeRuntime(ToolAccess(with_.gateway, artifact_tool)),
        text_runtime=TextRuntime(),
        reviewer=Reviewer(prompt("reflection"), prompt("reviewer"), tracer),
        tracer=tracer,
        history_messages=limits.worker_context_messages,
    )
    return build_star(Supervisor(prompt("supervisor"), limits, with_.gateway, tracer), pipeline, Qa(prompt("qa")))


def _traced(with_: Collaborators) -> Collaborators:
    if with_.tracer is NOOP_TRACER:
        return with_
    models, gateway = TracedModels(with_.models, with_.tracer), TracedGateway(with_.gateway, with_.tracer)
    return replace(with_, models=models, gateway=gateway)


def _describe(segment: Span, result: RunResult | None) -> None:
    if result is None:
        segment.set(lambda: {"starling.status": "waiting"})
        return
    segment.set(lambda: {"starling.status": result.status, "output": result.reply})
    if result.status != "succeeded":
        segment.fail(result.reply)


def _working_seconds(seconds: float) -> float:
    """Return how long models and tools may work; what is left then is for the answer."""
    return seconds - min(_ANSWER_SHARE * seconds, _ANSWER_SECONDS)


def _config(run: Run, steps: int) -> RunnableConfig:
    return {
        "configurable": {"thread_id": run.id, "checkpoint_ns": ""},
        "recursion_limit": steps + 1,  # LangGraph counts its last look, at nothing left, too
        "callbacks": [],
    }


def _degraded(roster: Roster, gateway: ToolGateway) -> dict[str, str]:
    """Why which server can't be used now, whatever the epoch says."""
    reasons: dict[str, str] = {}
    for card in roster.cards.values():
        if card.server is None:
            continue
        listing = gateway.listing(card.server)
        if listing is None:
            reasons[card.server] = "The server was removed."
        elif listing.state == "degraded":
            reasons[card.server] = listing.error
    return reasons
