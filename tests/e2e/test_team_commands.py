"""`starling team` commands, over the database."""

import json

import pytest
import yaml
from jsonschema import Draft202012Validator

from starling.core.teams.spec import team_schema
from tests.support.command_line import CliWorkspace

CREW = """
name: crew
purpose: Writes about ships.
members:
  - name: writer
    role: Writer
    goal: Write it.
"""


@pytest.fixture
def workspace(workspace: CliWorkspace) -> CliWorkspace:
    (workspace.folder / "crew.yaml").write_text(CREW)
    (workspace.folder / "second.yaml").write_text(CREW.replace("about", "of"))
    return workspace


def test_team_commands_import_activate_return_and_archive(workspace: CliWorkspace) -> None:
    first = workspace.json("team", "import", "crew.yaml", "--activate")
    second = workspace.json("team", "import", "second.yaml")
    changed = workspace.json("team", "activate", "crew")
    back = workspace.json("team", "rollback", "crew")
    listed = workspace.json("team", "list")
    shown = workspace.json("team", "show", "crew")
    archived = workspace.json("team", "archive", "crew")

    assert [first["state"], first["epoch"], second["state"]] == ["active", 1, "draft"]
    assert [(one["version"], one["epoch"]) for one in (changed, back)] == [(2, 2), (1, 3)]
    assert [(one["name"], one["state"], one["version"]) for one in listed] == [("crew", "active", 1)]
    assert [one["state"] for one in shown["versions"]] == ["active", "superseded"]
    assert archived["epoch"] == 4
    assert workspace.json("team", "show", "crew")["state"] == "archived"


def test_team_commands_print_what_was_done(workspace: CliWorkspace) -> None:
    made = workspace.starling("team", "import", "crew.yaml", "--tenant", "shop").stdout.splitlines()
    active = workspace.starling("team", "activate", "crew", "--tenant", "shop").stdout
    shown = workspace.starling("team", "show", "crew", "--tenant", "shop").stdout
    version = workspace.starling("team", "show", "crew@1", "--tenant", "shop").stdout

    assert made[0].startswith("crew@1 is stored: draft, ")
    assert made[1] == "`starling team activate crew@1 --tenant shop` lets runs use it."
    assert active == "crew@1 is active from epoch 1 on.\n  ! crew@1 was never tried: it has no proof.\n"
    assert "writer\tnothing: it writes\tready\tWriter" in shown
    table, _, spec = version.partition("\n\n")
    assert table.splitlines()[1].startswith("1\tactive\t")
    assert yaml.safe_load(spec) == {"version": 1, **yaml.safe_load(CREW)}
    assert workspace.starling("team", "list").stdout.startswith("There are no teams yet.")
    assert workspace.starling("team", "show", "crew").returncode == 2


def test_command_that_activates_an_outer_team_anew_names_the_tenant(workspace: CliWorkspace) -> None:
    outer = CREW.replace("crew", "outer").replace("goal: Write it.", "goal: Write it.\n    team: crew")
    (workspace.folder / "outer.yaml").write_text(outer)
    workspace.json("team", "import", "crew.yaml", "--activate", "--tenant", "shop")
    workspace.json("team", "import", "outer.yaml", "--activate", "--tenant", "shop")
    hint = "! outer@1 has it inside as it was: `starling team activate outer@1 --tenant shop` compiles it anew."

    changed = workspace.starling("team", "import", "second.yaml", "--activate", "--tenant", "shop")
    gone = workspace.starling("team", "archive", "crew", "--tenant", "shop")

    assert changed.stdout.splitlines()[-1].strip() == hint
    assert (
        gone.stdout.splitlines()[-1] == "  ! outer@1 keeps it inside as it was, and can't be activated anew without it."
    )


def test_list_and_show_say_which_members_a_kill_switch_stops(workspace: CliWorkspace) -> None:
    for name, inner in (("outer", "crew"), ("whole", "outer")):
        made = CREW.replace("crew", name).replace("goal: Write it.", f"goal: Write it.\n    team: {inner}")
        (workspace.folder / f"{name}.yaml").write_text(made)
    for name in ("crew", "outer", "whole"):
        workspace.json("team", "import", f"{name}.yaml", "--activate")
    workspace.json("switch", "off", "agent", "crew", "--reason", "It is wrong.")
    reason = "The agent crew is switched off: It is wrong."

    listed = workspace.starling("team", "list").stdout.splitlines()
    outer = workspace.starling("team", "show", "outer").stdout.splitlines()
    whole = workspace.starling("team", "show", "whole").stdout.splitlines()

    assert [line.split("\t")[3] for line in listed[1:]] == [
        reason,
        f"without writer: {reason}",
        f"without writer/writer: {reason}",
    ]
    assert f"writer\tteam crew\tdegraded\t{reason}" in outer
    assert f"  ! writer/writer: {reason}" in whole


def test_exported_team_is_the_one_that_was_imported(workspace: CliWorkspace) -> None:
    workspace.json("team", "import", "crew.yaml")
    workspace.json("team", "import", "second.yaml")

    written = workspace.starling("team", "export", "crew@1").stdout
    (workspace.folder / "again.yaml").write_text(workspace.starling("team", "export", "crew").stdout)

    assert yaml.safe_load(written) == {"version": 1, **yaml.safe_load(CREW)}
    assert workspace.json("team", "import", "again.yaml")["created"] is False


def test_exported_json_fits_the_published_schema(workspace: CliWorkspace) -> None:
    workspace.json("team", "import", "crew.yaml")

    schema, spec = workspace.json("team", "schema"), workspace.json("team", "export", "crew")

    Draft202012Validator(schema).validate(spec)
    assert schema == team_schema()


def test_faults_are_printed_a_line_each_with_exit_code_2(workspace: CliWorkspace) -> None:
    member = {"name": "watcher", "role": "Watcher", "goal": "Watch."}
    crew = {"name": "crew", "purpose": "Watches."}
    faults = [{**member, "server": "nothing"}, {**member, "name": "other", "team": "nothing"}]
    (workspace.folder / "form.json").write_text(json.dumps({**crew, "members": [{**member, "hurry": 1}], "x": 1}))
    (workspace.folder / "faults.json").write_text(json.dumps({**crew, "members": faults}))

    for file, places in (
        ("form.json", ["members[0].hurry", "x"]),
        ("faults.json", ["members[0].server", "members[1]"]),
    ):
        checked = workspace.starling("team", "check", file)
        refused = workspace.starling("team", "import", file)

        assert (checked.returncode, refused.returncode) == (2, 2)
        lines = checked.stdout.splitlines()
        assert len(lines) == len(places)
        assert all(line.startswith(place) for line, place in zip(lines, places, strict=True))
        assert [line.strip() for line in refused.stderr.splitlines()[1:]] == lines
    assert workspace.json("team", "list") == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("check", "missing.yaml"), "missing.yaml can't be read"),
        (("activate", "crew@first"), "'first' is not a version of a team"),
        (("activate", "crew@0"), "'0' is not a version of a team"),
        (("export", "crew@9"), "There is no version 9 of the team 'crew'.\n  It has the version 1."),
        (("archive", "none"), "There is no team 'none'"),
    ],
)
def test_wrong_argument_is_refused_with_the_reason(
    workspace: CliWorkspace, arguments: tuple[str, ...], said: str
) -> None:
    workspace.json("team", "import", "crew.yaml")

    done = workspace.starling("team", *arguments)

    assert done.returncode == 2
    assert said in done.stderr


def test_graph_of_a_team_is_json(workspace: CliWorkspace) -> None:
    workspace.json("team", "import", "crew.yaml")

    assert [one["id"] for one in workspace.json("team", "show", "crew", "--graph")["nodes"]] == ["crew", "crew/writer"]


def test_changes_and_differences_of_versions_are_printed(workspace: CliWorkspace) -> None:
    workspace.json("team", "import", "crew.yaml", "--activate")
    workspace.json("team", "import", "second.yaml")

    differences = workspace.starling("team", "diff", "crew", "1", "2").stdout.splitlines()
    changes = [line.split("\t") for line in workspace.starling("team", "history", "crew").stdout.splitlines()[1:]]

    assert differences[:2] == ["--- crew@1", "+++ crew@2"]
    assert "-purpose: Writes about ships." in differences
    assert "+purpose: Writes of ships." in differences
    assert workspace.json("team", "diff", "crew")["paths"] == ["purpose"]
    assert workspace.starling("team", "diff", "crew", "1", "1").stdout == "crew@1 and crew@1 are the same.\n"
    assert [(action, version) for _, action, version, *_ in changes] == [
        ("import", "1"),
        ("activate", "1"),
        ("import", "2"),
    ]
