"""Whole runs on a real database, real servers and a scripted model."""

from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.support.effect_recorder import EffectRecorder
from tests.support.model_server import ModelServer
from tests.support.platform import Platform, ScriptedModel, Workbench, open_platform, running_workbench

type Open = Callable[..., AbstractAsyncContextManager[Platform]]


@pytest.fixture(scope="session")
def workbench_process(tmp_path_factory: pytest.TempPathFactory) -> Generator[Workbench]:
    with running_workbench(tmp_path_factory.mktemp("workbench") / "done") as workbench:
        yield workbench


@pytest.fixture
def workbench(workbench_process: Workbench) -> Workbench:
    """The server that all tests of a process share, with nothing done yet."""
    workbench_process.forget()
    return workbench_process


@pytest.fixture
def effects(tmp_path: Path) -> EffectRecorder:
    return EffectRecorder(tmp_path / "effects")


@pytest.fixture
def script() -> ScriptedModel:
    return ScriptedModel()


@pytest.fixture
async def model(script: ScriptedModel) -> AsyncGenerator[ModelServer]:
    async with ModelServer(script) as server:
        yield server


@pytest.fixture
def opened(database_url: str, model: ModelServer, workbench: Workbench, tmp_path: Path) -> Open:
    """Open a platform with other limits or servers than the default ones."""
    usual = {"bench": workbench.as_server("read"), "shop": workbench.as_server("unsafe")}

    def open_with(
        *,
        servers: Mapping[str, Any] = usual,
        roles: Mapping[str, Sequence[str]] | None = None,
        tracing: Mapping[str, Any] | None = None,
        **limits: Any,
    ) -> AbstractAsyncContextManager[Platform]:
        return open_platform(database_url, model, servers, tmp_path, roles=roles, tracing=tracing, **limits)

    return open_with


@pytest.fixture
async def platform(opened: Open) -> AsyncGenerator[Platform]:
    async with opened() as platform:
        yield platform
