"""Log lines that nobody reads."""

import json
import logging
import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import IO

import pytest
from rich.console import Console

from starling.app.telemetry import log_writer
from starling.app.telemetry.log_writer import LINES, LogWriter
from starling.app.telemetry.logs import configure_logs
from starling.core.settings.schema import Settings
from tests.support.logging_state import restored_logging


@contextmanager
def pipe() -> Generator[tuple[IO[str], IO[str]]]:
    """Yield the reading and the writing end of a pipe."""
    reading, writing = os.pipe()
    with os.fdopen(reading, encoding="utf-8") as read, os.fdopen(writing, "w", encoding="utf-8") as write:
        yield read, write


@pytest.mark.timeout(60)
def test_logging_to_a_pipe_that_nobody_reads_goes_on_and_reports_the_dropped_lines_later() -> None:
    with restored_logging(), pipe() as (read, write):
        configure_logs("INFO", Console(file=write), Settings())
        for number in range(LINES + 5_000):
            logging.getLogger("a").info("line %d", number)

        events: list[str] = []
        while "dropped" not in (event := json.loads(read.readline())["event"]):
            events.append(event)

    numbers = [int(event.removeprefix("line ")) for event in events]
    assert numbers == sorted(set(numbers))
    dropped = LINES + 5_000 - len(events)
    assert event == f"{dropped} log lines were dropped: they were not read in time"
    assert dropped > 0


def test_lines_are_written_before_the_process_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_writer, "_EXIT_SECONDS", 60)
    with pipe() as (read, write):
        writer = LogWriter(write)
        for number in range(3):
            writer.write(f"{number}\n")

        writer.wait()
        write.close()

        assert read.readlines() == ["0\n", "1\n", "2\n"]
