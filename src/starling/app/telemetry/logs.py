"""Logging: JSON lines, or text on a terminal; secrets are redacted."""

import logging
from contextlib import suppress
from io import UnsupportedOperation
from typing import IO, Final

from rich.console import Console

from starling.app.telemetry.log_format import LineFormatter, TerminalHandler
from starling.app.telemetry.log_writer import LogWriter
from starling.core.secrets.look_alikes import Redaction
from starling.core.settings.schema import Settings

_QUIET: Final = (
    "aiohttp",
    "alembic",
    "asyncio",
    "fastmcp",
    "httpcore",
    "httpx",
    "mcp",
    "procrastinate",
    "sse_starlette",
    "uvicorn",
)

_LEAST: Final = {
    "psycopg": logging.ERROR,  # it warns of each connection closed by a cancelled query, or that can't be opened
    "starling.infra.postgres.connections": logging.WARNING,  # SQLAlchemy's pool logs when it is opened and closed
    "watchfiles": logging.WARNING,  # else a line for each of ours, if the log is in the watched folder
}


def configure_logs(level: str, console: Console, settings: Settings) -> None:
    """Log records of at least `level` to `console`: as text on a terminal, else one JSON object a line.

    Each line carries the bound context (run, tenant, trace, correlation). Libraries log from WARNING on; with DEBUG
    from INFO on.
    """
    as_text = settings.log_format == "text" or (settings.log_format == "auto" and console.is_terminal)
    stream: IO[str] | LogWriter = console.file
    with suppress(UnsupportedOperation):  # it is not one of the system, which may block
        stream.fileno()
        stream = LogWriter(stream)
    on_terminal = as_text and console.is_terminal
    handler: logging.Handler = TerminalHandler(console) if on_terminal else logging.StreamHandler(stream)
    handler.setFormatter(LineFormatter(Redaction.of(settings), as_text=as_text))
    handler.addFilter(_is_not_quotation)
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.INFO if level == "DEBUG" else logging.WARNING)
    for name, least in _LEAST.items():
        logging.getLogger(name).setLevel(least)


def _is_not_quotation(record: logging.LogRecord) -> bool:
    """Return False for records in which the MCP SDK quotes messages it can't parse: they may hold secrets."""
    return (record.name, record.module) != ("root", "session") or record.levelno >= logging.ERROR
