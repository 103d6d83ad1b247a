"""Which stdio servers a document over HTTP may bring."""

import json
import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from mcp_gateway.configuration.servers import StdioServer, server_of
from mcp_gateway.configuration.stdio_over_http import StdioRules
from starling.core.errors import ForbiddenError
from starling.core.settings.schema import secret_variables

ROWS: list[dict[str, Any]] = [
    json.loads(line)
    for line in (Path(__file__).parents[3] / "data/security/stdio_commands.jsonl").read_text("utf-8").splitlines()
]
LAUNCHERS = ("python", "npx", "uvx", "node", "docker", "timeout", "xargs", "sh")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of allowed programs, one of which leads out of it."""
    (tmp_path / "server").write_text("#!/bin/true\n")
    (tmp_path / "server").chmod(0o755)
    (tmp_path / "link_to_sh").symlink_to("/bin/sh")
    return tmp_path


def rules(folder: Path) -> StdioRules:
    return StdioRules(("ALLOWED", *LAUNCHERS, f"{folder}/", "npx -y @scope/memory"))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['expect']} {row['cat']}")
def test_stdio_command_over_http_is_refused_or_accepted_as_the_corpus_says(row: dict[str, Any], folder: Path) -> None:
    if not row["command"]:  # not even a configuration
        with pytest.raises(ValueError, match="command"):
            server_of(row)
        return
    command = row["command"].replace("ALLOWED_DIR", str(folder))
    server = StdioServer(command=command, args=tuple(row["args"]), env=row["env"])

    assert (rules(folder).refusal(server) == "") == (row["expect"] == "accept")
    assert StdioRules().refusal(server) != ""


@pytest.mark.parametrize(
    ("command", "args", "accepted"),
    [
        ("ALLOWED", ("--verbose", "/srv"), True),
        ("ALLOWED ", (), False),
        ("npx", ("-y", "@scope/memory", "/srv"), True),
        ("npx", ("-y", "@scope/other"), False),
        ("npx", ("-y", "@scope/memory", "--node-options=--require=x"), False),
        ("python", ("server.py", "-c", "print()"), False),
        ("python", ("server.py",), True),
        ("{folder}/server", (), True),
        ("{folder}/../server", (), False),
        ("{folder}/other/server", (), False),
        ("server", (), False),
        ("ALLOWED", ("${HOME}",), False),
        ("ALLOWED", ("a\nb",), False),
    ],
)
def test_stdio_command_over_http_has_to_be_an_allowed_one(
    command: str, args: tuple[str, ...], accepted: bool, folder: Path
) -> None:
    server = StdioServer(command=command.format(folder=folder), args=args)

    assert (rules(folder).refusal(server) == "") == accepted


@pytest.mark.parametrize("name", ["LD_AUDIT", "PYTHONPATH", "PYTHONSTARTUP", "PATH", "npm_config_registry", "GIT_SSH"])
def test_variable_that_leads_a_process_elsewhere_is_refused(name: str) -> None:
    assert name in StdioRules(("ALLOWED",)).refusal(StdioServer(command="ALLOWED", env={name: "x"}))


def test_variable_that_begins_like_one_of_a_runner_is_accepted() -> None:
    assert StdioRules(("ALLOWED",)).refusal(StdioServer(command="ALLOWED", env={"GITHUB_TOKEN": "x"})) == ""


def test_working_folder_is_refused() -> None:
    assert "cwd" in StdioRules(("ALLOWED",)).refusal(StdioServer(command="ALLOWED", cwd=os.sep))


@pytest.mark.parametrize(
    ("document", "refused"),
    [
        ({"url": "https://shop.example/${DATABASE_URL}"}, True),
        ({"url": "https://shop.example/mcp", "headers": {"A": "b", "X": "${OPENAI_API_KEY:-none}"}}, True),
        ({"url": "https://shop.example/mcp", "headers": {"X": "${SHOP_TOKEN}"}}, False),
    ],
)
def test_server_over_http_is_sent_no_secret_of_the_platforms_settings(
    document: dict[str, Any], *, refused: bool
) -> None:
    rules, server = StdioRules(secrets=secret_variables()), server_of(document)

    rules.check({"stored": server}, {"stored": server.hash})
    with pytest.raises(ForbiddenError, match="secret of the platform") if refused else nullcontext():
        rules.check({"new": server}, {})


def test_secret_variables_are_those_of_settings_with_secrets() -> None:
    found = secret_variables()

    assert {"DATABASE_URL", "DATABASE_DIRECT_URL", "STARLING_API_KEY", "STARLING_PROVIDERS"} <= found
    assert not found & {"STARLING_HOST", "PORT", "database_url", "LANGFUSE_PUBLIC_KEY"}


def test_only_new_and_changed_stdio_servers_are_checked() -> None:
    stored, remote = server_of({"command": "sh"}), server_of({"url": "https://shop.example/mcp"})
    known = {"stored": stored.hash}

    StdioRules().check({"stored": stored, "remote": remote}, known)

    for name, changed in (("new", stored), ("stored", server_of({"command": "bash"}))):
        with pytest.raises(ForbiddenError, match=f"'{name}' can't be added or changed over HTTP"):
            StdioRules().check({name: changed}, known)
