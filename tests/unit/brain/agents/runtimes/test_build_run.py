"""What a build has of its run, in each process that goes on with it."""

import json

from architect.design.document import DesignDocument
from starling.core.teams.building import Section
from tests.support.in_memory_run import make_execution
from tests.support.task_build import task_build

ANSWER = json.dumps({"question": "Which disks?"})


async def test_resumed_build_has_the_answers_of_before_though_servers_were_removed() -> None:
    begun = make_execution(ANSWER)
    shown = [Section("goal", "Watch."), Section("candidates", parts=[Section("server", attributes={"name": "git"})])]
    first = await task_build(begun).ask("design", "designer", shown, DesignDocument)

    resumed = make_execution(after=begun)
    again = await task_build(resumed).ask("design", "designer", shown[:1], DesignDocument)

    assert again == first
    assert resumed.sink.entries == []


async def test_answer_that_was_not_recorded_is_asked_for_with_what_was_shown_before() -> None:
    begun = make_execution(ANSWER)
    await task_build(begun).ask("design", "designer", [Section("goal", "Watch \ud800.")], DesignDocument)
    begun.sink.entries[:] = [entry for entry in begun.sink.entries if entry.kind == "context"]

    resumed = make_execution(ANSWER, after=begun)
    await task_build(resumed).ask("design", "designer", [Section("goal", "Other.")], DesignDocument)

    assert resumed.model.requests[0].messages == begun.model.requests[0].messages
