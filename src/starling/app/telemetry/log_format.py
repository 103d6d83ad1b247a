"""How a log line looks: JSON, text, or what a terminal's columns hold; secrets are redacted."""

import json
import logging
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal, cast, override

from rich.console import Console
from rich.table import Table
from rich.text import Text

from starling.app.telemetry.log_context import log_context
from starling.core.secrets.look_alikes import Redaction

type Format = Literal["json", "text", "columns"]

_BOUND: Final = ("method", "path", "status", "ms", "run_id", "tenant")  # the context that a terminal shows
_OWN: Final = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"})
_LINE: Final = ("timestamp", "level", "event", "logger", "exception", "stack")


class LineFormatter(logging.Formatter):
    """Formats records with the bound context and their extra fields."""

    def __init__(self, look: Format, redaction: Redaction) -> None:
        super().__init__()
        self._look: Final = look
        self._redaction = redaction

    @override
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {**log_context(), "event": record.getMessage()}
        line |= {name: value for name, value in vars(record).items() if name not in _OWN}
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds")
        line |= {"level": record.levelname.lower(), "logger": record.name, "timestamp": moment.replace("+00:00", "Z")}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = record.stack_info
        shown = cast("dict[str, Any]", self._redacted(line))
        match self._look:
            case "json":
                return json.dumps(shown, ensure_ascii=False)
            case "text":
                start = f"{shown['timestamp']} [{shown['level']:<9}] {shown['event']} [{shown['logger']}]"
                return _line(start, shown, sorted(shown.keys() - set(_LINE)))
            case "columns":  # time and level have columns of their own
                return _line(f"{shown['logger']}: {shown['event']}", shown, _BOUND)

    def _redacted(self, value: Any) -> Any:
        match value:
            case None | bool() | int() | float():
                return value
            case Mapping():
                return {key: self._redacted(item) for key, item in cast("Mapping[str, Any]", value).items()}
            case list() | tuple():
                return [self._redacted(item) for item in cast("Sequence[Any]", value)]
            case _:
                return self._redaction(str(value))


class TerminalHandler(logging.Handler):
    """Prints time, level and line in columns."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    @override
    def emit(self, record: logging.LogRecord) -> None:
        columns = Table.grid(padding=(0, 1))
        columns.expand = True
        columns.add_column(style="log.time")
        columns.add_column(width=8)
        columns.add_column(ratio=1, overflow="fold")
        moment = time.strftime("[%X]", time.localtime(record.created))
        level = Text(record.levelname, style=f"logging.level.{record.levelname.lower()}")
        try:
            columns.add_row(moment, level, Text(self.format(record)))
            self._console.print(columns)
        except (OSError, ValueError):  # the terminal is gone
            self.handleError(record)


def _line(start: str, event: Mapping[str, Any], names: Sequence[str]) -> str:
    bound = "".join(f" {name}={event[name]}" for name in names if name in event)
    traces = "".join(f"\n{event[name]}" for name in ("exception", "stack") if name in event)
    return f"{start}{bound}{traces}"
