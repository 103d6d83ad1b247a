"""A platform's `mcp.json` for eight servers, seven of which nobody here wrote, and the data that they serve."""

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.gateway_harness import TOOLS

_NODE = TOOLS.parent / "bin/node"
_GRAPH = (
    {"type": "entity", "name": "Alice", "entityType": "person", "observations": ["likes tea"]},
    {"type": "entity", "name": "Acme", "entityType": "company", "observations": ["sells tea"]},
    {"type": "relation", "from": "Alice", "to": "Acme", "relationType": "works at"},
)
_FILES = {
    "notes.txt": "alpha\nbravo\ncharlie\ndelta\necho",
    "orders.csv": "item,amount\ncoffee,12\ntea,7\n",
    "old.txt": "An old text.\n",
    "drafts/plan.md": "# Plan\nThree milestones.\n",
}
_TABLES = """
    CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT NOT NULL, amount INTEGER NOT NULL);
    INSERT INTO orders (item, amount) VALUES ('coffee', 12), ('tea', 7);
    CREATE TABLE customers (id INTEGER PRIMARY KEY, city TEXT NOT NULL);
"""


@dataclass(frozen=True, slots=True)
class ReferenceServers:
    """The data of the servers in a folder: `files`, a git repository `repo`, a knowledge graph and a database."""

    folder: Path

    @property
    def places(self) -> Mapping[str, str]:
        """What `{files}` and `{repo}` in a request stand for."""
        return {"files": str(self.folder / "files"), "repo": str(self.folder / "repo")}

    def create(self) -> None:
        """Write the data."""
        for name, text in _FILES.items():
            file = self.folder / "files" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        (self.folder / "graph.jsonl").write_text("\n".join(map(json.dumps, _GRAPH)))
        with sqlite3.connect(self.folder / "shop.db") as database:
            database.executescript(_TABLES)
        database.close()
        self._create_repository(self.folder / "repo")

    def configuration(self) -> Mapping[str, Any]:
        """Return the servers as `mcp.json` has them; effects are set where every tool only reads.

        The test fails if a server is not installed.
        """
        reads = {"effect": "read"}
        return {
            "system_health": _server(sys.executable, "-m", "mcp_gateway.servers.system_health", **reads),
            "time": _foreign("time", **reads),
            "git": _foreign("git", "--repository", self.places["repo"]),
            "sqlite": _foreign("sqlite", "--db-path", str(self.folder / "shop.db")),
            "everything": _npm("everything"),
            "filesystem": _npm("filesystem", self.places["files"]),
            "memory": _npm("memory") | {"env": {"MEMORY_FILE_PATH": str(self.folder / "graph.jsonl")}},
            "sequential_thinking": _npm("sequential-thinking", **reads),
        }

    def _create_repository(self, repo: Path) -> None:
        repo.mkdir()
        _git(repo, "init", "-q", "-b", "main")
        for name, text, message in (
            ("README.md", "A parser.\n", "Add the readme"),
            ("parser.py", "x = 1\n", "Add the parser"),
            ("parser.py", "x = 2\n", "Fix the parser"),
        ):
            (repo / name).write_text(text)
            _git(repo, "add", name)
            _git(repo, "commit", "-q", "-m", message)
        _git(repo, "branch", "experiment")
        (repo / "staged.txt").write_text("To be committed.\n")
        _git(repo, "add", "staged.txt")
        (repo / "parser.py").write_text("x = 3\n")


def _git(repo: Path, *arguments: str) -> None:
    name = {"GIT_AUTHOR_NAME": "Ann Lee", "GIT_AUTHOR_EMAIL": "ann@example.org"}
    committer = {"GIT_COMMITTER_NAME": "Ann Lee", "GIT_COMMITTER_EMAIL": "ann@example.org"}
    subprocess.run(["git", *arguments], cwd=repo, env={**os.environ, **name, **committer}, check=True)


def _foreign(name: str, *arguments: str, **options: str) -> dict[str, Any]:
    command = TOOLS / name / "bin" / f"mcp-server-{name}"
    if not command.exists():
        pytest.fail(f"no {command}: `make test` installs it, and scripts/server-env {name}")
    return _server(str(command), *arguments, **options)


def _server(command: str, *arguments: str, **options: str) -> dict[str, Any]:
    return {"command": command, "args": list(arguments), "x-starling": options}


def _npm(name: str, *arguments: str, **options: str) -> dict[str, Any]:
    script = TOOLS / f"node/node_modules/.bin/mcp-server-{name}"
    if not script.exists():
        pytest.fail(f"no {script}: `make test` installs it, and scripts/node-servers")
    return _server(str(_NODE), str(script), *arguments, **options)
