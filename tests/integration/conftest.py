"""Settings for the tests of several modules in one process."""

from collections.abc import Generator

import pytest

from mcp_gateway.sessions import pool


@pytest.fixture(scope="session", autouse=True)
def short_end_of_sessions() -> Generator[None]:
    """Wait 3.5 s, not 6, at the end of a gateway for calls that were cancelled and are never answered."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "_CLOSE_SECONDS", 3.5)
        yield
