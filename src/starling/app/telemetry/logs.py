"""Logging: JSON lines, or columns on a terminal; secrets are redacted."""

import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from io import UnsupportedOperation
from typing import IO, Any, Final, cast

import structlog
from rich.console import Console
from rich.logging import RichHandler
from structlog.stdlib import ProcessorFormatter
from structlog.types import EventDict, Processor

from starling.app.telemetry.log_writer import LogWriter
from starling.core.runs import Run
from starling.core.secrets.redaction import Redaction
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
_BOUND: Final = ("method", "path", "status", "ms", "run_id", "tenant")  # the context that a terminal shows


def configure_logs(level: str, console: Console, settings: Settings) -> None:
    """Log records of at least `level` to `console`: in columns on a terminal, else one JSON object a line.

    Each line carries the bound context (run, tenant, trace, correlation). Libraries log from WARNING on; with DEBUG
    from INFO on.
    """
    handler = _handler(settings, console)
    handler.addFilter(_is_no_quotation)
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.INFO if level == "DEBUG" else logging.WARNING)
    logging.getLogger("psycopg").setLevel(
        logging.ERROR
    )  # it logs a warning for each connection closed by a cancelled query
    logging.getLogger("psycopg.pool").setLevel(logging.WARNING)
    logging.getLogger("watchfiles").setLevel(
        logging.WARNING
    )  # otherwise it logs a line for each of ours, if the log file is in the watched folder


def run_log_context(run: Run) -> AbstractContextManager[None]:
    """Add the ids of the run to every line logged in the block and in tasks begun there."""
    return structlog.contextvars.bound_contextvars(
        run_id=run.id, tenant=run.tenant, trace_id=run.trace_id, correlation_id=run.correlation_id
    )


def add_to_log_context(**what: str) -> None:
    """Add `what` to every further line of this context, for example the id of the run."""
    structlog.contextvars.bind_contextvars(**what)


def _is_no_quotation(record: logging.LogRecord) -> bool:
    """Return False for records in which the MCP SDK quotes messages it can't parse: they may hold secrets."""
    return (record.name, record.module) != ("root", "session") or record.levelno >= logging.ERROR


def _handler(settings: Settings, console: Console) -> logging.Handler:
    redaction = _Redacted(Redaction.of(settings))
    stream = _stream(console.file)
    as_text = settings.log_format == "text" or (settings.log_format == "auto" and console.is_terminal)
    if as_text and console.is_terminal:
        handler: logging.Handler = RichHandler(console=console, show_path=False, log_time_format="%X")
        handler.setFormatter(_formatter(redaction, _line))
    elif as_text:
        handler = logging.StreamHandler(stream)
        handler.setFormatter(_formatter(redaction, structlog.dev.ConsoleRenderer(colors=False, pad_event_to=0)))
    else:
        handler = logging.StreamHandler(stream)
        handler.setFormatter(_formatter(redaction, structlog.processors.JSONRenderer(ensure_ascii=False)))
    return handler


def _stream(file: IO[str]) -> IO[str] | LogWriter:
    """Return what log lines are written to: a thread's queue where `file` is one of the system, which may block."""
    try:
        file.fileno()
    except UnsupportedOperation:
        return file
    return LogWriter(file)


def _formatter(redaction: Processor, renderer: Processor) -> ProcessorFormatter:
    return ProcessorFormatter(
        foreign_pre_chain=[
            structlog.contextvars.merge_contextvars,
            structlog.stdlib.ExtraAdder(),
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
        ],
        processors=[ProcessorFormatter.remove_processors_meta, redaction, renderer],
    )


class _Redacted:
    def __init__(self, redaction: Redaction) -> None:
        self._redaction = redaction

    def __call__(self, _: object, __: str, event: EventDict) -> EventDict:
        return cast("EventDict", self._value(event))

    def _value(self, value: Any) -> Any:
        match value:
            case None | bool() | int() | float():
                return value
            case Mapping():
                return {key: self._value(item) for key, item in cast("Mapping[str, Any]", value).items()}
            case list() | tuple():
                return [self._value(item) for item in cast("Sequence[Any]", value)]
            case _:
                return self._redaction(str(value))


def _line(_: object, __: str, event: EventDict) -> str:
    """Return a line for a terminal, which has time and level in columns of their own."""
    bound = "".join(f" {key}={event[key]}" for key in _BOUND if key in event)
    traces = "".join(f"\n{event[key]}" for key in ("exception", "stack") if key in event)
    return f"{event['logger']}: {event['event']}{bound}{traces}"
