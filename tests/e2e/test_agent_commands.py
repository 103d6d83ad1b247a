"""`starling agent` commands."""

import json

import pytest

from tests.support.command_line import CliWorkspace

POET = {"id": "poet", "behavior_template": "You write haiku about ships."}


def test_agent_commands_create_change_show_and_archive(workspace: CliWorkspace) -> None:
    (workspace.folder / "poet.json").write_text(json.dumps(POET))
    first = workspace.json("agent", "create", "poet.json")
    second = workspace.json("agent", "create", "poet.json", "--render-policy", "none")
    listed = workspace.json("agent", "list")
    shown = workspace.json("agent", "show", "poet")
    archived = workspace.json("agent", "archive", "poet")

    assert (first["epoch"], second["epoch"], archived["epoch"]) == (1, 2, 3)
    assert {agent["name"]: agent["kind"] for agent in listed} == {
        "poet": "custom",
        "coder": "builtin",
        "generalist": "builtin",
        "architect": "builtin",
    }
    assert [(version["version"], version["active"]) for version in shown["versions"]] == [
        (first["version"], False),
        (second["version"], True),
    ]
    assert workspace.json("agent", "show", "poet")["agent"]["state"] == "archived"


def test_agent_show_prints_its_definition(workspace: CliWorkspace) -> None:
    made = workspace.starling("agent", "create", "--name", "poet", "--behavior", "You write haiku.", "--tenant", "shop")

    assert made.stdout.startswith("poet is in epoch 1, as version ")
    shown = workspace.starling("agent", "show", "poet", "--tenant", "shop").stdout
    assert "You write haiku." in shown
    assert "0 APPROVED, 0 FIXED, 0 REJECTED" in shown
    assert "poet\tcustom\tready" in workspace.starling("agent", "list", "--tenant", "shop").stdout
    assert "poet" not in workspace.starling("agent", "list").stdout
    assert (
        workspace.starling("agent", "archive", "poet", "--tenant", "shop").stdout
        == "poet is archived from epoch 2 on.\n"
    )


def test_agent_find_prints_the_agents_that_fit_best_with_their_scores(workspace: CliWorkspace) -> None:
    (workspace.folder / "poet.json").write_text(json.dumps(POET))
    workspace.json("agent", "create", "poet.json")

    found = workspace.json("agent", "find", "A haiku about a ship")
    printed = workspace.starling("agent", "find", "A haiku about a ship", "--limit", "1").stdout.splitlines()

    assert (found["total"], found["agents"][0]["name"], found["warning"]) == (4, "poet", "")
    assert found["agents"][0]["parts"]["meaning_card"] > 0
    assert printed[0] == "1 of 4 agents"
    assert printed[-1].startswith("poet\t")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("create",), "id: is missing"),
        (("create", "nowhere.json"), "nowhere.json can't be read"),
        (("create", "--name", "coder"), "built-in"),
        (("create", "--name", "poet", "--tool", "nowhere.*"), "'nowhere' isn't there"),
        (("show", "poet"), "There is no agent 'poet'"),
        (("archive", "generalist"), "There is no custom agent 'generalist'"),
    ],
)
def test_invalid_agent_is_refused_with_one_sentence(
    workspace: CliWorkspace, arguments: tuple[str, ...], told: str
) -> None:
    done = workspace.starling("agent", *arguments)

    assert done.returncode == 2
    assert told in done.stderr
    assert done.stdout == ""
