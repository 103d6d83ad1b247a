"""`starling run approve`: approving and refusing calls, answering questions."""

import re
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.command_line import SYSTEM_HEALTH, CliWorkspace, Process, Service, new_workspace, server_file

RUN = "01a1f8ac-cbf4-7cdd-97b7-5ad5f772744e"
QUESTION = "How full is this disk?"
SERVERS = {"system_health": SYSTEM_HEALTH | {"x-starling": {"effect": "read", "approval": "always"}}}


@pytest.fixture(scope="module")
def workspace(module_database_url: str) -> Generator[CliWorkspace]:
    with new_workspace(DATABASE_URL=module_database_url) as workspace:
        yield workspace


@pytest.fixture(scope="module")
def platform(workspace: CliWorkspace) -> Generator[Service]:
    file: Path = server_file(workspace, **SERVERS)
    with workspace.running("up", "--port", "0", "--mcp-config", file) as service:
        yield service


def told_to_type(process: Process) -> list[str]:
    """Read along until the run waits, and return what to type after `starling`."""
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(r"`starling (run approve .*?)` approves", line):
            return found[1].split()
    raise AssertionError("the run asked nothing")


def test_approved_call_is_made_and_ask_reads_on(workspace: CliWorkspace, platform: Service) -> None:
    with workspace.started("ask", QUESTION, "--url", platform.url) as asking:
        command = told_to_type(asking)
        listed = workspace.starling("run", "approve")
        waiting = workspace.json("run", "approve")
        shown = workspace.starling("run", "show", command[2])
        lists = [workspace.json("run", "list", "--status", status) for status in ("waiting", "parked")]
        approved = workspace.starling(*command)
        rest, _ = asking.communicate()

    assert asking.returncode == 0, rest
    assert "Succeeded" in rest
    assert f"approval of run {command[2]}" in listed.stdout
    assert {item["kind"] for item in waiting} == {"approval"}
    assert f"Waits for\n  approval {waiting[0]['id']}: " in shown.stdout
    assert [[run["id"] for run in found] for found in lists] == [[command[2]], []]
    assert "system_health.disk {}" in shown.stdout
    assert f"`starling {' '.join(command)}` approves it" in shown.stdout
    assert approved.returncode == 0, approved.stderr
    assert f"{waiting[0]['id']} is approved." in approved.stdout
    assert workspace.json("run", "approve") == []


def test_request_behind_a_waiting_run_names_it(workspace: CliWorkspace, platform: Service) -> None:
    question = (QUESTION, "--url", platform.url, "--thread", "line")
    with workspace.started("ask", *question) as first:
        ahead = told_to_type(first)[2]
        with workspace.started("ask", *question) as second:
            assert second.stdout is not None
            behind = second.stdout.readline().split()[1]
            with workspace.started("run", "tail", behind) as tail:
                assert tail.stdout is not None
                told = [second.stdout.readline(), *(tail.stdout.readline() for _ in range(2))]
            shown = workspace.starling("run", "show", behind)
            document = workspace.json("run", "show", behind)
            for run in (behind, ahead):
                workspace.starling("run", "cancel", run)

    asked, read_along, started = told
    assert asked == read_along
    assert asked.startswith(f"Behind {ahead}, which is waiting: this run begins once that has ended.")
    assert behind in started
    assert asked in shown.stdout
    assert document["behind"] == {"run_id": ahead, "status": "waiting"}


def test_refused_call_passes_the_note_on(workspace: CliWorkspace, platform: Service) -> None:
    with workspace.started("ask", QUESTION, "--url", platform.url) as asking:
        command = told_to_type(asking)
        refused = workspace.starling(*command, "--reject", "--note", "not on a Friday")
        rest, _ = asking.communicate()
    late = workspace.starling(*command)

    assert refused.returncode == 0, refused.stderr
    assert "is refused." in refused.stdout
    assert "not on a Friday" in rest
    assert asking.returncode == 1
    assert late.returncode != 0
    assert "starling run approve" in late.stderr


def test_invalid_answer_is_refused_with_the_reason(workspace: CliWorkspace, platform: Service) -> None:
    with workspace.started("ask", QUESTION, "--url", platform.url) as asking:
        command = told_to_type(asking)
        no_json = workspace.starling(*command, "--payload", "{")
        misfit = workspace.starling(*command, "--payload", '{"approved": "maybe"}')
        nobody = workspace.starling("run", "approve", "nothing")
        workspace.starling(*command)
        asking.communicate()

    assert "--payload is not JSON" in no_json.stderr
    assert "payload.approved" in misfit.stderr
    assert "is not the id of a run" in nobody.stderr
    assert 0 not in {no_json.returncode, misfit.returncode, nobody.returncode}
    assert "Traceback" not in no_json.stderr + misfit.stderr + nobody.stderr


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--reject",), "The id of the run is missing."),
        (("--payload", '{"approved": true}'), "The id of the run is missing."),
        ((RUN, "--reject", "--payload", '{"resolution": "done"}'), "--payload cannot be combined with"),
        ((RUN, "--note", "go", "--payload", '{"approved": true}'), "--payload cannot be combined with"),
    ],
)
def test_contradictory_answer_options_are_refused(workspace: CliWorkspace, options: tuple[str, ...], told: str) -> None:
    refused = workspace.starling("run", "approve", *options)

    assert refused.returncode == 2
    assert told in refused.stderr
