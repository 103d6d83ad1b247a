"""What a start imports only once the platform is ready."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "src"


def test_up_imports_nothing_before_the_platform_is_ready_that_only_runs_need() -> None:
    unwanted = {
        "aiohttp",
        "alembic",
        "brain.explanation",
        "brain.planning",
        "httpx",
        "langchain_core",
        "langgraph",
        "mcp",
        "procrastinate",
        "starling.app.http.routes.runs",
        "starling.app.worker.worker",
        "numpy",
        "yaml",
    }
    program = f"import sys, starling.app.cli.up_services; print({unwanted} & sys.modules.keys())"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == "set()\n"


def test_only_the_listed_modules_import_inside_of_functions() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]["per-file-ignores"]
    allowed = {path.removeprefix("src/") for path, rules in listed.items() if "PLC0415" in rules}

    found = {
        file.relative_to(SOURCE).as_posix()
        for file in SOURCE.rglob("*.py")
        if _imports_in_functions(ast.parse(file.read_text()))
    }

    assert found == allowed


def test_no_module_imports_for_type_checkers_only() -> None:
    assert [file for file in SOURCE.rglob("*.py") if "TYPE_CHECKING" in file.read_text()] == []


def _imports_in_functions(module: ast.Module) -> bool:
    functions = [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return any(isinstance(node, ast.Import | ast.ImportFrom) for function in functions for node in ast.walk(function))
