"""`starling prompt`, and prompts in `starling registry`."""

from collections.abc import Generator
from typing import Any

import pytest

from brain.prompts import divided, program_text, prompt
from tests.support.command_line import CliWorkspace, new_workspace, server_file
from tests.support.langfuse_server import PUBLIC_KEY, SECRET_KEY, LangfuseServer, langfuse_in_a_thread

OWN, DATA = divided(program_text("supervisor"))


@pytest.fixture
def server() -> Generator[LangfuseServer]:
    with langfuse_in_a_thread() as server:
        yield server


@pytest.fixture
def workspace(database_url: str, server: LangfuseServer) -> Generator[CliWorkspace]:
    keys = {"LANGFUSE_PUBLIC_KEY": PUBLIC_KEY, "LANGFUSE_SECRET_KEY": SECRET_KEY, "LANGFUSE_HOST": server.url}
    names = {"LANGFUSE_PROMPT_LABEL": "live", "STARLING_PROMPT_NAMES": '{"supervisor": "planner"}'}
    with new_workspace(DATABASE_URL=database_url, **keys, **names) as workspace:
        yield workspace


def test_new_version_in_langfuse_is_shown_planned_and_taken_by_a_reload(
    workspace: CliWorkspace, server: LangfuseServer
) -> None:
    file = server_file(workspace)
    reload = ("registry", "reload", "--mcp-config", file)
    first = workspace.json(*reload)["prompts"]["supervisor"]["after"]
    assert (first["source"], first["hash"]) == ("local", prompt("supervisor").used.hash)
    assert workspace.starling("prompt", "diff").stdout == "The sources have nothing new.\n"

    server.publish("planner", f"{OWN}\nPlan as a captain.", "live")
    server.publish("planner", "Not live.", "production")
    diff = workspace.starling("prompt", "diff", "supervisor")
    plan = workspace.starling("registry", "plan")  # without a file: servers stay
    report = workspace.json("registry", "reload")
    taken: dict[str, Any] = report["prompts"]["supervisor"]["after"]
    rows = [line.split("\t") for line in workspace.starling("prompt", "list").stdout.splitlines()]

    assert (diff.returncode, plan.returncode) == (10, 10)
    assert "\n+Plan as a captain.\n" in diff.stdout
    assert "servers stay as they are" in plan.stderr
    assert report["changes"]["servers"] == {"added": [], "changed": [], "removed": []}
    assert f"~ prompt supervisor: local ({first['hash'][:12]}) → langfuse planner v1 (" in plan.stdout
    assert (taken["version"], taken["label"], taken["remote_name"]) == (1, "live", "planner")
    assert rows[:2] == [
        ["NAME", "SOURCE", "HASH", "SINCE EPOCH"],
        ["supervisor", "langfuse planner v1", taken["hash"][:12], "2"],
    ]
    assert rows[2][1::2] == ["local", "1"]

    own = workspace.json("prompt", "show", first["hash"][:10])
    assert (own["text"], own["in_force"]) == (program_text("supervisor"), False)
    text = workspace.starling("prompt", "show", "supervisor", "--text").stdout
    assert text == f"{OWN}\nPlan as a captain.\n---\n{DATA}\n"
    assert "source     langfuse planner v1, label live" in workspace.starling("prompt", "show", "supervisor").stdout
    assert workspace.starling("prompt", "show", "nothing").returncode == 2
    assert workspace.starling("run", "list", "--prompt", taken["hash"]).stdout == "There are no such runs.\n"

    server.publish("planner", "Plan. {{mood}}", "live")
    refused = workspace.starling("prompt", "pull")
    assert "! prompt supervisor: Langfuse's `planner`, version 3, can't be used: It names the unknown" in refused.stdout
    assert "nothing new" in refused.stdout
