"""`starling server import`: documents of the MCP registry, as a plan first."""

import json
from collections.abc import Generator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import CliWorkspace
from tests.support.gateway_harness import free_port, running_http
from tests.support.terminal import Terminal

BRAVE = Path(__file__).parents[1] / "data/registry_documents/brave-search.json"
OCI = {"name": "com.example/boxed", "packages": [{"registryType": "oci", "identifier": "ghcr.io/a/boxed:1"}]}


@pytest.fixture
def shop(tmp_path: Path) -> Generator[Mapping[str, Any]]:
    """The document of a server that runs."""
    with running_http(tmp_path / "record", free_port()) as config:
        remote = {"type": "streamable-http", "url": config.document["url"]}
        yield {"name": "com.example/shop", "version": "1.0.0", "remotes": [remote]}


@pytest.fixture
def at_home(workspace: CliWorkspace) -> CliWorkspace:
    """The workspace, where imported servers may be on 127.0.0.1."""
    return replace(workspace, variables={**workspace.variables, "STARLING_ALLOWED_ADDRESSES": "127.0.0.1"})


def stored(workspace: CliWorkspace) -> list[str]:
    return [server["name"] for server in workspace.json("server", "list")]


def test_plan_says_what_would_run_and_what_it_needs_and_adds_nothing(workspace: CliWorkspace) -> None:
    planned = workspace.starling("server", "import", BRAVE)

    assert planned.stdout == (
        "+ brave-search-mcp-server, from io.github.brave/brave-search-mcp-server 2.1.3\n"
        "  runs npx -y @brave/brave-search-mcp-server@2.1.3\n"
        "  with BRAVE_API_KEY=${BRAVE_API_KEY}\n"
        "  needs BRAVE_API_KEY, which is not set here: Your API key for the service\n"
    )
    assert "`--yes` adds these servers" in planned.stderr
    assert (planned.returncode, stored(workspace)) == (0, [])


def test_import_adds_what_it_planned_and_refuses_what_can_not_run(
    at_home: CliWorkspace, shop: Mapping[str, Any]
) -> None:
    documents = json.dumps({"servers": [{"server": shop, "_meta": {}}, {"server": OCI}]})

    planned = at_home.starling("server", "import", "-", "--json", stdin=documents)
    done = at_home.starling("server", "import", "-", "--yes", stdin=documents)
    again = at_home.starling("server", "import", "-", "--yes", stdin=json.dumps(shop))
    renamed = at_home.starling("server", "import", "-", "--yes", "--name", "mall", stdin=json.dumps(shop))

    [first, second] = json.loads(planned.stdout)["plan"]
    assert (first["name"], first["missing"], second["name"], second["config"]) == ("shop", [], "boxed", {})
    assert json.loads(planned.stdout)["added"] == []
    assert "shop is in epoch 1, with 0 tools, and" in done.stdout
    assert "com.example/boxed can't be added: packages of the type oci can't be run here" in done.stdout
    assert (planned.returncode, done.returncode, again.returncode, renamed.returncode) == (1, 1, 1, 0)
    assert "shop was not added: There is a server 'shop' already" in again.stdout
    assert {(server["name"], server["source"]) for server in at_home.json("server", "list")} == {
        ("shop", "api"),
        ("mall", "api"),
    }


def test_given_name_is_that_of_the_plan_and_of_its_variables(workspace: CliWorkspace) -> None:
    headers = [{"name": "KEY", "isRequired": True}]
    remote = {"type": "sse", "url": "https://shop.example/", "headers": headers}
    document = json.dumps({"name": "com.example/shop", "remotes": [remote]})

    planned = workspace.starling("server", "import", "-", "--name", "mall", stdin=document)
    wrong = workspace.starling("server", "import", "-", "--name", "a b", "--yes", stdin=document)

    assert "+ mall, from com.example/shop\n" in planned.stdout
    assert "  needs MALL_KEY, which is not set here\n" in planned.stdout
    assert "! com.example/shop can't be added: The server 'a b' isn't right" in wrong.stdout


@pytest.mark.parametrize(("answer", "names"), [("y", ["shop"]), ("n", [])])
def test_terminal_is_asked_before_servers_are_added(
    at_home: CliWorkspace, shop: Mapping[str, Any], answer: str, names: list[str]
) -> None:
    file = at_home.folder / "server.json"
    file.write_text(json.dumps(shop))

    with Terminal.running(at_home, "server", "import", file) as terminal:
        terminal.until("Add these servers? [y/N]")
        terminal.type(f"{answer}\n")
        terminal.end()

    assert stored(at_home) == names


def test_server_that_can_not_be_listed_is_named_and_not_stored(workspace: CliWorkspace) -> None:
    done = workspace.starling("server", "import", BRAVE, "--yes")

    assert "! brave-search-mcp-server was not added:" in done.stdout
    assert "BRAVE_API_KEY is not set" in done.stdout
    assert (done.returncode, stored(workspace)) == (1, [])


def test_file_that_is_no_document_is_refused(workspace: CliWorkspace) -> None:
    missing = workspace.starling("server", "import", "nowhere.json")
    other = workspace.starling("server", "import", "-", stdin='{"mcpServers": {}}')

    assert "nowhere.json can't be read" in missing.stderr
    assert "no document of an MCP registry" in other.stderr
    assert missing.returncode == other.returncode == 2
