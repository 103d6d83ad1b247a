"""The settings of a command, and how much it logs."""

import logging
from collections.abc import Generator
from pathlib import Path

import pytest
import typer
from typer.core import TyperCommand

from starling.app.cli.platform.command_settings import service_settings_of, settings_of
from tests.support.logging_state import restored_logging


@pytest.fixture(autouse=True)
def root_logger(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Generator[logging.Logger]:
    """The root logger, put back afterwards; no settings but those of the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LOG_LEVEL", raising=False)
    with restored_logging() as root:
        root.handlers.clear()
        yield root


@pytest.fixture
def context() -> typer.Context:
    return typer.Context(TyperCommand("starling"))


def test_a_command_that_ends_by_itself_logs_warnings_only(context: typer.Context, root_logger: logging.Logger) -> None:
    settings_of(context)

    assert root_logger.level == logging.WARNING


def test_a_service_logs_what_it_does(context: typer.Context, root_logger: logging.Logger) -> None:
    service_settings_of(context)

    assert root_logger.level == logging.INFO


def test_a_level_that_was_asked_for_holds_for_both(
    context: typer.Context, root_logger: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOG_LEVEL", "info")

    settings_of(context)

    assert root_logger.level == logging.INFO
