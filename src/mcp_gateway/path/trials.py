"""Trials of teams and runs: calls that may change something are answered here, neither made nor recorded as made."""

from dataclasses import dataclass, replace
from typing import Final, cast

from mcp_gateway.path.schema_checks import result_violations
from mcp_gateway.path.stage import Stage
from mcp_gateway.registration.known_servers import Directory
from mcp_gateway.schemas.validation import Validators
from starling.core.clock import Deadline
from starling.core.json import Json, JsonObject, canonical, comparable, storable, storable_text
from starling.core.tool_calls import Effect, Observation
from starling.core.tools import CallRecord, ToolCall, ToolOutcome, TrialResult

NOT_EXECUTED: Final = "recorded, not executed"
_NOT_CALLED: Final = "[simulated: this is a trial, so {tool} was not called; {instead}]"


@dataclass(frozen=True, slots=True)
class TrialCalls:
    """Sends the calls of a trial that may change something to `simulation`, all others on to `inner`.

    It comes before approval and record: no person is asked about such a call, and it leaves no row. In the trial of a
    run, whose epoch may be old, the tool has to be one that reads now, too.
    """

    directory: Directory
    simulation: Stage
    inner: Stage

    async def __call__(self, call: ToolCall, deadline: Deadline, record: CallRecord | None) -> ToolOutcome:
        is_read = call.tool.effect is Effect.READ
        if is_read and call.trial is not None and call.trial.of_run:
            is_read = self.directory.effect(call) is Effect.READ
        is_simulated = call.trial is not None and not is_read
        return await (self.simulation if is_simulated else self.inner)(call, deadline, record)


@dataclass(frozen=True, slots=True)
class Simulation:
    """Answers a call of a trial with the fixture of its case, else with a fixed text.

    A note before the result tells reviewers and people that the tool was not called.
    """

    validators: Validators

    async def __call__(self, call: ToolCall, deadline: Deadline, record: CallRecord | None) -> ToolOutcome:
        fixture = _fixture_for(call)
        if fixture is None:
            outcome = ToolOutcome(Observation.COMPLETED, NOT_EXECUTED, simulated="simulated")
            instead = "take it as done"
        else:
            given = fixture.outcome or await self._given(call, storable(fixture.result))
            outcome = replace(given, simulated="fixture", events=())
            of = "an equal call got before" if call.trial and call.trial.of_run else "its case gives"
            instead = f"take the result below, which {of}, as the tool's"
        note = _NOT_CALLED.format(tool=call.tool.full_name, instead=instead)
        return replace(outcome, text=storable_text(f"{note}\n{outcome.text}"))

    async def _given(self, call: ToolCall, result: Json) -> ToolOutcome:
        """Return the outcome of a fixture, which has to keep the promise of the tool's output schema too.

        Where that schema has only `result`, as libraries of servers make it, the bare value will do.
        """
        schema = call.tool.output_schema
        properties = (schema or {}).get("properties")
        if not isinstance(result, dict) and isinstance(properties, dict) and list(properties) == ["result"]:
            data: JsonObject | None = {"result": result}
        else:
            data = cast("JsonObject", result) if isinstance(result, dict) else None
        violations = ""
        if schema is not None and data is None:
            violations = "it is not an object"
        elif schema is not None:
            violations = await result_violations(self.validators, call.tool.schemas_key, schema, data)
        if violations:
            text = f"The fixture for {call.tool.full_name} violates the tool's output schema: {violations}."
            return ToolOutcome(Observation.INVALID_RESULT, text, code="invalid_result")
        return ToolOutcome(Observation.COMPLETED, result if isinstance(result, str) else canonical(result), data)


def _fixture_for(call: ToolCall) -> TrialResult | None:
    """Return the first fixture for exactly this call, else the first for any call of its tool."""
    given = call.trial.fixtures if call.trial else ()
    own = [fixture for fixture in given if fixture.tool == call.tool.full_name]
    wanted = comparable(call.arguments)
    exact = (fixture for fixture in own if fixture.arguments is not None and comparable(fixture.arguments) == wanted)
    return next(exact, None) or next((fixture for fixture in own if fixture.arguments is None), None)
