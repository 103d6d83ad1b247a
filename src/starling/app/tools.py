"""Single tool calls for other services: reads by the sessions of this process, all others as runs without a model."""

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, Final, Literal

from brain.registry.repository import EpochRepository
from brain.registry.service import Registry
from starling.app.runs.acceptance import AcceptedRun, RunAcceptance, RunRequest
from starling.app.runs.completion import ended
from starling.core.clock import Deadline, SystemClock
from starling.core.errors import InvalidRequestError, NotFoundError
from starling.core.ids import new_id
from starling.core.json import canonical, unsendable
from starling.core.principal import Grant, Principal
from starling.core.runs import DirectCall, RunConfig
from starling.core.tool_calls import UNCERTAIN, Effect
from starling.core.tools import ToolCall, ToolGateway, ToolOutcome
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
        begun, time = perf_counter(), Deadline(SystemClock(), seconds or _SECONDS)
        if fault := unsendable(call.arguments):
            raise InvalidRequestError(f"The arguments of {call.tool} can't be sent: {fault}.")
        if idempotency_key and await self.acceptance.runs.begun(caller.tenant, idempotency_key):
            if not _is_granted(caller.grant, call.tool):
                raise _not_found(call)
        else:
            made = await self._prepared(caller, call)
            if made.tool.effect is Effect.READ and self.gateway is not None:
                outcome = await self.gateway.call(made, time)
                if outcome.code not in _NEEDS_A_RUN and not (outcome.truncated or outcome.binaries):
                    status = "success" if outcome.status == "succeeded" else "error"
                    return ToolExecution(status, _output(outcome), _milliseconds(begun))
        text = f"Call {call.tool} with {canonical(call.arguments)}."[: self.acceptance.limits.input_chars]
        accepted = await self.acceptance.accept(caller, RunRequest(text, "", call=call), idempotency_key)
        has_ended = await self._ended(accepted, time.remaining())
        return await self._execution(accepted.key, begun, has_ended=has_ended)

    async def _prepared(self, caller: Principal, call: DirectCall) -> ToolCall:
        """Return the call as one without a run. Raises NotFoundError."""
        number = await self.epochs.active_number()
        if not number:
            raise _not_found(call)
        row = (await self.rosters.governance(number)).row(RunConfig().mode, RunConfig().channel, caller.tenant)
        grant = row.granted(caller.grant)
        cards = (await self.rosters.roster(number, caller.tenant)).cards.values()
        for card in cards:
            tool = next((tool for tool in card.tools if tool.full_name == call.tool), None) if card.server else None
            if tool and _is_granted(grant, call.tool) and (row.effects is None or tool.effect in row.effects):
                place = (new_id(), "", "")  # of no run
                made = ToolCall(*place, tool, call.arguments, grant, caller.tenant, card.name, caller.key_id)
                return replace(made, least_approval=row.approval or "never")
        raise _not_found(call)

    async def _ended(self, accepted: AcceptedRun, seconds: float) -> bool:
        async with aclosing(accepted.events) as events:
            try:
                async with asyncio.timeout(seconds):
                    return await ended(self.documents, accepted.key, events)
            except TimeoutError:
                return False

    async def _execution(self, key: RunKey, begun: float, *, has_ended: bool) -> ToolExecution:
        """Return what came of the call of a run: effects are in the ledger, results of reads in the journal."""
        rows, entries = await self.ledger.calls(key), await self.reader.journal(key)
        stored = rows[0].outcome if rows else next((entry.data for entry in entries if entry.kind == "tool"), None)
        found = ToolOutcome.from_json(stored) if stored else None
        output, artifact = (_output(found), found.artifact or None) if found else (None, None)
        if rows and rows[0].state in UNCERTAIN:
            return ToolExecution("in_doubt", output, _milliseconds(begun), key.id)
        if not has_ended:
            return ToolExecution("waiting", None, _milliseconds(begun), key.id)
        if found and found.status == "succeeded":
            return ToolExecution("success", output, _milliseconds(begun), key.id, artifact)
        reply = output or ((await self.documents.row(key)).result or {}).get("reply")  # where it was never made
        return ToolExecution("error", reply, _milliseconds(begun), key.id, artifact)


def _is_granted(grant: Grant | None, tool: str) -> bool:
    return grant is None or grant.permits(tool.partition(".")[0], tool)


def _not_found(call: DirectCall) -> NotFoundError:
    return NotFoundError("tool", call.tool, "`GET /tools` lists those that this key may call.")


def _output(outcome: ToolOutcome) -> Any:
    return outcome.text if outcome.data is None else outcome.data


def _milliseconds(begun: float) -> float:
    return round((perf_counter() - begun) * 1_000, 1)
