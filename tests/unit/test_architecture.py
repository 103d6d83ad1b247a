"""The import rules hold, and each breaks when it is violated."""

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_FORBIDDEN = [  # importing module, imported module, beginning of the rule
    ("starling.core.extra", "starling.infra", "Imports go in one direction"),
    ("starling.infra.extra", "brain", "Imports go in one direction"),
    ("starling.client.extra", "starling.infra", "Imports go in one direction"),
    ("brain.extra", "mcp_gateway", "Imports go in one direction"),
    ("architect.extra", "brain", "Imports go in one direction"),
    ("starling.core.extra", "aiohttp", "starling.core imports no framework"),
    ("brain.extra", "mcp", "Only mcp_gateway imports fastmcp and mcp"),
    ("mcp_gateway.extra", "langgraph", "Only brain imports langgraph"),
    ("brain.agents.extra", "crewai", "Only brain.agents.runtimes.crew.runtime imports crewai"),
    ("brain.extra", "langchain", "Only infra.llm and infra.embeddings import langchain"),
    ("brain.extra", "starling.app", "Imports go in one direction"),
    ("starling.app.extra", "procrastinate", "Only infra.queue imports procrastinate"),
    ("brain.extra", "opentelemetry", "Only infra.tracing imports opentelemetry"),
    ("brain.extra", "fastapi", "Only starling.app imports frameworks"),
    ("starling.infra.extra", "typer", "Only starling.app imports frameworks"),
    ("brain.extra", "sqlalchemy", "Only infra.postgres and repositories import sqlalchemy"),
    ("starling.app.http.extra", "starling.app.cli", "In the application, imports go in one direction"),
    ("starling.app.runs.extra", "starling.app.http", "In the application, imports go in one direction"),
    ("starling.app.telemetry.extra", "starling.app.runs", "In the application, imports go in one direction"),
    ("starling.app.http.extra", "starling.app.container", "In the application, imports go in one direction"),
    (
        "starling.app.registry.extra",
        "starling.app.container",
        "In the application, imports go in one direction",
    ),
    ("starling.app.cli.key", "starling.app.http", "Only the commands that serve, and the fallback"),
    (
        "starling.app.doctor.machine",
        "starling.app.doctor.database",
        "Checks of the doctor don't import each other",
    ),
    ("brain.extra", "psycopg", "Only infra.postgres, infra.queue and the checkpointer import psycopg"),
    ("brain.planning.extra", "brain.run.journaled_model", "Planning imports no database, graph or node"),
    ("brain.planning.extra", "brain.nodes.qa", "Planning imports no database, graph or node"),
    ("brain.nodes.two", "brain.nodes.one", "Graph nodes don't import each other"),
    ("starling.app.http.routes.two", "starling.app.http.routes.one", "Routes don't import each other"),
]


@pytest.fixture
def harness(tmp_path: Path) -> Path:
    """A copy of the source tree and of the rules."""
    return copied(tmp_path)


def copied(folder: Path) -> Path:
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def lint(harness: Path) -> subprocess.CompletedProcess[str]:
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache", "--no-logo"]
    environment = os.environ | {"PYTHONPATH": str(harness / "src"), "COLUMNS": "200"}
    return subprocess.run(command, cwd=harness, env=environment, capture_output=True, text=True, check=False)


def write(harness: Path, module: str, text: str) -> None:
    file = harness / "src" / f"{module.replace('.', '/')}.py"
    for folder in reversed(file.relative_to(harness / "src").parents[:-1]):
        (harness / "src" / folder).mkdir(exist_ok=True)
        (harness / "src" / folder / "__init__.py").touch()
    file.write_text(f'"""Violates a rule."""\n\n{text}\n')


def test_source_tree_keeps_all_import_rules(harness: Path) -> None:
    outcome = lint(harness)

    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The rules that are broken by all forbidden imports at once, each with the imports that break it."""
    harness = copied(tmp_path_factory.mktemp("house"))
    imports: dict[str, list[str]] = {"brain.nodes.one": [], "starling.app.http.routes.one": []}
    for module, imported, _ in _FORBIDDEN:
        imports.setdefault(module, []).append(f"import {imported}")
    for module, statements in imports.items():
        write(harness, module, "\n".join(statements))

    outcome = lint(harness)

    assert outcome.returncode == 1, outcome.stdout + outcome.stderr
    parts = re.split(r"^(.+)\n-+\n", outcome.stdout, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


@pytest.mark.parametrize(("module", "imported", "rule"), _FORBIDDEN)
def test_forbidden_import_breaks_its_rule(broken: Mapping[str, str], module: str, imported: str, rule: str) -> None:
    breaking = next(text for name, text in broken.items() if name.startswith(rule))

    assert re.search(rf"- +{module} -> {imported} \(l", breaking), breaking


def test_cycle_of_modules_breaks_its_rule(harness: Path) -> None:
    write(harness, "brain.state", "import brain.execution.graph")

    outcome = lint(harness)

    assert "Packages and modules import each other without cycles BROKEN" in outcome.stdout


def test_engines_and_repositories_are_built_in_the_container_only() -> None:
    app = ROOT / "src/starling/app"
    elsewhere = [file for file in app.rglob("*.py") if file.parent != app / "container"]

    built = {
        f"{file.relative_to(app)}: {name}"
        for file in elsewhere
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and _is_built_once(name := node.func.id)
    }

    assert built == set()


def _is_built_once(name: str) -> bool:
    if name == "OutputReader":  # of a model, not of the database
        return False
    return name.endswith(("Repository", "Reader")) or name in {"open_engine", "RunQueue"}
