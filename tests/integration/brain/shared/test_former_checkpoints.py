"""Runs that an earlier version's graph began go on from its checkpoints."""

import base64
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from starling.infra.postgres.runs.acceptance import RunKey
from tests.support.model_script import Answer
from tests.support.platform import BENCH, Platform, ScriptedModel, calls, decision, task, verdict

pytestmark = pytest.mark.asyncio(loop_scope="module")

FOLDER = Path(__file__).parents[3] / "data" / "checkpoints"
QUESTION, ANSWER = "How is the disk?", "It is nearly full [1]."
# in the order of each file: the supervisor once, the agent twice, QA once, as far as they come after the checkpoint
ASKED = {"seven_supersteps": [4, 4, 3, 1, 1], "before_teams": [4, 3, 1]}


def recorded() -> Iterator[Any]:
    """The parameters of the test: each line of each file, and how often the model is asked after it."""
    for name, asked in ASKED.items():
        lines = (FOLDER / f"{name}.jsonl").read_text().splitlines()
        for number, (line, count) in enumerate(zip(lines, asked, strict=True), 1):
            stored = json.loads(line)
            yield pytest.param(stored, count, id=f"{name}-{number}-{stored['next']}")


async def put(module_database_url: str, key: RunKey, stored: Mapping[str, Any]) -> None:
    """Store the checkpoint as that of a run whose first worker died."""
    async with await AsyncConnection.connect(module_database_url) as connection:
        await connection.execute(
            "INSERT INTO checkpoints (thread_id, checkpoint_ns, checkpoint_id, checkpoint, metadata)"
            " VALUES (%s, '', %s, %s, %s)",
            (key.id, stored["id"], Jsonb(stored["checkpoint"]), Jsonb(stored["metadata"])),
        )
        for channel, (version, kind, blob) in stored["blobs"].items():
            await connection.execute(
                "INSERT INTO checkpoint_blobs (thread_id, checkpoint_ns, channel, version, type, blob)"
                " VALUES (%s, '', %s, %s, %s, %s)",
                (key.id, channel, version, kind, base64.b64decode(blob)),
            )
        await connection.execute("UPDATE runs SET fence = 1 WHERE id = %s", (key.id,))


@pytest.mark.parametrize(("stored", "asked"), list(recorded()))
async def test_run_continues_from_a_checkpoint_of_the_former_graph(
    platform: Platform, script: ScriptedModel, module_database_url: str, stored: Mapping[str, Any], asked: int
) -> None:
    script.supervisor(decision(reply="Hello yourself."), decision(task("t1", BENCH)))
    script.agent("t1", calls(("look", {"thing": "disk"})), Answer("The disk is nearly full."))
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer(ANSWER))
    await platform.ask("Hello!")
    key = await platform.accept(f" {QUESTION} ")
    await put(module_database_url, key, stored)

    stream = await platform.finish(key)

    assert (stream.status, stream.reply, stream.codes) == ("succeeded", ANSWER, [])
    of_the_run = platform.model.bodies[1:]
    assert len(of_the_run) == asked
    assert all(QUESTION in json.dumps(body) for body in of_the_run)
    assert json.dumps(of_the_run).count("Hello yourself.") >= 1
