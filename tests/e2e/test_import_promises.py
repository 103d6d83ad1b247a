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
from tests.support.terminal import Terminal

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


def test_plan_changes_and_starts_nothing(desk: Desk) -> None:
    plans = [desk.imported(NPM), desk.imported(PYPI), desk.imported([NPM, PYPI]), desk.imported(NPM, "--json")]

    assert [plan.returncode for plan in plans] == [0, 0, 0, 0]
    assert "runs npx -y notes-mcp@1.2.0" in plans[0].stdout
    assert "papers-mcp" in plans[1].stdout
    assert "0.4.1" in plans[1].stdout
    assert "`--yes`" in plans[2].stdout + plans[2].stderr
    assert "notes-mcp@1.2.0" in json.dumps(json.loads(plans[3].stdout))
    assert (desk.started(), desk.servers()) == ([], {})


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


@pytest.mark.parametrize("answer", ["n", ""])
def test_terminal_is_asked_after_the_plan_was_shown(desk: Desk, answer: str) -> None:
    file = desk.workspace.folder / "server.json"
    file.write_text(json.dumps(NPM))

    with Terminal.running(desk.workspace, "server", "import", file) as terminal:
        shown = terminal.until("[y/N]")
        before = desk.started()
        terminal.type(f"{answer}\n")
        terminal.end()

    assert ("npx -y notes-mcp@1.2.0" in shown, before) == (True, [])
    assert (desk.started(), desk.servers()) == ([], {})


def test_document_comes_by_standard_input_too(desk: Desk) -> None:
    plan = desk.workspace.starling("server", "import", "-", stdin=json.dumps(NPM))
    done = desk.workspace.starling("server", "import", "-", "--yes", "--name", "memo", stdin=json.dumps(NPM))
    empty = desk.workspace.starling("server", "import", "-")

    assert (plan.returncode, "npx -y notes-mcp@1.2.0" in plan.stdout) == (0, True)
    assert (done.returncode, desk.servers().keys()) == (0, {"memo"})
    assert (empty.returncode != 0, "Traceback" in empty.stderr) == (True, False)


WRAPPED: Final[dict[str, Any]] = {
    "answer": {"server": NPM, "_meta": {"io.modelcontextprotocol.registry/official": {}}},
    "answer with several": {"servers": [{"server": NPM, "_meta": {}}], "metadata": {"count": 1}},
    "list": [NPM],
    "list of answers": [{"server": NPM}],
    "bare list in an answer": {"servers": [NPM], "metadata": {}},
}


@pytest.mark.parametrize("how", WRAPPED)
def test_answer_of_a_registry_is_read_like_its_document(desk: Desk, how: str) -> None:
    plan = desk.imported(WRAPPED[how])

    assert (plan.returncode, plan.stdout) == (0, desk.imported(NPM).stdout), plan.stderr


@pytest.mark.parametrize(
    ("file", "runs"),
    [
        ("brave-search.json", "@brave/brave-search-mcp-server@2.1.3"),
        ("exa.json", "exa-mcp-server@3.2.0"),
        ("filesystem-2025-07-09.json", "@modelcontextprotocol/server-filesystem@1.0.2"),
        ("with-remote.json", "https://api.example.com/mcp"),
    ],
)
def test_documents_of_all_versions_say_what_they_run_or_connect_to(desk: Desk, file: str, runs: str) -> None:
    plan = desk.workspace.starling("server", "import", DOCUMENTS / file)

    assert plan.returncode == 0, plan.stderr
    assert runs in plan.stdout
    assert desk.servers() == {}


def test_variables_that_are_needed_are_named_and_never_shown(desk: Desk) -> None:
    plan = desk.workspace.starling("server", "import", DOCUMENTS / "brave-search.json")
    done = desk.workspace.starling("server", "import", DOCUMENTS / "brave-search.json", "--yes")
    shown = desk.workspace.starling("server", "show", "brave-search-mcp-server", "--json")

    assert "BRAVE_API_KEY" in plan.stdout
    assert done.returncode == 0, done.stderr
    assert "${BRAVE_API_KEY}" in shown.stdout
    assert "key-of-brave" not in f"{plan}{done}{shown}"


GARBAGE: Final = (
    *("", " ", "no json", "{", "[", "null", "true", "3", '"text"', "{}", "[[]]", "[null]", "[{}]", '{"servers": 3}'),
    *('{"servers": [3]}', '{"server": []}', '{"name": "a", "name": "b"}', "[" * 5_000, "1" * 5_000, "NaN", "\ufeff"),
    *("\x00", '{"mcpServers": {"a": {"command": "touch"}}}', '{"name": "\\ud800"}', "<html>404</html>"),
)


@pytest.mark.parametrize("garbage", GARBAGE, ids=range(len(GARBAGE)))
def test_garbage_gives_one_clear_error(desk: Desk, garbage: str) -> None:
    done = desk.imported(garbage, "--yes")

    said = done.stdout + done.stderr
    assert done.returncode in (1, 2), said
    assert "Traceback" not in said
    assert 0 < len(said) < 2_000
    assert desk.servers() == {}


def test_file_that_cannot_be_read_is_named(desk: Desk) -> None:
    binary = desk.workspace.folder / "binary"
    binary.write_bytes(b"\xff\xfe\x00\x01" * 100)

    for path in ("nowhere.json", str(desk.workspace.folder), str(binary)):
        done = desk.workspace.starling("server", "import", path, "--yes")
        assert done.returncode in (1, 2)
        assert Path(path).name in done.stderr
        assert "Traceback" not in done.stderr


BAD_PACKAGES: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "no version": ({"version": None}, "version"),
    "latest": ({"version": "latest"}, "version"),
    "empty version": ({"version": ""}, "version"),
    "caret": ({"version": "^1.2.0"}, "version"),
    "tilde": ({"version": "~1.2"}, "version"),
    "range": ({"version": ">=1.2.0"}, "version"),
    "star": ({"version": "1.x"}, "version"),
    "two": ({"version": "1.2.0 || 9.9.9"}, "version"),
    "tag": ({"version": "next"}, "version"),
    "option in version": ({"version": "1.2.0 --registry=http://evil.example"}, "version"),
    "address as version": ({"version": "http://evil.example/x.tgz"}, "version"),
    "alias as version": ({"version": "npm:evil@1.0.0"}, "version"),
    "newline in version": ({"version": "1.2.0\n"}, "version"),
    "number as version": ({"version": 1}, "version"),
    "option as identifier": ({"identifier": "--package=evil"}, "of npm"),
    "short option": ({"identifier": "-c"}, "of npm"),
    "address as identifier": ({"identifier": "https://evil.example/x.tgz"}, "of npm"),
    "git": ({"identifier": "git+ssh://evil.example/x"}, "of npm"),
    "repository": ({"identifier": "evil/x"}, "of npm"),
    "folder": ({"identifier": "../evil"}, "of npm"),
    "absolute folder": ({"identifier": "/tmp/evil"}, "of npm"),
    "file": ({"identifier": "file:evil"}, "of npm"),
    "version in identifier": ({"identifier": "notes-mcp@9.9.9"}, "of npm"),
    "shell": ({"identifier": "notes-mcp; touch x"}, "of npm"),
    "variable": ({"identifier": "${HOME}"}, "of npm"),
    "line": ({"identifier": "notes-mcp\nevil"}, "of npm"),
    "no identifier": ({"identifier": None}, "of npm"),
    "oci": ({"registryType": "oci"}, "oci"),
    "mcpb": ({"registryType": "mcpb"}, "mcpb"),
    "nuget": ({"registryType": "nuget"}, "nuget"),
    "unknown type": ({"registryType": "shell"}, "shell"),
    "other registry": ({"registryBaseUrl": "https://evil.example"}, "https://evil.example"),
    "registry that looks right": ({"registryBaseUrl": "https://registry.npmjs.org.evil.example"}, "evil.example"),
    "runner's option": (
        {"runtimeArguments": [{"type": "named", "name": "--registry", "value": "http://evil.example"}]},
        "--registry",
    ),
    "runner's call": ({"runtimeArguments": [{"type": "positional", "value": "-c touch x"}]}, "-c touch x"),
}
BAD_VARIABLES: Final = (
    *(
        "NPM_CONFIG_REGISTRY",
        "npm_config_registry",
        "Npm_Config_Registry",
        "npm_config_ignore_scripts",
        "NPM_CONFIG_USERCONFIG",
    ),
    *("NODE_OPTIONS", "NODE_PATH", "LD_PRELOAD", "LD_LIBRARY_PATH", "DYLD_INSERT_LIBRARIES", "PATH", "HOME"),
    *("UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_EXTRA_INDEX_URL", "PIP_INDEX_URL", "PYTHONPATH", "PYTHONSTARTUP"),
    *(
        "HTTP_PROXY",
        "https_proxy",
        "SSL_CERT_FILE",
        "NODE_EXTRA_CA_CERTS",
        "BASH_ENV",
        "XDG_CONFIG_HOME",
        "PREFIX",
        "proxy",
    ),
    *("A B", "A=B", ""),
)


def test_package_that_is_not_what_it_seems_is_refused_with_its_place(desk: Desk) -> None:
    missed: dict[str, str] = {}

    for name, (changes, place) in BAD_PACKAGES.items():
        changed = with_package(**changes)
        changed["packages"][0] = {key: value for key, value in changed["packages"][0].items() if value is not None}
        done = desk.imported(changed, "--yes")
        said = done.stdout + done.stderr
        if done.returncode != 1 or place not in said or "Traceback" in said or "io.example/notes 1.2.0" not in said:
            missed[name] = f"{done.returncode} {said}"

    assert missed == {}
    assert (desk.started(), desk.servers()) == ([], {})


def test_variable_that_leads_elsewhere_is_refused_by_its_name(desk: Desk) -> None:
    missed: dict[str, str] = {}

    for name in BAD_VARIABLES:
        for more in ({"value": "http://evil.example"}, {"isRequired": True}, {"default": "http://evil.example"}):
            done = desk.imported(with_package(environmentVariables=[{"name": name, **more}]), "--yes")
            if done.returncode != 1 or name not in done.stdout + done.stderr:
                missed[f"{name} {more}"] = f"{done.returncode} {done.stdout}{done.stderr}"

    assert missed == {}
    assert (desk.started(), desk.servers()) == ([], {})


@pytest.mark.parametrize("name", ["DATABASE_URL", "OPENAI_API_KEY", "STARLING_API_KEY", "openai_api_key"])
def test_secret_of_the_platform_is_given_to_no_package_that_asks_for_it(desk: Desk, name: str) -> None:
    done = desk.imported(with_package(environmentVariables=[{"name": name, "isRequired": True}]), "--yes")

    assert (done.returncode, name in done.stdout) == (1, True)
    assert (desk.started(), desk.servers()) == ([], {})


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


def test_name_that_is_taken_replaces_no_server(desk: Desk) -> None:
    assert desk.imported(NPM, "--yes").returncode == 0

    again = desk.imported(with_package(identifier="evil-mcp"), "--yes")
    twice = desk.imported([PYPI, PYPI | {"packages": NPM["packages"]}], "--yes")

    assert (again.returncode, "notes" in again.stdout + again.stderr) == (1, True)
    assert twice.returncode == 1
    assert "notes-mcp@1.2.0" in json.dumps(desk.workspace.json("server", "show", "notes")["config"])
    assert [line for line in desk.started() if "evil" in line] == []


def test_no_address_of_the_inside_is_imported_though_the_admin_of_the_machine_asks(desk: Desk) -> None:
    with RemoteServer().serving() as canary, RemoteServer("127.0.0.2", canary.port).serving() as remote:
        for status in (301, 303, 308):
            remote.redirect(f"/{status}", status, canary.origin)
        remote.redirect("/loop", 307, f"{remote.origin}/loop")
        missed: list[tuple[str, str]] = []
        for row in ROWS:
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


def test_address_that_is_allowed_is_imported_and_its_tools_wait(desk: Desk) -> None:
    with RemoteServer("127.0.0.2").serving() as remote:
        plan = desk.imported(remote_document(remote.url))
        asked = list(remote.requests)
        done = desk.imported(remote_document(remote.url), "--yes")

    server = desk.servers()["notes"]
    assert (plan.returncode, remote.url in plan.stdout, asked) == (0, True, [])
    assert done.returncode == 0, done.stderr
    assert (server["source"], server["tools"], server["quarantined"].keys()) == ("api", 0, {"find", "order"})


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
