"""`starling skill` commands."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import CliWorkspace

SKILL: dict[str, Any] = {
    "format": "starling.skill",
    "version": 1,
    "task": "How full is /tmp?",
    "template": "How full is {path}?",
    "calls": [
        {"tool": "shop.disk", "arguments": {"path": {"slot": "path", "from": "task", "example": "/tmp"}, "unit": "GB"}}
    ],
    "code": "",
    "outcome": "It is half full.",
    "tools": {"shop.disk": "hash"},
    "agent_kind": "specialist",
    "agent": "mcp_agent_shop",
    "examples": ["Is /var full?"],
}


def write(workspace: CliWorkspace, *skills: dict[str, Any]) -> Path:
    file = workspace.folder / "skills.jsonl"
    file.write_text("".join(f"{json.dumps(skill)}\n" for skill in skills))
    return file


def test_skill_commands_import_list_show_retire_restore_export_and_delete(workspace: CliWorkspace) -> None:
    (line,) = workspace.json("skill", "import", write(workspace, SKILL))["lines"]
    ending = line["id"].replace("-", "")[-8:]
    listed = workspace.starling("skill", "list").stdout
    shown = workspace.starling("skill", "show", ending).stdout
    retired = workspace.json("skill", "retire", ending, "--reason", "It is the wrong disk.")
    restored = workspace.starling("skill", "restore", ending).stdout
    exported = workspace.starling("skill", "export").stdout
    searched = workspace.starling("skill", "search", "How full is /home?").stdout
    deleted = workspace.starling("skill", "delete", ending).stdout

    assert f"{ending}\tsuspended\t" in listed
    assert listed.rstrip().endswith("\tmcp_agent_shop\t0\t0\t0\tHow full is {path}?")
    assert "origin     import by local" in shown
    assert "  Is /var full?" in shown
    assert '  shop.disk {"path":{"example":"/tmp","from":"task","slot":"path"},"unit":"GB"}' in shown
    assert (retired["state"], retired["reason"]) == ("retired", "It is the wrong disk.")
    assert restored == (f"Skill {line['id']} is suspended: These tools were changed or removed: shop.disk.\n")
    assert [json.loads(text) for text in exported.splitlines()] == [SKILL]
    assert searched == "There is no active skill to compare with.\n"
    assert deleted == f"Skill {line['id']} was deleted.\n"
    assert workspace.json("skill", "list") == []


def test_export_to_a_file_is_imported_for_another_tenant(workspace: CliWorkspace) -> None:
    file = workspace.folder / "exported.jsonl"
    workspace.json("skill", "import", write(workspace, SKILL))

    written = workspace.starling("skill", "export", file)
    made = workspace.starling("skill", "import", file, "--tenant", "bank").stdout

    assert written.stdout == f"Skills written to {file}: 1.\n"
    assert made.startswith("line 1: stored, ")
    assert len(workspace.json("skill", "list", "--tenant", "bank")) == 1


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("show", "abcd"), "There is no skill '…abcd'"),
        (("show", "abc"), "'abc' is too short for the end of an id."),
        (("import", "nowhere.jsonl"), "nowhere.jsonl can't be read"),
        (("import", "skills.jsonl"), "line 1: task: is missing"),
    ],
)
def test_wrong_skill_is_refused_with_one_sentence(
    workspace: CliWorkspace, arguments: tuple[str, ...], told: str
) -> None:
    write(workspace, {name: value for name, value in SKILL.items() if name != "task"})

    done = workspace.starling("skill", *arguments)

    assert done.returncode == 2
    assert told in done.stderr
