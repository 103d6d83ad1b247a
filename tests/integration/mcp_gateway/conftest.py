"""A gateway on real servers and a real database."""

from collections.abc import Generator
from pathlib import Path

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from mcp_gateway.config import ServerConfig
from tests.support.gateway import House, free_port, running_http


@pytest.fixture
def house(engine: AsyncEngine, tmp_path: Path) -> House:
    return House(engine, tmp_path)


@pytest.fixture
def http_recording(tmp_path: Path) -> Generator[ServerConfig]:
    """The recording server over streamable HTTP, in a process of its own."""
    with running_http(tmp_path / "record", free_port()) as config:
        yield config
