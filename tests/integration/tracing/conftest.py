"""Whole runs whose spans go to a collector that decodes the real protocol."""

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from starling.infra.tracing import export
from tests.support.model_server import ModelServer
from tests.support.otlp_collector import Collector
from tests.support.platform import Platform, ScriptedModel, Workbench, open_platform, running_workbench

type Open = Callable[..., AbstractAsyncContextManager[Platform]]


@pytest.fixture(autouse=True)
def all_spans_are_delivered_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "_FLUSH_SECONDS", 60)


@pytest.fixture(scope="module")
def workbench(tmp_path_factory: pytest.TempPathFactory) -> Generator[Workbench]:
    with running_workbench(tmp_path_factory.mktemp("workbench") / "done") as workbench:
        yield workbench


@pytest.fixture
def script() -> ScriptedModel:
    return ScriptedModel()


@pytest.fixture
async def model(script: ScriptedModel) -> AsyncGenerator[ModelServer]:
    async with ModelServer(script) as server:
        yield server


@pytest.fixture
async def collector() -> AsyncGenerator[Collector]:
    async with Collector() as collector:
        yield collector


@pytest.fixture
def opened(database_url: str, model: ModelServer, workbench: Workbench, tmp_path: Path) -> Open:
    """Open a platform whose spans go where these settings say."""
    servers = {"bench": workbench.as_server("read"), "shop": workbench.as_server("unsafe")}

    def open_with(**tracing: Any) -> AbstractAsyncContextManager[Platform]:
        return open_platform(database_url, model, servers, tmp_path, tracing=tracing)

    return open_with
