"""`starling run tail` and `run show` on runs with special events: pruned ones, those of a build."""

import json

from psycopg import AsyncConnection
from sqlalchemy.ext.asyncio import AsyncEngine

from starling.core.events.run_events import Done, Thinking, Usage
from starling.core.events.stream import ANY_EVENT, AnyEvent
from starling.core.runs import RunResult
from starling.infra.postgres.runs.acceptance import RunKey, RunRepository
from starling.infra.postgres.runs.broadcast import Broadcast
from starling.infra.postgres.runs.leases import Leases
from starling.infra.postgres.runs.writer import RunWriter
from tests.support.build_events import BUILD
from tests.support.command_line import new_workspace
from tests.support.run_factories import claimed, defer_nothing, new_run


async def an_ended_run(engine: AsyncEngine, *events: AnyEvent) -> RunKey:
    """A run of two events and these."""
    repository = RunRepository(engine, defer_nothing, cap=8)
    new = new_run()
    await repository.accept(new)
    leases = Leases(engine, defer_nothing, repository.admit, graph_version=1)
    writer = RunWriter(engine, await claimed(leases, new.key), Broadcast())
    for event in events:
        writer.emit(event)
    result = RunResult(status="succeeded", reply="Done.")
    await writer.end(result, Done(usage=Usage(), status="succeeded", reply="Done."), repository)
    await writer.close()
    return new.key


async def test_tail_prints_one_gap_and_the_remaining_events(engine: AsyncEngine, database_url: str) -> None:
    texts = (Thinking(content="forgotten", message_id="m"), Thinking(content="Done.", message_id="n"))
    key = await an_ended_run(engine, *texts)
    async with await AsyncConnection.connect(database_url) as connection:
        await connection.execute(b"DELETE FROM events WHERE seq <= 2")
        await connection.execute(b"UPDATE runs SET trimmed = 2")

    with new_workspace(DATABASE_URL=database_url) as workspace:
        shown = workspace.starling("run", "tail", key.id)
        lines = workspace.starling("run", "tail", key.id, "--json")
        beyond = workspace.starling("run", "tail", key.id, "--after", "4")
        far_beyond = workspace.starling("run", "tail", key.id, "--after", "9", "--json")

    assert (shown.returncode, lines.returncode, beyond.returncode) == (0, 0, 0)
    assert shown.stdout.startswith("Events 1 to 2 are no longer kept.\n")
    assert "forgotten" not in shown.stdout
    gap, said, done = [json.loads(line) for line in lines.stdout.splitlines()]
    assert gap == {"seq": 2, "type": "gap", "from": 1, "to": 2}
    assert (said["seq"], said["content"], done["seq"], done["type"]) == (3, "Done.", 4, "done")
    assert (beyond.stdout, beyond.stderr) == ("", "There is nothing after event 4: the run has ended.\n")
    assert (far_beyond.returncode, far_beyond.stdout) == (0, "")
    assert far_beyond.stderr == "There is nothing after event 9: the run has ended.\n"
    assert lines.stderr == ""


async def test_what_a_run_built_is_shown_and_followed(engine: AsyncEngine, database_url: str) -> None:
    key = await an_ended_run(engine, *map(ANY_EVENT.validate_python, BUILD))

    with new_workspace(DATABASE_URL=database_url) as workspace:
        shown = workspace.starling("run", "show", key.id).stdout
        stored = workspace.json("run", "show", key.id)["builds"]
        followed = workspace.starling("run", "tail", key.id).stdout

    kinds = ("design", "checks", "proof", "published")
    assert [event["type"] for event in stored] == [event["type"] for event in BUILD if event["type"] in kinds]
    for text in (
        "Checks: sound",
        "Case one passed; calls: 2 live, 1 simulated",
        "machine_watch@1 is active from epoch 4",
    ):
        assert f"\n    {text}" in shown.partition("\nTasks\n")[2]
        assert f"\n{text}" in followed
