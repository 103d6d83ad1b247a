"""Trials of teams: calls that may change something are answered here, and neither made nor recorded as made."""

import asyncio
from dataclasses import dataclass, replace
from typing import Final, Literal, cast

from mcp_gateway.path.stage import Stage
from mcp_gateway.schemas.instance import instance_of
from mcp_gateway.schemas.validation import Validators, faults
from starling.core.clock import Deadline
from starling.core.json import Json, JsonObject, canonical, storable, storable_text
from starling.core.tool_calls import Effect, Observation
from starling.core.tools import CallRecord, ToolCall, ToolOutcome, TrialResult

NOT_EXECUTED: Final = "recorded, not executed"
_NOT_CALLED: Final = "[simulated: this is a trial, so {tool} was not called; {instead}]"
_FIXTURE: Final = "take the result below, which its case gives, as the tool's"
_EXAMPLE: Final = "take the result below, an example, as the tool's"
_NO_RESULT: Final = "take it as done"


@dataclass(frozen=True, slots=True)
class Recorder:
    """Sends the calls of a trial that may change something to `simulation`, all others on to `inner`.

    It comes before approval and ledger: nobody is asked about such a call, and it leaves no row.
    """

    simulation: Stage
    inner: Stage

    async def __call__(self, call: ToolCall, deadline: Deadline, record: CallRecord | None) -> ToolOutcome:
        is_simulated = call.trial is not None and call.tool.effect is not Effect.READ
        return await (self.simulation if is_simulated else self.inner)(call, deadline, record)


@dataclass(frozen=True, slots=True)
class Simulation:
    """Answers a call of a trial with a fixture, else an instance of the tool's output schema, else a fixed text."""

    validators: Validators

    async def __call__(self, call: ToolCall, deadline: Deadline, record: CallRecord | None) -> ToolOutcome:
        fixture = _fixture(call)
        return await self._example(call) if fixture is None else await self._given(call, storable(fixture.result))

    async def _given(self, call: ToolCall, result: Json) -> ToolOutcome:
        """Return the outcome of a fixture, which has to keep the promise of the tool's output schema too."""
        data = cast("JsonObject", result) if isinstance(result, dict) else _wrapped(call.tool.output_schema, result)
        if violations := await self._violations(call, data):
            text = f"The fixture for {call.tool.full_name} violates the tool's output schema: {violations}."
            invalid = ToolOutcome(Observation.INVALID_RESULT, text, code="invalid_result")
            return _marked(invalid, call, _FIXTURE, "fixture")
        text = result if isinstance(result, str) else canonical(result)
        return _marked(ToolOutcome(Observation.COMPLETED, text, data), call, _FIXTURE, "fixture")

    async def _example(self, call: ToolCall) -> ToolOutcome:
        schema, data = call.tool.output_schema, None
        if schema is not None:  # in a thread: thousands of small steps
            compiled = await self.validators.load(call.tool.schemas_key, "output", schema)
            data = await asyncio.to_thread(instance_of, compiled)
        text, instead = (NOT_EXECUTED, _NO_RESULT) if data is None else (canonical(data), _EXAMPLE)
        return _marked(ToolOutcome(Observation.COMPLETED, text, data), call, instead, "simulated")

    async def _violations(self, call: ToolCall, data: JsonObject | None) -> str:
        if call.tool.output_schema is None:
            return ""
        if data is None:
            return "it is no object"
        schema = await self.validators.load(call.tool.schemas_key, "output", call.tool.output_schema)
        return "; ".join(faults(schema, data, "result"))


def _wrapped(schema: JsonObject | None, result: Json) -> JsonObject | None:
    """Return a result as the object `{"result": …}`, which libraries of servers make of one that is none."""
    properties = (schema or {}).get("properties")
    return {"result": result} if isinstance(properties, dict) and list(properties) == ["result"] else None


def _fixture(call: ToolCall) -> TrialResult | None:
    """Return the first fixture for exactly this call, else the first for any call of its tool."""
    given = call.trial.fixtures if call.trial else ()
    own = [fixture for fixture in given if fixture.tool == call.tool.full_name]
    wanted = canonical(call.arguments)
    exact = (fixture for fixture in own if fixture.arguments is not None and canonical(fixture.arguments) == wanted)
    return next(exact, None) or next((fixture for fixture in own if fixture.arguments is None), None)


def _marked(outcome: ToolOutcome, call: ToolCall, instead: str, source: Literal["fixture", "simulated"]) -> ToolOutcome:
    """Return the outcome with a note that a reviewer and a person see before the result."""
    note = _NOT_CALLED.format(tool=call.tool.full_name, instead=instead)
    return replace(outcome, text=storable_text(f"{note}\n{outcome.text}"), simulated=source)
