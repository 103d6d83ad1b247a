"""What servers say during a call becomes events of the run, between the call's start and its result."""

from starling.core.events.run_events import ToolLog, ToolProgress
from starling.core.tool_calls import Observation
from starling.core.tools import ToolCall, ToolNotice, ToolOutcome
from tests.support.in_memory_run import tool_calls
from tests.support.scripted_gateway import ScriptedGateway
from tests.unit.brain.agents.tools.test_call_limits import APPROVED, begin, run


def speaking(call: ToolCall) -> ToolOutcome:
    assert call.on_notice is not None
    call.on_notice(ToolNotice("half", progress=1, total=2))
    call.on_notice(ToolNotice("slow today", level="warning", logger="db"))
    return ToolOutcome(Observation.COMPLETED, "done")


async def test_progress_and_log_of_a_server_are_events_of_the_run() -> None:
    begun = begin(tool_calls(("look", {})), "It is there.", APPROVED)

    await run(begun, ScriptedGateway(speaking))

    events = [event for event in begun.sink.events if event.type.startswith("tool_")]
    place = {"name": "bench.look", "task_id": "t1", "path": "t1", "call_id": "t1.0.0"}
    assert [event.type for event in events] == ["tool_start", "tool_progress", "tool_log", "tool_result"]
    assert isinstance(events[1], ToolProgress)
    assert isinstance(events[2], ToolLog)
    assert events[1].model_dump() == place | {"type": "tool_progress", "progress": 1, "total": 2, "message": "half"}
    assert events[2].model_dump() == place | {
        "type": "tool_log",
        "level": "warning",
        "logger": "db",
        "message": "slow today",
    }
