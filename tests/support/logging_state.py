"""Restore logging after a test."""

import logging
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def restored_logging() -> Generator[logging.Logger]:
    """Give the root logger; restore its handlers and all levels afterwards, because later tests read log records."""
    root = logging.getLogger()
    handlers, levels = root.handlers[:], {logger.name: logger.level for logger in _loggers()}
    try:
        yield root
    finally:
        root.handlers[:] = handlers
        for logger in _loggers():
            logger.setLevel(levels.get(logger.name, logging.NOTSET))


def _loggers() -> list[logging.Logger]:
    known = logging.root.manager.loggerDict.values()
    return [logging.root, *(logger for logger in known if isinstance(logger, logging.Logger))]
