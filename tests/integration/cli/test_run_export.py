"""`starling run export`: lines of JSON for whole runs."""

import json

from tests.support.command_line import new_workspace
from tests.support.scripted_platform import ScriptedPlatform

PAGE = {"records": [{"run_id": "b", "request": "Größe?"}, {"run_id": "a", "request": "two\nlines"}], "next": None}


def test_each_run_is_one_line() -> None:
    with (
        ScriptedPlatform(answers={"/v1/records": PAGE}).serving() as platform,
        new_workspace(STARLING_URL=platform.url) as workspace,
    ):
        done = workspace.starling("run", "export", "--jsonl", "--since", "12h", "--status", "failed")

    assert [json.loads(line) for line in done.stdout.splitlines()] == PAGE["records"], done.stderr
