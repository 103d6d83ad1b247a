"""What the log says of an embedded Postgres that ends and is started again."""

import asyncio
import logging
from pathlib import Path

import pytest

from starling.core.errors import DatabaseUnavailableError
from starling.infra.postgres.embedded import server
from starling.infra.postgres.embedded.server import EmbeddedPostgres, restarting


class FailingServer(EmbeddedPostgres):
    """A server that has ended, and fails to start a number of times."""

    def __init__(self, failures: int) -> None:
        super().__init__(Path("none"))
        self.failures = failures
        self.started = asyncio.Event()

    @property
    def url(self) -> str:
        return "postgresql://same"

    @property
    def is_running(self) -> bool:
        return self.started.is_set()

    def start(self) -> None:
        self.failures -= 1
        if self.failures >= 0:
            raise DatabaseUnavailableError("no room", "")
        self.started.set()

    def stop(self) -> None:
        pass


async def test_restarts_that_fail_are_a_line_at_the_beginning_and_one_at_the_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server, "_CHECK_SECONDS", 0)
    failing = FailingServer(failures=5)

    with caplog.at_level(logging.INFO, server.__name__):
        async with restarting(failing):
            await failing.started.wait()

    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "the embedded Postgres is restarted: it ended"),
        ("INFO", "the embedded Postgres runs again, after 0 s; failures: 6"),
    ]
