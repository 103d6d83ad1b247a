"""The import rules hold, and each breaks when it is violated."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def harness(tmp_path: Path) -> Path:
    """A copy of the source tree and of the rules."""
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


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


def test_the_house_keeps_its_rules(harness: Path) -> None:
    outcome = lint(harness)

    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


@pytest.mark.parametrize(
    ("module", "statement", "rule"),
    [
        ("starling.core.extra", "import starling.infra", "Imports go in one direction"),
        ("starling.infra.extra", "import brain", "Imports go in one direction"),
        ("brain.extra", "import mcp_gateway", "Imports go in one direction"),
        ("mcp_gateway.extra", "import brain", "Imports go in one direction"),
        ("architect.extra", "import brain", "Imports go in one direction"),
        ("starling.core.extra", "import aiohttp", "starling.core imports no framework"),
        ("brain.extra", "import mcp", "Only mcp_gateway imports mcp"),
        ("mcp_gateway.extra", "import langgraph", "Only brain imports langgraph"),
        ("brain.agents.extra", "import crewai", "Only brain.agents.crewai_runtime imports crewai"),
        ("brain.extra", "import langchain", "Only infra.llm and infra.embeddings import langchain"),
        ("brain.extra", "import starling.app", "Imports go in one direction"),
        ("starling.app.extra", "import procrastinate", "Only infra.queue imports procrastinate"),
        ("brain.extra", "import opentelemetry.trace", "Only infra.tracing imports opentelemetry"),
        ("brain.extra", "import fastapi", "Only starling.app imports frameworks"),
        ("starling.infra.extra", "import typer", "Only starling.app imports frameworks"),
        ("brain.extra", "import sqlalchemy", "Only infra.postgres and repositories import sqlalchemy"),
        ("starling.app.http.extra", "import starling.app.cli", "In the application, imports go in one direction"),
        ("starling.app.runs.extra", "import starling.app.http", "In the application, imports go in one direction"),
        ("starling.app.telemetry.extra", "import starling.app.runs", "In the application, imports go in one direction"),
        (
            "starling.app.registry.extra",
            "import starling.app.container",
            "In the application, imports go in one direction",
        ),
        ("starling.app.cli.key", "import starling.app.http", "Only the commands that serve, and the fallback"),
        (
            "starling.app.doctor.disk_space",
            "import starling.app.doctor.database",
            "Checks of the doctor don't import each other",
        ),
        ("brain.extra", "import psycopg", "Only infra.postgres, infra.queue and the checkpointer import psycopg"),
        (
            "starling.app.extra",
            "import psycopg",
            "Only infra.postgres, infra.queue and the checkpointer import psycopg",
        ),
        ("brain.planning.extra", "import brain.journaled_model", "Planning imports no database, graph or node"),
        ("brain.planning.extra", "import brain.nodes.qa", "Planning imports no database, graph or node"),
        ("brain.state", "import brain.graph", "Packages and modules of brain import each other without cycles"),
    ],
)
def test_a_forbidden_import_breaks_its_rule(harness: Path, module: str, statement: str, rule: str) -> None:
    write(harness, module, statement)

    outcome = lint(harness)

    assert outcome.returncode == 1, outcome.stdout + outcome.stderr
    assert any(line.startswith(rule) and " BROKEN" in line for line in outcome.stdout.splitlines())


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
    return name.endswith(("Repository", "Reader")) or name in {"open_engine", "open_queue", "open_broadcast"}


@pytest.mark.parametrize("package", ["brain.nodes", "starling.app.http.routes"])
def test_siblings_that_import_each_other_break_their_rule(harness: Path, package: str) -> None:
    write(harness, f"{package}.one", "")
    write(harness, f"{package}.two", f"import {package}.one")

    outcome = lint(harness)

    assert outcome.returncode == 1, outcome.stdout + outcome.stderr
    assert "don't import each other BROKEN" in outcome.stdout
