"""How a log line looks: JSON, text, or what a terminal's columns hold; secrets are redacted."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, cast

import structlog
from structlog.stdlib import ProcessorFormatter
from structlog.types import EventDict, Processor

from starling.app.telemetry.log_context import log_context
from starling.core.secrets.redaction import Redaction

type Format = Literal["json", "text", "columns"]

_BOUND: Final = ("method", "path", "status", "ms", "run_id", "tenant")  # the context that a terminal shows


def log_formatter(look: Format, redaction: Redaction) -> logging.Formatter:
    """Return the formatter of lines that look like this."""
    return ProcessorFormatter(
        foreign_pre_chain=[
            _with_context,
            structlog.stdlib.ExtraAdder(),
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
        ],
        processors=[ProcessorFormatter.remove_processors_meta, _Redacted(redaction), _renderer(look)],
    )


def _renderer(look: Format) -> Processor:
    match look:
        case "json":
            return structlog.processors.JSONRenderer(ensure_ascii=False)
        case "text":
            return structlog.dev.ConsoleRenderer(colors=False, pad_event_to=0)
        case "columns":
            return _line


def _with_context(_: object, __: str, event: EventDict) -> EventDict:
    return {**log_context(), **event}


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
