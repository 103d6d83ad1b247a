"""The size of what an installation without extras consists of, next to one with all of them."""

import asyncio
import tomllib
from collections.abc import Iterable
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from bench.figures import Figure
from bench.harness import BenchSetup
from scripts.runtime_lock_fits import needed

NAMES = ("package.base_mb",)
_ROOT = Path(__file__).parents[1]
_OWN = ("src", "migrations")  # here installed editable


async def measure(setup: BenchSetup) -> list[Figure]:
    """Measure the files of all packages as installed in .venv, without bytecode; a MB is 10⁶ bytes."""
    setup.say("The packages of an installation")
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    base: list[str] = project["dependencies"]
    extras = sum(project["optional-dependencies"].values(), base)
    value, reference = await asyncio.gather(*(asyncio.to_thread(_megabytes, asked) for asked in (base, extras)))
    return [Figure("package.base_mb", value, "MB", reference, "with all extras")]


def _megabytes(requirements: Iterable[str]) -> float:
    own = (file for folder in _OWN for file in (_ROOT / folder).rglob("*"))
    packages: Any = (distribution(name).files or () for name in needed(requirements))
    others = (Path(file.locate()) for files in packages for file in files)
    return sum(file.stat().st_size for each in (own, others) for file in each if _counts(file)) / 1e6


def _counts(file: Path) -> bool:
    return file.suffix != ".pyc" and file.is_file()
