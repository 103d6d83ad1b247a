"""`starling key` commands, and what the API does with keys."""

import json

import httpx
import pytest

from tests.support.command_line import SYSTEM_HEALTH, CliWorkspace, server_file


def test_key_commands_create_list_and_revoke(workspace: CliWorkspace) -> None:
    made = workspace.json(
        *("key", "create", "ci", "--tenant", "shop", "--scope", "run", "--scope", "admin"),
        *("--server", "time", "--tool", "git.git_log", "--expires", "30d"),
    )
    plain = workspace.starling("key", "create", "laptop")
    listed = workspace.json("key", "list")
    of_the_shop = workspace.json("key", "list", "--tenant", "shop")
    table = workspace.starling("key", "list").stdout
    revoked = workspace.json("key", "revoke", made["id"].replace("-", "")[-8:])

    assert made["key"].startswith("sk-starling-")
    assert made["grant"] == {"servers": ["time"], "tools": ["git.git_log"]}
    assert made["scopes"] == ["admin", "run"]
    assert plain.stdout.startswith("sk-starling-")
    assert plain.stdout.count("\n") == 1  # so that KEY=$(starling key create laptop) holds the key alone
    assert "`starling key revoke " in plain.stderr
    assert (made["id"] in table, made["id"].replace("-", "")[-8:] in table) == (False, True)
    assert revoked["id"] == made["id"]
    assert [(key["name"], key["tenant"], key["state"]) for key in listed] == [
        ("ci", "shop", "active"),
        ("laptop", "default", "active"),
    ]
    assert made["key"] not in str(listed)
    assert [key["name"] for key in of_the_shop] == ["ci"]
    assert revoked["state"] == "revoked"
    assert "revoked" in workspace.starling("key", "list").stdout


def test_grant_of_unknown_servers_and_tools_warns(workspace: CliWorkspace) -> None:
    workspace.starling("registry", "reload", "--mcp-config", server_file(workspace, system_health=SYSTEM_HEALTH))
    known = ("--server", "system_health", "--tool", "system_health.disk")

    quiet = workspace.starling("key", "create", "x", *known)
    told = workspace.starling(
        "key", "create", "x", *known, "--server", "tiem", "--tool", "system_health.dsik", "--json"
    )

    assert "Not there now" not in quiet.stderr
    assert told.stderr == "Not there now, and reached once they are: system_health.dsik, tiem.\n"
    assert json.loads(told.stdout)["grant"]["servers"] == ["system_health", "tiem"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("create", "x", "--tenant", "*"), "is not a tenant name"),
        (("create", "x", "--expires", "0d"), "is not a duration"),
        (("revoke", "nonsense"), "is not the id of a key"),
    ],
)
def test_invalid_key_options_are_refused(workspace: CliWorkspace, arguments: tuple[str, ...], told: str) -> None:
    done = workspace.starling("key", *arguments)

    assert done.returncode == 2
    assert told in done.stderr


def test_open_address_needs_a_key(workspace: CliWorkspace) -> None:
    refused = workspace.starling("serve", "--host", "0.0.0.0", "--port", "0")  # noqa: S104 - what it is about
    up_too = workspace.starling("up", "--host", "0.0.0.0", "--port", "0")  # noqa: S104
    key = workspace.json("key", "create", "anybody")["key"]

    assert (refused.returncode, up_too.returncode) == (2, 2)
    assert "starling key create" in refused.stderr
    assert "starling key create" in up_too.stderr
    with workspace.running("serve", "--host", "0.0.0.0", "--port", "0") as service:  # noqa: S104
        url = service.url.replace("0.0.0.0", "127.0.0.1")  # noqa: S104
        run = f"{url}/v1/runs/01a1f879-6f4e-7816-b2b9-746eb484f8a0/events"
        forwarded = {"X-Forwarded-For": "203.0.113.7"}
        assert httpx.get(run, headers=forwarded).status_code == 401
        assert httpx.get(run, headers=forwarded | {"Authorization": f"Bearer {key}"}).status_code == 404


def test_ask_sends_the_key_from_the_environment(workspace: CliWorkspace) -> None:
    key = workspace.json("key", "create", "anybody")["key"]
    workspace.json("key", "revoke", workspace.json("key", "list")[0]["id"])
    shown = CliWorkspace(workspace.folder, {**workspace.variables, "STARLING_API_KEY": key})

    with workspace.running("serve", "--port", "0") as service:
        done = shown.starling("ask", "hello", "--url", service.url)

    assert done.returncode == 2
    assert "is revoked" in done.stderr
