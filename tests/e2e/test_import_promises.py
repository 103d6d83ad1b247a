"""`starling server import`: a plan first, pinned versions, and nothing that a document's author could sneak in."""

import copy
import json
import os
import sys
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any, Final

import pytest

from tests.support.command_line import CliWorkspace, new_workspace
from tests.support.gateway_harness import SERVERS
from tests.support.remote_servers import RemoteServer

DOCUMENTS: Final = Path(__file__).parents[1] / "data/registry_documents"
ROWS: Final = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data/security/ssrf_urls.jsonl").read_text("utf-8").splitlines()
]
NPM: Final[dict[str, Any]] = {
    "$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
    "name": "io.example/notes",
    "description": "Keeps notes.",
    "version": "1.2.0",
    "packages": [
        {"registryType": "npm", "identifier": "notes-mcp", "version": "1.2.0", "transport": {"type": "stdio"}}
    ],
}
PYPI: Final[dict[str, Any]] = NPM | {
    "name": "io.example/papers",
    "packages": [
        {"registryType": "pypi", "identifier": "papers-mcp", "version": "0.4.1", "transport": {"type": "stdio"}}
    ],
}


@dataclass(frozen=True)
class Desk:
    """A workspace in which `npx` and `uvx` leave a line in a file and run a real MCP server."""

    workspace: CliWorkspace
    record: Path

    def imported(self, document: Any, *options: str) -> CompletedProcess[str]:
        file = self.workspace.folder / "document.json"
        file.write_text(document if isinstance(document, str) else json.dumps(document), "utf-8")
        return self.workspace.starling("server", "import", file, *options)

    def started(self) -> list[str]:
        """Return the command lines of runners so far."""
        return self.record.read_text().splitlines() if self.record.exists() else []

    def servers(self) -> dict[str, dict[str, Any]]:
        return {server["name"]: server for server in self.workspace.json("server", "list")}


@pytest.fixture
def desk(database_url: str, open_folder: Path) -> Generator[Desk]:
    record = open_folder / "runners"
    for runner in ("npx", "uvx"):
        file = open_folder / runner
        server = f"exec {sys.executable} {SERVERS / 'recording.py'} {open_folder / 'calls'}"
        file.write_text(f'#!/bin/sh\necho "{runner} $*" >> {record}\n{server}\n')
        file.chmod(0o755)
    variables = {"DATABASE_URL": database_url, "PATH": f"{open_folder}:{os.environ['PATH']}"}
    with new_workspace(STARLING_ALLOWED_ADDRESSES="127.0.0.2", BRAVE_API_KEY="key-of-brave", **variables) as workspace:
        yield Desk(workspace, record)


def with_package(**changes: Any) -> dict[str, Any]:
    document = copy.deepcopy(NPM)
    document["packages"][0] |= changes
    return document


def remote_document(url: str, **more: Any) -> dict[str, Any]:
    remote = {"type": "streamable-http", "url": url, **more}
    return {key: value for key, value in NPM.items() if key != "packages"} | {"remotes": [remote]}


def test_yes_adds_servers_in_the_versions_of_the_plan(desk: Desk) -> None:
    done = desk.imported([NPM, PYPI], "--yes", "--json")

    assert done.returncode == 0, done.stderr
    json.loads(done.stdout)
    assert {line.partition(" ")[0] for line in desk.started()} == {"npx", "uvx"}
    assert [line for line in desk.started() if "notes-mcp@1.2.0" not in line and "papers-mcp==0.4.1" not in line] == []
    assert {name: (server["source"], server["state"]) for name, server in desk.servers().items()} == {
        "notes": ("host", "ready"),
        "papers": ("host", "ready"),
    }
    assert "1.2.0" in json.dumps(desk.workspace.json("server", "show", "notes")["config"])


def test_variables_that_are_needed_are_named_and_never_shown(desk: Desk) -> None:
    plan = desk.workspace.starling("server", "import", DOCUMENTS / "brave-search.json")
    done = desk.workspace.starling("server", "import", DOCUMENTS / "brave-search.json", "--yes")
    shown = desk.workspace.starling("server", "show", "brave-search-mcp-server", "--json")

    assert "BRAVE_API_KEY" in plan.stdout
    assert done.returncode == 0, done.stderr
    assert "${BRAVE_API_KEY}" in shown.stdout
    assert "key-of-brave" not in f"{plan}{done}{shown}"


def test_file_that_cannot_be_read_is_named(desk: Desk) -> None:
    binary = desk.workspace.folder / "binary"
    binary.write_bytes(b"\xff\xfe\x00\x01" * 100)

    for path in ("nowhere.json", str(desk.workspace.folder), str(binary)):
        done = desk.workspace.starling("server", "import", path, "--yes")
        assert done.returncode in (1, 2)
        assert Path(path).name in done.stderr
        assert "Traceback" not in done.stderr


def test_runner_is_never_what_a_document_names(desk: Desk) -> None:
    for hint in ("bash", "/tmp/npx", "npx -c 'touch x'"):
        assert "  runs npx -y notes-mcp@1.2.0\n" in desk.imported(with_package(runtimeHint=hint)).stdout


@pytest.mark.parametrize("reference", ["${DATABASE_URL}", "a ${HOME} b", "${BRAVE_API_KEY}", "${X:-${DATABASE_URL}}"])
def test_reference_to_a_variable_that_the_plan_does_not_list_is_refused(desk: Desk, reference: str) -> None:
    variable = {"name": "NOTES_FOLDER", "value": reference}
    argument = {"type": "positional", "value": reference}
    header = {"name": "X-Folder", "value": reference}
    for document in (
        with_package(environmentVariables=[variable]),
        with_package(environmentVariables=[{"name": "NOTES_FOLDER", "default": reference}]),
        with_package(packageArguments=[argument]),
        with_package(packageArguments=[{"type": "named", "name": "--folder", "value": reference}]),
        with_package(packageArguments=[{"type": "named", "name": reference, "value": "x"}]),
        remote_document("https://notes.example/mcp", headers=[header]),
        remote_document(f"https://notes.example/{reference}"),
        remote_document("https://{host}/mcp", variables={"host": {"default": reference}}),
    ):
        done = desk.imported(document, "--yes")
        assert done.returncode == 1, done.stdout
        assert "postgres" not in done.stdout + done.stderr

    assert (desk.started(), desk.servers()) == ([], {})


def test_plan_shows_no_control_characters_and_no_lines_of_a_document(desk: Desk) -> None:
    evil = "\x1b[2J\r\x1b]0;owned\x07\u202e\n+ harmless, from io.example/harmless 1.0.0"
    documents = [NPM | {"description": evil}, NPM | {"name": f"io.example/notes{evil}"}, NPM | {"version": f"1{evil}"}]
    documents += [NPM | {"title": evil}, with_package(packageArguments=[{"type": "positional", "value": evil}])]
    documents += [
        with_package(identifier=f"notes{evil}"),
        with_package(**{evil: "x"}),
        remote_document(f"https://{evil}/mcp"),
    ]
    documents += [with_package(environmentVariables=[{"name": "A", "description": evil, "isRequired": True}])]
    documents += [
        remote_document("https://a.example/mcp", headers=[{"name": "A", "description": evil, "isRequired": True}])
    ]

    for document in documents:
        done = desk.imported(document)
        said = done.stdout + done.stderr
        assert len([line for line in said.splitlines() if line[:1] in ("+", "!")]) == 1
        assert not {"\x1b", "\x07", "\r", "\u202e"} & set(said), repr(said)
        assert "Traceback" not in said


@pytest.mark.parametrize("leaf", ["", "x"])
def test_variables_of_variables_do_not_grow_without_a_limit(desk: Desk, leaf: str) -> None:
    given: dict[str, Any] = {"value": leaf}
    for _ in range(12):
        given = {"value": "{a}" * 12, "variables": {"a": given}}
    deep: dict[str, Any] = {"value": leaf}
    for _ in range(300):
        deep = {"value": "{a}", "variables": {"a": deep}}

    for value in (given, deep):
        done = desk.imported(with_package(packageArguments=[{"type": "positional", **value}]))
        assert done.returncode in (0, 1)
        assert "Traceback" not in done.stderr
        assert len(done.stdout) < 20_000


def test_one_wrong_document_of_a_list_is_named_with_its_place(desk: Desk) -> None:
    for place, documents in enumerate(([with_package(version="latest"), PYPI], [PYPI, with_package(version="latest")])):
        done = desk.imported(documents, "--yes")
        said = done.stdout + done.stderr
        assert (done.returncode, "io.example/notes" in said or f"[{place}]" in said, "version" in said) == (
            1,
            True,
            True,
        )
        assert "notes" not in desk.servers()


def test_no_address_of_the_inside_is_imported_though_the_admin_of_the_machine_asks(desk: Desk) -> None:
    with RemoteServer().serving() as canary, RemoteServer("127.0.0.2", canary.port).serving() as remote:
        for status in (301, 303, 308):
            remote.redirect(f"/{status}", status, canary.origin)
        remote.redirect("/loop", 307, f"{remote.origin}/loop")
        missed: list[tuple[str, str]] = []
        for row in {
            row["cat"]: row for row in ROWS
        }.values():  # all rows: tests/integration/http/test_address_promises.py
            url = row["url"].replace(":8999", f":{canary.port}")
            for name in ("REDIRECTOR", "BOMB"):
                url = url.replace(f"://{name}", f"://127.0.0.2:{canary.port}")
            if row["cat"] == "gzip-bomb":
                continue  # what a server sends is limited for all servers
            done = desk.imported(remote_document(url, headers=[{"name": "X-Said", "value": "hello"}]), "--yes")
            if done.returncode != 1 or "Traceback" in done.stderr:
                missed.append((url, done.stdout + done.stderr))

        assert missed == []
        assert canary.requests == []
    assert desk.servers() == {}


def test_remote_is_chosen_by_an_option_and_package_otherwise(desk: Desk) -> None:
    both = NPM | remote_document("https://notes.example/mcp") | {"packages": NPM["packages"]}

    package, remote = desk.imported(both), desk.imported(both, "--remote")

    assert ("npx" in package.stdout, "notes.example" in package.stdout) == (True, False)
    assert ("npx" in remote.stdout, "notes.example" in remote.stdout) == (False, True)


def test_running_platform_adds_what_was_imported(desk: Desk) -> None:
    with desk.workspace.running("up", "--port", "0"):
        plan = desk.imported(NPM)
        done = desk.imported(NPM, "--yes")

        assert (plan.returncode, done.returncode) == (0, 0), done.stderr
        assert desk.servers()["notes"]["source"] == "host"
    assert [line for line in desk.started() if line != "npx -y notes-mcp@1.2.0"] == []


@pytest.mark.parametrize(("scope", "added"), [("run", set[str]()), ("teams", set[str]()), ("admin", {"papers"})])
def test_import_from_another_machine_is_limited_as_its_key_is(desk: Desk, scope: str, added: set[str]) -> None:
    with RemoteServer("127.0.0.2").serving() as remote, desk.workspace.running("up", "--port", "0") as service:
        key = desk.workspace.json("key", "create", "far", "--scope", scope)["key"]
        documents = [NPM, remote_document(remote.url) | {"name": "io.example/papers"}]
        with new_workspace(STARLING_URL=service.url, STARLING_API_KEY=key) as far:
            done = Desk(far, desk.record).imported(documents, "--yes")

        assert (done.returncode, "Traceback" in done.stderr) == (1, False)
        assert desk.servers().keys() == added
    assert desk.started() == []
