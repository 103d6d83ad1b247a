"""`starling run tail` on a run whose first events were pruned."""

import json

from psycopg import AsyncConnection
from sqlalchemy.ext.asyncio import AsyncEngine

from starling.core.events import Done, Thinking, Usage
from starling.core.runs import RunResult
from starling.infra.postgres.runs.acceptance import RunKey, RunRepository
from starling.infra.postgres.runs.broadcast import Broadcast
from starling.infra.postgres.runs.leases import Leases
from starling.infra.postgres.runs.writer import RunWriter
from tests.support.command_line import new_workspace
from tests.support.run_factories import claimed, defer_nothing, new_run


async def an_ended_run(engine: AsyncEngine) -> RunKey:
    """A run of four events."""
    repository = RunRepository(engine, defer_nothing, cap=8)
    new = new_run()
    await repository.accept(new)
    leases = Leases(engine, defer_nothing, repository.admit)
    writer = RunWriter(engine, await claimed(leases, new.key), Broadcast())
    writer.emit(Thinking(content="forgotten", message_id="m"))
    writer.emit(Thinking(content="Done.", message_id="n"))
    result = RunResult(status="succeeded", reply="Done.")
    await writer.end(result, Done(usage=Usage(), status="succeeded", reply="Done."), repository)
    await writer.close()
    return new.key


async def test_tail_prints_one_gap_and_the_remaining_events(engine: AsyncEngine, database_url: str) -> None:
    key = await an_ended_run(engine)
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
