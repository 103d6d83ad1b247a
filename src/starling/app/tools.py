"""Single tool calls for other services: reads by the sessions of this process, all others as runs without a model."""

import asyncio
from contextlib import aclosing
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final, Literal

from brain.registry.cards import AgentCard
from brain.registry.repository import EpochRepository
from brain.registry.service import Registry
from starling.app.runs.acceptance import AcceptedRun, RunAcceptance, RunRequest
from starling.app.runs.completion import ended
from starling.core.clock import Deadline, SystemClock
from starling.core.errors import InvalidRequestError, NotFoundError
from starling.core.ids import new_id
from starling.core.json import canonical, unsendable
from starling.core.principal import Principal
from starling.core.runs import DirectCall, RunConfig, RunLimits
from starling.core.tool_calls import UNCERTAIN, CallState, Effect
from starling.core.tools import ToolCall, ToolDefinition, ToolGateway, ToolOutcome
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.documents import RunDocumentRepository
from starling.infra.postgres.runs.ledger import LedgerReader
from starling.infra.postgres.runs.reader import RunReader

type ExecutionStatus = Literal["success", "error", "waiting", "in_doubt"]

_NEEDS_A_RUN: Final = frozenset({"not_approved", "no_context"})  # codes of reads that were not sent without one
_SECONDS: Final = 60.0  # that an answer is waited for, unless the caller says otherwise


@dataclass(frozen=True, slots=True)
class ToolExecution:
    """What came of a call: `output` is its structured content, or its text, or why it failed.

    `waiting`: it goes on, or a person has to approve it. `in_doubt`: it may have been done, but its result can't be
    used or never came. `run_id` is the run that makes it, null for a read that needed none. Where `output` is only a
    part, `artifact` of that run is the whole.
    """

    status: ExecutionStatus
    output: Any
    execution_time_ms: float
    run_id: str | None = None
    artifact: str | None = None


@dataclass(frozen=True, slots=True)
class ToolExecutor:
    """Makes single calls on the path of all tool calls. `gateway` is None where the process has no sessions."""

    epochs: EpochRepository
    rosters: Registry
    acceptance: RunAcceptance
    documents: RunDocumentRepository
    ledger: LedgerReader
    reader: RunReader
    gateway: ToolGateway | None

    async def execute(
        self, caller: Principal, call: DirectCall, seconds: float | None, idempotency_key: str | None = None
    ) -> ToolExecution:
        """Make a call and return what came of it, after `seconds` at the latest; a run goes on after that.

        Raises NotFoundError for a tool that the caller can't call, InvalidRequestError, and what the acceptance of a
        run raises.
        """
        begun = perf_counter()
        if fault := unsendable(call.arguments):
            raise InvalidRequestError(f"The arguments of {call.tool} can't be sent: {fault}.")
        card, tool = await self._found(caller, call.tool)
        if tool.effect is Effect.READ and self.gateway is not None:
            outcome = await self._read(self.gateway, caller, card, tool, call, seconds or _SECONDS)
            if outcome.code not in _NEEDS_A_RUN and not outcome.truncated:
                status = "success" if outcome.status == "succeeded" else "error"
                return ToolExecution(status, _output(outcome), _milliseconds(begun))
        text = f"Call {call.tool} with {canonical(call.arguments)}."[: self.acceptance.limits.input_chars]
        config = RunConfig(agent=card.name, limits=RunLimits(run_seconds=seconds))
        accepted = await self.acceptance.accept(caller, RunRequest(text, "", config=config, call=call), idempotency_key)
        has_ended = await self._ended(accepted, seconds or _SECONDS)
        return await self._execution(accepted.key, begun, has_ended=has_ended)

    async def _found(self, caller: Principal, name: str) -> tuple[AgentCard, ToolDefinition]:
        number = await self.epochs.active_number()
        cards = (await self.rosters.roster(number, caller.tenant)).cards.values() if number else ()
        for card in cards:
            tool = next((tool for tool in card.tools if tool.full_name == name), None) if card.server else None
            if tool and (caller.grant is None or caller.grant.permits(tool.server, name)):
                return card, tool
        raise NotFoundError("tool", name, "`GET /tools` lists those that this key may call.")

    async def _read(
        self,
        gateway: ToolGateway,
        caller: Principal,
        card: AgentCard,
        tool: ToolDefinition,
        call: DirectCall,
        seconds: float,
    ) -> ToolOutcome:
        made = ToolCall(
            id=new_id(),
            run_id="",
            path="",
            tool=tool,
            arguments=call.arguments,
            grant=caller.grant,
            tenant=caller.tenant,
            agent=card.name,
            caller=caller.key_id,
        )
        return await gateway.call(made, Deadline(SystemClock(), seconds))

    async def _ended(self, accepted: AcceptedRun, seconds: float) -> bool:
        async with aclosing(accepted.events) as events:
            try:
                async with asyncio.timeout(seconds):
                    return await ended(self.documents, accepted.key, events)
            except TimeoutError:
                return False

    async def _execution(self, key: RunKey, begun: float, *, has_ended: bool) -> ToolExecution:
        rows = await self.ledger.calls(key)
        outcome, state = None, None
        if rows:
            outcome, state = rows[0].outcome, rows[0].state
        else:
            entries = await self.reader.journal(key)
            outcome = next((entry.data for entry in entries if entry.kind == "tool"), None)
        found = ToolOutcome.from_json(outcome) if outcome else None
        if state in UNCERTAIN:
            status: ExecutionStatus = "in_doubt"
        elif not has_ended:
            status, found = "waiting", None
        elif found and found.status == "succeeded" and state in (None, CallState.SUCCEEDED, CallState.REUSED):
            status = "success"
        else:
            status = "error"
        output = _output(found) if found else None
        if status == "error" and not output:  # it was never made
            output = ((await self.documents.row(key)).result or {}).get("reply")
        return ToolExecution(status, output, _milliseconds(begun), key.id, (found and found.artifact) or None)


def _output(outcome: ToolOutcome) -> Any:
    return outcome.text if outcome.data is None else outcome.data


def _milliseconds(begun: float) -> float:
    return round((perf_counter() - begun) * 1_000, 1)
