"""Settings for the tests of several modules in one process."""

from collections.abc import Generator

import pytest

from mcp_gateway.sessions import pool


@pytest.fixture(scope="session", autouse=True)
def short_end_of_sessions() -> Generator[None]:
    """Wait 2 s at the end of a gateway for calls that were cancelled and never answered; no process needs longer."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "_CLOSE_SECONDS", 2.0)
        yield
