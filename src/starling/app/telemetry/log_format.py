"""How a log line looks: JSON or text; secrets are redacted."""

import json
import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, cast, override

from rich.console import Console
from rich.text import Text

from starling.app.telemetry.log_context import log_context
from starling.core.secrets.look_alikes import Redaction

_OWN: Final = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"})
_LINE: Final = ("timestamp", "level", "event", "logger", "exception", "stack")


class LineFormatter(logging.Formatter):
    """Formats records with the bound context and their extra fields."""

    def __init__(self, redaction: Redaction, *, as_text: bool) -> None:
        super().__init__()
        self._as_text = as_text
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
        if not self._as_text:
            return json.dumps(shown, ensure_ascii=False)
        bound = "".join(f" {name}={shown[name]}" for name in sorted(shown.keys() - set(_LINE)))
        traces = "".join(f"\n{shown[name]}" for name in ("exception", "stack") if name in shown)
        return f"{shown['timestamp']} [{shown['level']:<9}] {shown['event']} [{shown['logger']}]{bound}{traces}"

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
    """Prints lines above what a terminal shows in place."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    @override
    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._console.print(Text(self.format(record)))
        except (OSError, ValueError):  # the terminal is gone
            self.handleError(record)
