"""One platform for the tests of a module; each test has a tenant, and with it threads, skills and runs, of its own."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from itertools import count

import pytest
import pytest_asyncio

from starling.core.principal import Principal, Scope
from tests.support.model_server import ModelServer
from tests.support.platform import Platform, ScriptedModel, Workbench, open_platform

_NUMBERS = count(1)


@pytest.fixture(scope="module")
def module_script() -> ScriptedModel:
    return ScriptedModel()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def module_platform(
    module_database_url: str,
    module_script: ScriptedModel,
    workbench_process: Workbench,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncGenerator[Platform]:
    servers = {"bench": workbench_process.as_server("read"), "shop": workbench_process.as_server("unsafe")}
    async with (
        ModelServer(module_script) as model,
        open_platform(module_database_url, model, servers, tmp_path_factory.mktemp("platform")) as platform,
    ):
        yield platform


@pytest.fixture
def script(module_script: ScriptedModel) -> ScriptedModel:
    module_script.forget()
    return module_script


@pytest_asyncio.fixture(loop_scope="module")
async def model(script: ScriptedModel) -> AsyncGenerator[ModelServer]:
    """The model of a platform that a test opens for itself."""
    async with ModelServer(script) as server:
        yield server


@pytest.fixture
def platform(module_platform: Platform, workbench: Workbench) -> Platform:
    """The platform for a tenant of this test; its model has been asked nothing, and the workbench has done nothing."""
    module_platform.model.forget()
    return replace(module_platform, caller=Principal(f"tenant-{next(_NUMBERS)}", "", frozenset(Scope)))
