"""What a start defers until the platform is ready."""

import ast
import subprocess
import sys
from pathlib import Path

ROUTES = "starling.app.http.routes.runs"
SOURCE = Path(__file__).parents[3] / "src"
LATE = {
    "aiohttp",
    "alembic",
    "json_repair",
    "jsonschema_rs",
    "langchain",
    "langchain_core",
    "langgraph",
    "langsmith",
    "mcp",
}


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
        ROUTES,
    }
    program = f"import sys, starling.app.cli.up_services; print({unwanted} & sys.modules.keys())"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == "set()\n"


def test_only_modules_named_deferred_import_inside_of_functions() -> None:
    others = [file for file in SOURCE.rglob("*.py") if file.name != "deferred.py"]

    found = {str(file.relative_to(SOURCE)) for file in others if _imports_in_functions(ast.parse(file.read_text()))}

    assert found == set()


def _imports_in_functions(module: ast.Module) -> bool:
    functions = [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return any(isinstance(node, ast.Import | ast.ImportFrom) for function in functions for node in ast.walk(function))
