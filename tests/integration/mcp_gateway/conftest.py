"""A gateway on real servers and a real database."""

from collections.abc import Generator
from pathlib import Path

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from mcp_gateway.configuration.servers import ServerConfig
from tests.support.gateway_harness import GatewayHarness, free_port, running_http


@pytest.fixture
def harness(engine: AsyncEngine, tmp_path: Path) -> GatewayHarness:
    return GatewayHarness(engine, tmp_path)


@pytest.fixture
def http_recording(tmp_path: Path) -> Generator[ServerConfig]:
    """The recording server over streamable HTTP, in a process of its own."""
    with running_http(tmp_path / "record", free_port()) as config:
        yield config
